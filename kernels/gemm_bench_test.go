package kernels_test

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
)

func BenchmarkGemm(b *testing.B) {
	for _, n := range []int{64, 128, 256, 512, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			square := func(seed uint64) kernels.Matrix {
				return kernels.Matrix{Data: kernels.Float32s(normal(n*n, seed)), Rows: n, Cols: n, Stride: n}
			}
			x, y, c := square(1), square(2), square(3)
			for b.Loop() {
				if err := kernels.Gemm(c, x, false, y, false, 1, 0, 1); err != nil {
					b.Fatal(err)
				}
			}
			work := 2 * float64(n) * float64(n) * float64(n)
			b.ReportMetric(work*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
		})
	}
}

func BenchmarkNewtonSchulz(b *testing.B) {
	for _, shape := range [][3]int{{1, 256, 256}, {1, 512, 512}, {1, 1024, 1024}, {1, 512, 2048}, {16, 128, 128}} {
		for _, bfloat16 := range []bool{false, true} {
			b.Run(fmt.Sprintf("%v/bfloat16=%v", shape, bfloat16), func(b *testing.B) {
				plan := kernels.NewtonSchulzPlan{Safety: 1, Steps: [][3]float32{jordan, jordan, jordan, jordan, jordan}, BFloat16: bfloat16}
				src, dst := stackOf(shape[0], shape[1], shape[2], 0), stackOf(shape[0], shape[1], shape[2], 0)
				work := make([]float32, kernels.NewtonSchulzWork(&plan, shape[0], shape[1], shape[2], 1))
				for b.Loop() {
					if _, err := kernels.NewtonSchulz(dst, src, &plan, work, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
