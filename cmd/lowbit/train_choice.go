package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lowbit-go/lowbit/optim"
)

// choice is an optimizer to train with.
type choice struct {
	name   string
	config optim.Config
}

// optimizers are what train compares, in this order.
var optimizers = []struct {
	name   string
	config func(s settings) optim.Config
}{
	{"adamw_float32", adamW(func(*optim.AdamWConfig) {})},
	{"adamw_bfloat16", adamW(func(c *optim.AdamWConfig) { c.MomentsDtype, c.MomentsRounding = "bfloat16", "stochastic" })},
	{"adamw_8bit", adamW(func(c *optim.AdamWConfig) { c.Adam8bit = true })},
	{"adamw_4bit", adamW(func(c *optim.AdamWConfig) { c.Adam4bit = true })},
	{"muon", muon},
}

var trainVars = kong.Vars{"optimizers": strings.Join(optimizerNames(), ", ")}

func optimizerNames() []string {
	names := make([]string, len(optimizers))
	for i, o := range optimizers {
		names[i] = o.name
	}
	return names
}

// settings are the hyper-parameters that all optimizers share.
type settings struct {
	lr           optim.Schedule
	beta1, beta2 float64
	weightDecay  float64
	gradClipNorm *float64
	seed         uint64
}

func adamW(edit func(c *optim.AdamWConfig)) func(settings) optim.Config {
	return func(s settings) optim.Config {
		c := optim.DefaultAdamW()
		c.LR, c.WeightDecay, c.GradClipNorm, c.Seed = s.lr, s.weightDecay, s.gradClipNorm, s.seed
		c.Betas = [2]float64{s.beta1, s.beta2}
		edit(&c)
		return c
	}
}

// muon scales its updates to those of AdamW, so that it takes the same learning rate.
func muon(s settings) optim.Config {
	c := optim.DefaultMuon()
	c.LR, c.WeightDecay, c.GradClipNorm, c.Seed = s.lr, s.weightDecay, s.gradClipNorm, s.seed
	c.AdamB1, c.AdamB2, c.AdamWeightDecay = s.beta1, s.beta2, s.weightDecay
	rms := muonRMS
	c.ConsistentRMS = &rms
	c.ParamGroups = []optim.ParamGroup{{Params: []string{"embedding"}, Optimizer: "adamw"}}
	return c
}

const muonRMS = 0.2

// choices are the optimizers that the command line asks for, or that a checkpoint was made with.
func (c *trainCmd) choices(e *env, t *training, saved *trainState) ([]choice, error) {
	if c.Config != "" {
		config, err := e.readConfig(c.Config)
		name := filepath.Base(c.Config)
		return []choice{{strings.TrimSuffix(name, filepath.Ext(name)), config}}, err
	}
	names := c.names()
	if saved != nil && names == nil {
		if !slices.ContainsFunc(c.numbers(), flagNumber.given) {
			config, err := optim.ParseConfig(saved.Config)
			if err != nil {
				return nil, badInput("%s: %s: %w", c.Resume, trainKey, err)
			}
			return []choice{{saved.Optimizer, config}}, nil
		}
		names = []string{saved.Optimizer}
	}
	if names == nil {
		names = optimizerNames()
	}
	list := make([]choice, len(names))
	for i, name := range names {
		at := slices.Index(optimizerNames(), name)
		if at < 0 {
			return nil, badInput("%s: %s was trained with --config, which it needs again", c.Resume, printable(name))
		}
		list[i] = choice{name, optimizers[at].config(c.settings(t))}
	}
	return list, nil
}

func (e *env) readConfig(path string) (optim.Config, error) {
	var text []byte
	if err := e.interruptible(func() (err error) {
		text, err = readText(path)
		return err
	}); err != nil {
		return nil, err
	}
	config, err := optim.ParseConfig(text)
	if err != nil {
		return nil, badInput("%s: %w", path, err)
	}
	return config, nil
}

// readText reads a file that is no larger than what somebody would write.
func readText(path string) ([]byte, error) {
	const most = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, inputError{err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, inputError{err}
	case len(text) > most:
		return nil, badInput("%s: more than %d bytes, want a configuration", path, most)
	}
	return text, nil
}

