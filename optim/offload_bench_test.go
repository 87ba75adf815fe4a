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
// and the median of the step's time by that of each of the others just after it, since some
// disks take twice as long a minute later. The file is in the temporary directory, and in the
// page cache as it is when a step follows another.
func BenchmarkOffload(b *testing.B) {
	benchmarkOffload(b, func(*optim.Optimizer) (before, after func() error) {
		nothing := func() error { return nil }
		return nothing, nothing
	})
}

// benchmarkOffload does before and after each of the four what prepare returns, and counts
// the time of the latter.
func benchmarkOffload(b *testing.B, prepare func(disk *optim.Optimizer) (before, after func() error)) {
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
			before, after := prepare(disk)
			step := func(opt *optim.Optimizer) func() error {
				return func() error {
					_, err := opt.Step()
					return err
				}
			}
			reportTimes(b, before, after, []timed{
				{"step", step(disk)}, {"io", disk.MoveStates}, {"io1", disk.MoveStatesInTurn}, {"resident", step(resident)},
			})
		})
	}
}

type timed struct {
	name string
	run  func() error
}

// reportTimes runs all of them in turn, and compares the first with the others.
func reportTimes(b *testing.B, before, after func() error, all []timed) {
	seconds, ratios := make([][]float64, len(all)), make([][]float64, len(all))
	for b.Loop() {
		for i, t := range all {
			require.NoError(b, before())
			start := time.Now()
			require.NoError(b, t.run())
			require.NoError(b, after())
			seconds[i] = append(seconds[i], time.Since(start).Seconds())
			ratios[i] = append(ratios[i], seconds[0][len(seconds[0])-1]/seconds[i][len(seconds[i])-1])
		}
	}
	for i, t := range slices.Backward(all) {
		b.ReportMetric(slices.Min(seconds[i]), t.name+"-s")
		if i > 0 {
			slices.Sort(ratios[i])
			b.ReportMetric(ratios[i][len(ratios[i])/2], "step/"+t.name)
		}
	}
}
