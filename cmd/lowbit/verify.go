package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/lowbit-go/lowbit/fuzz"
	"github.com/lowbit-go/lowbit/kernels"
)

type verifyCmd struct {
	Filter string `placeholder:"RE" help:"Check only operations whose NAME/VARIANT the regular expression matches."`
	Cases  int    `default:"100" placeholder:"N" help:"Inputs for each implementation; 100 by default. The first hundred have every length and offset that matters."`
	JSON   bool   `name:"json" help:"Print the table as one JSON object."`
}

func (*verifyCmd) Help() string {
	return `Runs every implementation that this machine can run on generated inputs, and compares all that it writes with the
reference: bit for bit where the class is exact, and otherwise within the operation's bound, of which the error is a
fraction. Where the reference is the only implementation, it is compared with itself. Ends with 1 if one differs.

Example:

    lowbit verify --filter '^quantize/' --cases 1000
`
}

// trial is one row of the table and its comparison with the reference, as package fuzz has it.
type trial interface {
	Row() kernels.Row
	Check(implementation string, data []byte) fuzz.Result
}

func (c *verifyCmd) Run(e *env) error {
	filter, err := regexp.Compile(c.Filter)
	if err != nil {
		return badInput("--filter: %w", err)
	}
	if c.Cases < 1 {
		return badInput("--cases is %d, want 1 or more", c.Cases)
	}
	trials := []trial{}
	for _, t := range fuzz.Trials() {
		if row := t.Row(); filter.MatchString(row.Name + "/" + row.Variant) {
			trials = append(trials, t)
		}
	}
	if len(trials) == 0 {
		return badInput("--filter: %.100q matches none of the %d operations", c.Filter, len(fuzz.Trials()))
	}
	return c.verify(e, trials)
}

type verification struct {
	OK         bool     `json:"ok"`
	Operations []*check `json:"operations"`
}

// check is what became of one implementation.
type check struct {
	Name           string `json:"name"`
	Variant        string `json:"variant"`
	Implementation string `json:"implementation"`
	Class          string `json:"class"`
	Cases          int    `json:"cases"`
	Elements       int64  `json:"elements"`
	Mismatches     int64  `json:"mismatches"`
	MaxError       number `json:"max_error"`
	Bound          number `json:"bound"` // of max_error: 0 where bits have to agree, else 1
	First          string `json:"first_mismatch"`

	trial trial
}

// checks lists the available implementations, and the reference where there is no other.
func checks(t trial) []*check {
	row, list := t.Row(), []*check{}
	for i, impl := range row.Implementations {
		isReference := i == len(row.Implementations)-1
		if !impl.Available || isReference && len(list) > 0 {
			continue
		}
		c := &check{Name: row.Name, Variant: row.Variant, Implementation: impl.Name, Class: row.Class.String(), trial: t}
		if row.Class == kernels.Tolerance {
			c.Bound = 1
		}
		list = append(list, c)
	}
	return list
}

func (c *verifyCmd) verify(e *env, trials []trial) error {
	v := verification{OK: true}
	for _, t := range trials {
		v.Operations = append(v.Operations, checks(t)...)
	}
	bar := e.progress(int64(len(v.Operations)) * int64(c.Cases))
	defer bar.end()
	for _, check := range v.Operations {
		for data := range fuzz.Cases(1) {
			if err := e.ctx.Err(); err != nil {
				return err
			}
			check.run(data)
			bar.add(1)
			if check.Cases == c.Cases {
				break
			}
		}
		v.OK = v.OK && check.Mismatches == 0
	}
	bar.end()
	if c.JSON {
		if err := e.printJSON(v); err != nil {
			return err
		}
	} else if err := v.print(e); err != nil {
		return err
	}
	return v.failure()
}

func (c *check) run(data []byte) {
	r := c.trial.Check(c.Implementation, data)
	c.Cases++
	c.Elements += r.Elements
	c.Mismatches += r.Mismatches
	c.MaxError = max(c.MaxError, number(r.MaxError))
	if c.First == "" {
		c.First = r.First
	}
}

func (v verification) failure() error {
	differ, first := 0, ""
	for _, c := range v.Operations {
		if c.Mismatches > 0 {
			differ++
			if first == "" {
				first = c.First
			}
		}
	}
	if differ == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d implementations differ from the reference, the first: %s", differ, len(v.Operations), first)
}

func (v verification) print(e *env) error {
	rows := [][]string{{"OPERATION", "VARIANT", "IMPLEMENTATION", "CLASS", "CASES", "ELEMENTS", "MISMATCHES", "MAX ERROR / BOUND"}}
	fast, operations := 0, map[string]bool{}
	for _, c := range v.Operations {
		rows = append(rows, []string{c.Name, orDash(c.Variant), c.Implementation, c.Class, strconv.Itoa(c.Cases),
			strconv.FormatInt(c.Elements, 10), strconv.FormatInt(c.Mismatches, 10), errorText(c.MaxError)})
		operations[c.Name+"/"+c.Variant] = true
		if row := c.trial.Row(); c.Implementation != row.Implementations[len(row.Implementations)-1].Name {
			fast++
		}
	}
	if err := printTable(e.stdout, rows); err != nil {
		return err
	}
	summary := fmt.Sprintf("operations: %d, implementations beside the reference: %d", len(operations), fast)
	if fast == 0 {
		summary = fmt.Sprintf("operations: %d; the reference is the only implementation, and was compared with itself", len(operations))
	}
	_, err := fmt.Fprintln(e.stdout, summary)
	return err
}
