package main

import (
	"math"
	"runtime"
	"time"

	"github.com/lowbit-go/lowbit/bench"
	"github.com/lowbit-go/lowbit/internal/roofs"
	"github.com/lowbit-go/lowbit/kernels"
)

const (
	benchTime     = 200 * time.Millisecond  // for a row, and as much for its limit
	benchMostTime = 1200 * time.Millisecond // of one call: vectors are cut to it, and larger matrices left out
	benchLeast    = time.Millisecond        // a try takes at least so long
	benchTries    = 5                       // at least
	benchLongest  = 20 * time.Millisecond   // of a try of the processor's peak
)

// bencher measures loads one after the other.
type bencher struct {
	*benchCmd
	env    *env
	bar    *progress
	result benchResult
}

func (c *benchCmd) measure(e *env, loads []bench.Load) (benchResult, error) {
	total := 0
	for _, l := range loads {
		total += len(c.implementations(l)) * max(len(l.Shapes), 1) * len(c.threadCounts())
	}
	b := &bencher{benchCmd: c, env: e, bar: e.progress(int64(total)), result: benchResult{Machine: c.machine(), Rows: []*benchRow{}}}
	defer b.bar.end()
	for _, l := range loads {
		b.bar.describe(l.Row.Name)
		measure := b.vectors
		if l.Shapes != nil {
			measure = b.matrices
		}
		if err := measure(l); err != nil {
			return benchResult{}, err
		}
		runtime.GC()
	}
	return b.result, nil
}

func (c *benchCmd) machine() benchMachine {
	counts := c.threadCounts()
	threads := counts[len(counts)-1]
	m := benchMachine{Brand: processorName(), Threads: threads, FMAFlops: unknown, BF16DotFlops: unknown}
	copying := kernels.Streams{Read: []float64{4}, Write: []float64{4}}
	streams := roofs.NewStreams(copying, roofs.NewArrays(copying, c.Elements))
	streams.Choose(c.Elements, threads)
	best := math.Inf(1)
	for range benchTries {
		best = min(best, streams.Time(threads, 1))
	}
	m.StreamBytesPerS = number(copying.Bytes() / best)
	for _, p := range roofs.Peaks() {
		of := &m.FMAFlops
		if p.BF16 {
			of = &m.BF16DotFlops
		}
		for range benchTries {
			if rate := number(p.Rate(threads, benchLeast)); !(*of > rate) {
				*of = rate
			}
		}
	}
	return m
}

// vectors measures every implementation beside a loop that moves the same bytes.
func (b *bencher) vectors(l bench.Load) error {
	work := l.Prepare(b.Elements)
	streams := roofs.NewStreams(l.Row.Streams, work.Arrays)
	for _, name := range b.implementations(l) {
		call := work.Calls[name]
		elements := b.affordable(call)
		for _, threads := range b.threadCounts() {
			streams.Choose(elements, threads)
			limit := math.Inf(1)
			seconds, err := b.time(func() { call(elements, threads) }, func(times int, _ time.Duration) {
				limit = min(limit, streams.Time(threads, times))
			})
			if err != nil {
				return err
			}
			row := newBenchRow(l, work, name, bench.Shape{elements}, threads, seconds)
			row.BytesPerS = number(l.Row.Streams.Bytes()) * row.ElementsPerS
			row.LimitFraction = number(limit) * row.ElementsPerS
			b.result.Rows = append(b.result.Rows, row)
			b.bar.add(1)
		}
	}
	return nil
}

// affordable is how many of the elements a call can work on in time.
func (b *bencher) affordable(call bench.Call) int {
	elements := min(b.Elements, 16<<10)
	for elements < b.Elements {
		start := time.Now()
		call(elements, 1)
		if time.Since(start) > benchMostTime/10 {
			return elements
		}
		elements = min(4*elements, b.Elements)
	}
	return elements
}

// matrices measures every implementation beside one of the processor's peaks.
func (b *bencher) matrices(l bench.Load) error {
	rates := map[string]float64{} // of the shape before, on one thread
	for _, shape := range l.Shapes {
		work := l.Prepare(shape...)
		for _, name := range b.implementations(l) {
			for _, threads := range b.threadCounts() {
				b.bar.add(1)
				if rate := rates[name]; rate > 0 && work.Flops/rate > benchMostTime.Seconds() {
					continue
				}
				peak, best := peakOf(name), 0.0
				seconds, err := b.time(func() { work.Calls[name](shape.Elements(), threads) }, func(_ int, while time.Duration) {
					if peak != nil {
						best = max(best, peak.Rate(threads, min(while, benchLongest)))
					}
				})
				if err != nil {
					return err
				}
				row := newBenchRow(l, work, name, shape, threads, seconds)
				row.Flops = number(work.Flops / seconds)
				if peak != nil {
					row.PeakFraction = row.Flops / number(best)
				}
				if threads == 1 {
					rates[name] = float64(row.Flops)
				}
				b.result.Rows = append(b.result.Rows, row)
			}
		}
	}
	return nil
}

// peakOf is the peak of the instructions that an implementation uses or, where it has none
// of its own, the highest.
func peakOf(implementation string) *roofs.Peak {
	peaks := roofs.Peaks()
	for _, p := range peaks {
		if p.Name == implementation {
			return p
		}
	}
	if len(peaks) == 0 {
		return nil
	}
	return peaks[0]
}

// time is the least time of a call in seconds. Between tries it lets the limit be measured,
// for as many calls as a try has, or for about as long.
func (b *bencher) time(call func(), limit func(times int, while time.Duration)) (float64, error) {
	start := time.Now()
	call()
	once := max(time.Since(start), 1)
	times := int(benchLeast/once) + 1
	best := math.Inf(1)
	for try := 0; try < benchTries || time.Since(start) < 2*benchTime; try++ {
		if err := b.env.ctx.Err(); err != nil {
			return 0, err
		}
		limit(times, time.Duration(times)*once)
		began := time.Now()
		for range times {
			call()
		}
		best = min(best, time.Since(began).Seconds()/float64(times))
	}
	return best, nil
}
