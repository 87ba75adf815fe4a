package main

import (
	"regexp"
	"runtime"
	"slices"

	"github.com/lowbit-go/lowbit/bench"
	"github.com/lowbit-go/lowbit/kernels"
)

// mostBenchElements take some 30 GiB in the operations with the most arrays.
const mostBenchElements = 1 << 30

type benchCmd struct {
	Filter    string      `placeholder:"RE" help:"Measure only operations whose NAME/VARIANT the regular expression matches."`
	Elements  int         `default:"16777216" placeholder:"N" help:"Elements of vectors (default: 16777216, more than most caches hold). Slow implementations get fewer; matrices keep their sizes."`
	Threads   threadCount `placeholder:"N" help:"Measure on N threads only (default: on one, and on one a core)."`
	Reference bool        `help:"Measure the reference too where there are others."`
	JSON      bool        `name:"json" help:"Print the table as one JSON object."`
}

func (*benchCmd) Help() string {
	return `Measures every implementation that this machine can run. What works on vectors is given as a percentage of the speed of
a loop that only moves the same bytes, in as many streams of reads and writes; what works on matrices, as one of the
multiply-adds that the processor can do at most with the same instructions. Both are measured side by side with the
operation, and the best of many tries counts.

The parts of a step of Muon are muon_direction, the momentum, then newton_schulz and muon_update; 64 matrices of 128x128
have 1048576 elements.

Examples:

    lowbit bench --filter '^(quantize|adamw_8bit)/' --threads 1
    lowbit bench --filter '^(muon_.*/float32_float32$|newton_schulz_float32)' --elements 1048576
`
}

func (c *benchCmd) Run(e *env) error {
	filter, err := regexp.Compile(c.Filter)
	if err != nil {
		return badInput("--filter: %w", err)
	}
	if c.Elements < 1 || c.Elements > mostBenchElements {
		return badInput("--elements is %d, want 1 to %d", c.Elements, mostBenchElements)
	}
	loads := slices.DeleteFunc(slices.Clone(bench.Loads()), func(l bench.Load) bool {
		return !filter.MatchString(l.Row.Name + "/" + l.Row.Variant)
	})
	if len(loads) == 0 {
		return badInput("--filter: %.100q matches none of the %d operations", c.Filter, len(kernels.Table()))
	}
	defer c.Threads.use()()
	r, err := c.measure(e, loads)
	if err != nil {
		return err
	}
	if c.JSON {
		return e.printJSON(r)
	}
	return r.print(e)
}

// threadCounts are the numbers of threads to measure on.
func (c *benchCmd) threadCounts() []int {
	if all := runtime.GOMAXPROCS(0); c.Threads == 0 && all > 1 {
		return []int{1, all}
	}
	return []int{max(int(c.Threads), 1)}
}

// implementations are those to measure of a load, the reference only if asked for or if
// there is no other.
func (c *benchCmd) implementations(l bench.Load) (names []string) {
	for i, impl := range l.Row.Implementations {
		isReference := i == len(l.Row.Implementations)-1
		if impl.Available && (!isReference || c.Reference || len(names) == 0) {
			names = append(names, impl.Name)
		}
	}
	return names
}