// names are the optimizers that flags name, nil where none does.
func (c *trainCmd) names() []string {
	switch {
	case c.Adam8bit:
		return []string{"adamw_8bit"}
	case c.Adam4bit:
		return []string{"adamw_4bit"}
	case c.MomentsDtype != nil:
		return []string{"adamw_" + *c.MomentsDtype}
	}
	return c.Optimizer
}

func (c *trainCmd) settings(t *training) settings {
	lr := or(c.LR, 0.01)
	return settings{
		lr: optim.Schedule{
			Type: "cosine", Peak: lr, Floor: or(c.MinLR, lr/10) / lr,
			Warmup: min(warmupSteps, t.scheduled/10), Total: t.scheduled,
		},
		beta1: or(c.AdamBeta1, 0.9), beta2: or(c.AdamBeta2, 0.999),
		weightDecay: or(c.WeightDecay, 0), gradClipNorm: c.GradClipNorm, seed: t.seed,
	}
}

// flagNumber is a flag's value, nil where it was not given, and its range.
type flagNumber struct {
	flag  string
	value *float64
	ok    func(x float64) bool
	want  string
}

func (n flagNumber) given() bool { return n.value != nil }

func (c *trainCmd) numbers() []flagNumber {
	positive := func(x float64) bool { return x > 0 }
	below1 := func(x float64) bool { return x >= 0 && x < 1 }
	lr := or(c.LR, 0.01)
	return []flagNumber{
		{"--lr", c.LR, positive, "a number above 0"},
		{"--min-lr", c.MinLR, func(x float64) bool { return x >= 0 && x <= lr }, fmt.Sprintf("0 to the learning rate, %v", lr)},
		{"--adam-beta1", c.AdamBeta1, below1, "0 or more and less than 1"},
		{"--adam-beta2", c.AdamBeta2, below1, "0 or more and less than 1"},
		{"--weight-decay", c.WeightDecay, func(x float64) bool { return x >= 0 }, "0 or more"},
		{"--grad-clip-norm", c.GradClipNorm, positive, "a number above 0"},
	}
}

// Validate checks the flags and that none contradicts another.
func (c *trainCmd) Validate() error {
	if c.Steps != nil && *c.Steps < 1 {
		return badInput("--steps is %d, want 1 or more", *c.Steps)
	}
	for _, n := range c.numbers() {
		if n.given() && (!n.ok(*n.value) || math.IsInf(*n.value, 0)) {
			return badInput("%s is %v, want %s", n.flag, *n.value, n.want)
		}
	}
	if c.Optimizer != nil && len(c.Optimizer) == 0 {
		return badInput("--optimizer is empty, want some of %s", strings.Join(optimizerNames(), ", "))
	}
	for i, name := range c.Optimizer {
		if !slices.Contains(optimizerNames(), name) {
			return badInput("--optimizer: %.100q is not known, want one of %s", name, strings.Join(optimizerNames(), ", "))
		}
		if slices.Contains(c.Optimizer[:i], name) {
			return badInput("--optimizer names %s twice", name)
		}
	}
	if err := c.validateOffload(); err != nil {
		return err
	}
	return c.validateChoice()
}

// validateChoice refuses two flags that each choose what to train with.
func (c *trainCmd) validateChoice() error {
	given := []string{}
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{"--config", c.Config != ""},
		{"--optimizer", c.Optimizer != nil},
		{"--adam-8bit", c.Adam8bit},
		{"--adam-4bit", c.Adam4bit},
		{"--moments-dtype " + or(c.MomentsDtype, ""), c.MomentsDtype != nil},
	} {
		if f.given {
			given = append(given, f.flag)
		}
	}
	if c.Config != "" {
		for _, n := range c.numbers() {
			if n.given() {
				given = append(given, n.flag)
			}
		}
	}
	if len(given) > 1 {
		return badInput("%s and %s exclude each other", given[0], given[1])
	}
	return nil
}
