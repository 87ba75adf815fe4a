package optim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// BenchmarkOffload steps 100 million parameters, 10 million with -short, of 4 million each
// with 8-bit moments. It reports the best times of, in seconds,
//
//	step      a step with states on disk
//	resident  one with states in memory
//	io        the same reads and writes of the same file with no update in between,
//	          one goroutine reading while another writes
//	io1       the same on one goroutine, which reads and writes batch after batch
//
// and the step's time by each of the others. The file is in the temporary directory, and
// in the page cache as it is when a step follows another.
func BenchmarkOffload(b *testing.B) { benchmarkOffload(b, func(*optim.Optimizer) {}) }

func benchmarkOffload(b *testing.B, prepare func(disk *optim.Optimizer)) {
	for _, narrow := range []bool{false, true} {
		b.Run(map[bool]string{false: "float32", true: "bfloat16"}[narrow], func(b *testing.B) {
			const layer, config = 4_000_000, `{"adam_8bit": true}`
			params := make([]optim.Param, 25)
			if testing.Short() {
				params = params[:3]
			}
			for i := range params {
				params[i] = optim.Param{Name: fmt.Sprint(i), Shape: []int64{layer}, Weights: numbers(layer, uint64(i), narrow), Gradients: numbers(layer, uint64(100+i), narrow)}
			}
			resident, _ := newOptimizer(b, config, params...)
			disk, _ := newOptimizer(b, onDisk(config, b.TempDir(), 1), params...)
			defer disk.Close()
			prepare(disk)
			step := func(opt *optim.Optimizer) func() error {
				return func() error {
					_, err := opt.Step()
					return err
				}
			}
			reportBest(b, []timed{
				{"step", step(disk)}, {"io", disk.MoveStates}, {"io1", disk.MoveStatesInTurn}, {"resident", step(resident)},
			})
		})
	}
}

type timed struct {
	name string
	run  func() error
}

// reportBest runs all of them in turn, and compares the first with the others.
func reportBest(b *testing.B, all []timed) {
	best := make([]float64, len(all))
	for round := 0; b.Loop(); round++ {
		for i, t := range all {
			start := time.Now()
			require.NoError(b, t.run())
			if seconds := time.Since(start).Seconds(); round == 0 || seconds < best[i] {
				best[i] = seconds
			}
		}
	}
	for i, t := range slices.Backward(all) {
		b.ReportMetric(best[i], t.name+"-s")
		if i > 0 {
			b.ReportMetric(best[0]/best[i], "step/"+t.name)
		}
	}
}
