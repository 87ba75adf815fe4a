package main

import (
	"fmt"
	"strconv"

	"github.com/lowbit-go/lowbit/bench"
	"github.com/lowbit-go/lowbit/kernels"
)

// benchResult is the JSON of bench.
type benchResult struct {
	Machine benchMachine `json:"machine"`
	Rows    []*benchRow  `json:"rows"`
}

// benchMachine is what the machine can do on so many threads: of a copy the bytes read and
// written.
type benchMachine struct {
	Brand           string `json:"brand"`
	Threads         int    `json:"threads"`
	StreamBytesPerS number `json:"stream_bytes_per_s"`
	FMAFlops        number `json:"fma_flops"`
	BF16DotFlops    number `json:"bf16_dot_flops"`
}

type benchRow struct {
	Operation      string       `json:"operation"`
	Variant        string       `json:"variant"`
	Implementation string       `json:"implementation"`
	Method         string       `json:"method"` // of orthogonalising
	DType          string       `json:"dtype"`
	Format         string       `json:"format"` // empty where nothing is quantised
	Block          int          `json:"block"`
	Elements       int          `json:"elements"`
	Shape          bench.Shape  `json:"shape"`
	Threads        int          `json:"threads"`
	Seconds        number       `json:"seconds"`
	ElementsPerS   number       `json:"elements_per_s"`
	Streams        benchStreams `json:"streams"`
	BytesPerS      number       `json:"bytes_per_s"`    // null for matrices
	LimitFraction  number       `json:"limit_fraction"` // likewise
	Flops          number       `json:"flops"`          // a second; null for vectors
	PeakFraction   number       `json:"peak_fraction"`  // likewise
}

// benchStreams are the bytes an element of each array that is gone through.
type benchStreams struct {
	Read    []float64 `json:"read"`
	Write   []float64 `json:"write"`
	InPlace []float64 `json:"in_place"`
}

func newBenchRow(l bench.Load, work bench.Work, implementation string, shape bench.Shape, threads int, seconds float64) *benchRow {
	return &benchRow{
		Operation: l.Row.Name, Variant: l.Row.Variant, Implementation: implementation, Method: l.Method,
		DType: work.DType, Format: work.Format, Block: work.Block,
		Elements: shape.Elements(), Shape: shape, Threads: threads,
		Seconds: number(seconds), ElementsPerS: number(float64(shape.Elements()) / seconds), Streams: streamsOf(l.Row.Streams),
		BytesPerS: unknown, LimitFraction: unknown, Flops: unknown, PeakFraction: unknown,
	}
}

func streamsOf(s kernels.Streams) benchStreams {
	list := func(bytes []float64) []float64 { return append([]float64{}, bytes...) }
	return benchStreams{list(s.Read), list(s.Write), list(s.InPlace)}
}

func (r benchResult) print(e *env) error {
	m := r.Machine
	if _, err := fmt.Fprintf(e.stdout, "processor: %s\nthreads: %d; copies %s GB/s, multiply-adds %s GFLOP/s, dot products of bfloat16 %s GFLOP/s\n\n",
		orDash(m.Brand), m.Threads, billions(m.StreamBytesPerS), billions(m.FMAFlops), billions(m.BF16DotFlops)); err != nil {
		return err
	}
	rows := [][]string{{"OPERATION", "VARIANT", "IMPLEMENTATION", "SHAPE", "THREADS", "TIME", "GELEM/S", "GB/S", "OF LIMIT", "GFLOP/S", "OF PEAK"}}
	for _, row := range r.Rows {
		rows = append(rows, []string{row.Operation, orDash(row.variantText()), row.Implementation, row.shapeText(), strconv.Itoa(row.Threads),
			row.timeText(), billions(row.ElementsPerS), billions(row.BytesPerS), percent(row.LimitFraction), billions(row.Flops), percent(row.PeakFraction)})
	}
	return printTable(e.stdout, rows)
}

func (r *benchRow) variantText() string {
	switch {
	case r.Method == "standard":
		return ""
	case r.Format != "":
		return fmt.Sprintf("%s (%s, block %d)", r.Variant, r.Format, r.Block)
	}
	return r.Variant + r.Method
}

func (r *benchRow) shapeText() string {
	sizes := make([]int64, len(r.Shape))
	for i, n := range r.Shape {
		sizes[i] = int64(n)
	}
	return shapeText(sizes)
}

func (r *benchRow) timeText() string {
	return strconv.FormatFloat(float64(r.Seconds)*1e3, 'g', 4, 64) + " ms"
}

// billions has three digits that count.
func billions(n number) string {
	x := float64(n) / 1e9
	switch {
	case x != x:
		return "-"
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

func percent(n number) string {
	if n != n {
		return "-"
	}
	return strconv.FormatFloat(100*float64(n), 'f', 1, 64) + " %"
}
