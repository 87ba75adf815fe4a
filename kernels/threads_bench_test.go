package kernels_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
)

// BenchmarkThreads is work on one thread and on two, and what two threads are at best: apart
// is one thread's work twice at the same time, a call of which is as much as two of the others.
func BenchmarkThreads(b *testing.B) {
	plan := &kernels.NewtonSchulzPlan{Safety: 1, Steps: [][3]float32{jordan, jordan, jordan, jordan, jordan}}
	narrow := *plan
	narrow.BFloat16 = true
	gemm := func(n int) func() func(kernels.Threads) error {
		return func() func(kernels.Threads) error {
			square := func(seed uint64) kernels.Matrix {
				return kernels.Matrix{Data: kernels.Float32s(normal(n*n, seed)), Rows: n, Cols: n, Stride: n}
			}
			x, y, c := square(1), square(2), square(3)
			return func(threads kernels.Threads) error { return kernels.Gemm(c, x, false, y, false, 1, 0, threads) }
		}
	}
	newtonSchulz := func(plan *kernels.NewtonSchulzPlan, count, rows, cols int) func() func(kernels.Threads) error {
		return func() func(kernels.Threads) error {
			src, dst := stackOf(count, rows, cols, 0), stackOf(count, rows, cols, 0)
			work := make([]float32, kernels.NewtonSchulzWork(plan, count, rows, cols, 2))
			return func(threads kernels.Threads) error {
				_, err := kernels.NewtonSchulz(dst, src, plan, work, threads)
				return err
			}
		}
	}
	// 126 matrices of sides from 16 to 192, and the same in a call each.
	var shapes [][2]int
	for i := range 126 {
		sides := []int{16, 24, 32, 48, 64, 96, 128, 144, 192}
		shapes = append(shapes, [2]int{sides[i%9], sides[(i/2)%7]})
	}
	mixed := func(plan *kernels.NewtonSchulzPlan, together bool) func() func(kernels.Threads) error {
		return func() func(kernels.Threads) error {
			var src, dst []kernels.Stack
			for _, shape := range shapes {
				src, dst = append(src, stackOf(1, shape[0], shape[1], 0)), append(dst, stackOf(1, shape[0], shape[1], 0))
			}
			work := make([]float32, kernels.NewtonSchulzGroupsWork(plan, src, 2))
			return func(threads kernels.Threads) error {
				if together {
					_, err := kernels.NewtonSchulzGroups(dst, src, plan, work, threads)
					return err
				}
				for i := range src {
					if _, err := kernels.NewtonSchulz(dst[i], src[i], plan, work, threads); err != nil {
						return err
					}
				}
				return nil
			}
		}
	}
	for _, load := range []struct {
		name    string
		prepare func() func(kernels.Threads) error
	}{
		{"gemm/64", gemm(64)},
		{"gemm/96", gemm(96)},
		{"gemm/128", gemm(128)},
		{"gemm/192", gemm(192)},
		{"gemm/256", gemm(256)},
		{"gemm/512", gemm(512)},
		{"gemm/1024", gemm(1024)},
		{"newton_schulz/64", newtonSchulz(plan, 1, 64, 64)},
		{"newton_schulz/128", newtonSchulz(plan, 1, 128, 128)},
		{"newton_schulz/256", newtonSchulz(plan, 1, 256, 256)},
		{"newton_schulz/512", newtonSchulz(plan, 1, 512, 512)},
		{"newton_schulz/1024", newtonSchulz(plan, 1, 1024, 1024)},
		{"newton_schulz/64x128x128", newtonSchulz(plan, 64, 128, 128)},
		{"newton_schulz/3x256x256", newtonSchulz(plan, 3, 256, 256)},
		{"newton_schulz/126-mixed", mixed(plan, true)},
		{"newton_schulz/126-mixed-separately", mixed(plan, false)},
		{"newton_schulz_bfloat16/126-mixed", mixed(&narrow, true)},
		{"newton_schulz_bfloat16/128", newtonSchulz(&narrow, 1, 128, 128)},
		{"newton_schulz_bfloat16/512", newtonSchulz(&narrow, 1, 512, 512)},
	} {
		for _, threads := range []kernels.Threads{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", load.name, threads), func(b *testing.B) {
				call := load.prepare()
				for b.Loop() {
					if err := call(threads); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(load.name+"/apart", func(b *testing.B) {
			var both sync.WaitGroup
			calls := []func(kernels.Threads) error{load.prepare(), load.prepare()}
			b.ResetTimer()
			for _, call := range calls {
				both.Go(func() {
					for range b.N {
						if err := call(1); err != nil {
							b.Error(err)
						}
					}
				})
			}
			both.Wait()
		})
	}
}
