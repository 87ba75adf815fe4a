// Command benchdoc writes a document of the results of lowbit bench, and of peers.py
// beside them:
//
//	go run ./internal/benchdoc -steps steps.txt lowbit.json peers1.json peers2.json > docs/benchmarks.md
//
// where steps.txt has commands and what the benchmarks that they ran printed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

func main() {
	steps := flag.String("steps", "", "commands of go test -bench and their output")
	flag.Parse()
	if err := run(*steps, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchdoc:", err)
		os.Exit(1)
	}
}

func run(steps string, files []string, out io.Writer) error {
	if len(files) == 0 {
		return fmt.Errorf("want the JSON of lowbit bench, and that of peers.py after it")
	}
	d := document{Date: time.Now().Format(time.DateOnly), Go: runtime.Version(), Versions: map[string]string{}}
	if steps != "" {
		text, err := os.ReadFile(steps)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			switch {
			case strings.HasPrefix(line, "go test"):
				d.Steps = append(d.Steps, "", strings.TrimSpace(line), "")
			case strings.HasPrefix(line, "Benchmark"):
				d.Steps = append(d.Steps, strings.TrimSpace(line))
			}
		}
	}
	for i, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var r results
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if i == 0 {
			d.Machine, d.Ours = r.Machine, r.Rows
			continue
		}
		d.Peers = append(d.Peers, r.Rows...)
		for library, version := range r.Machine.Versions {
			d.Versions[library] = version
		}
	}
	return page.Execute(out, d)
}

// results are a file of either.
type results struct {
	Machine machine
	Rows    []row
}

type machine struct {
	Brand           string
	Threads         int
	StreamBytesPerS float64 `json:"stream_bytes_per_s"`
	FMAFlops        float64 `json:"fma_flops"`
	BF16DotFlops    float64 `json:"bf16_dot_flops"`
	Versions        map[string]string
}

type row struct {
	Operation, Variant, Implementation, Method, Format string
	Block                                              int
	Shape                                              []int
	Threads                                            int
	Seconds                                            float64
	ElementsPerS                                       float64 `json:"elements_per_s"`
	BytesPerS                                          float64 `json:"bytes_per_s"` // of matrices 0
	LimitFraction                                      float64 `json:"limit_fraction"`
	Flops                                              float64
	PeakFraction                                       float64 `json:"peak_fraction"`
}
