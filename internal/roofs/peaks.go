package roofs

import (
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

// peakTurns take about pieceTime.
const (
	peakTurns = 20_000
	pieceTime = 50 * time.Microsecond
)

// Rate is the number of floating-point operations a second on so many threads over a
// while, which should be as long as what it is compared with: a short one may be faster.
func (p *Peak) Rate(threads int, while time.Duration) float64 {
	pieces := threads * int(while/pieceTime+1)
	start := time.Now()
	workers.Run(threads, pieces, p)
	return float64(pieces) * peakTurns * p.flops / time.Since(start).Seconds()
}

// Do is one call.
func (p *Peak) Do(_, _ int) { p.run(peakTurns) }
