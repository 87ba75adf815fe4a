package roofs

import (
	"math"
	"time"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/workers"
)

// Peak is a loop of nothing but multiply-adds.
type Peak struct {
	Name  string  // of the implementations that use its instruction
	BF16  bool    // products of bf16 numbers
	flops float64 // of a turn
	needs cpufeature.Set
	run   func(turns int)
}

// Peaks are those of this processor, the fastest of a kind first.
func Peaks() (list []*Peak) {
	for i := range peaks {
		if cpufeature.Available.Has(peaks[i].needs) {
			list = append(list, &peaks[i])
		}
	}
	return list
}

// peakTurns take some 50 µs.
const peakTurns = 20_000

// Rate is the number of floating-point operations a second on so many threads, the best
// of a few short tries.
func (p *Peak) Rate(threads int) float64 {
	best := math.Inf(1)
	for range 5 {
		start := time.Now()
		workers.Run(threads, threads*4, p)
		best = min(best, time.Since(start).Seconds())
	}
	return float64(threads) * 4 * peakTurns * p.flops / best
}

// Do is one call.
func (p *Peak) Do(_, _ int) { p.run(peakTurns) }
