package kernels_test

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

// BenchmarkRagged has sizes that are no multiple of a block's.
func BenchmarkRagged(b *testing.B) {
	shapes := [][2]int{{1, 4096}, {1, 350000}, {4096, 1}, {5, 7}, {33, 65}, {65, 65}, {65, 1000}, {97, 97}, {100, 100}, {129, 129}}
	each := func(name string, f func(rows, cols int) func() error) {
		for _, shape := range shapes {
			b.Run(fmt.Sprintf("%s/%dx%d", name, shape[0], shape[1]), func(b *testing.B) {
				call := f(shape[0], shape[1])
				for b.Loop() {
					if err := call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	newtonSchulz := func(plan kernels.NewtonSchulzPlan, pad int, narrow bool) func(rows, cols int) func() error {
		plan.Safety, plan.Steps = 1, [][3]float32{jordan, jordan, jordan, jordan, jordan}
		return func(rows, cols int) func() error {
			src, dst := stackOf(1, rows, cols, pad), stackOf(1, rows, cols, pad)
			if narrow {
				src.Data, dst.Data = inBF16(src.Data), inBF16(dst.Data)
			}
			work := make([]float32, kernels.NewtonSchulzWork(&plan, 1, rows, cols, 1))
			return func() error {
				_, err := kernels.NewtonSchulz(dst, src, &plan, work, 1)
				return err
			}
		}
	}
	each("newton_schulz", newtonSchulz(kernels.NewtonSchulzPlan{}, 0, false))
	each("newton_schulz_bf16", newtonSchulz(kernels.NewtonSchulzPlan{BFloat16: true}, 0, false))
	each("newton_schulz_strided", newtonSchulz(kernels.NewtonSchulzPlan{}, 1, false))
	each("newton_schulz_of_bf16", newtonSchulz(kernels.NewtonSchulzPlan{BFloat16: true}, 0, true))
	each("newton_schulz_parity", newtonSchulz(kernels.NewtonSchulzPlan{BFloat16: true, ParityNorm: true}, 0, true))
	each("gemm", func(rows, cols int) func() error {
		rows, cols = min(rows, cols), max(rows, cols)
		square, wide := matrixOf(rows, rows), matrixOf(rows, cols)
		result := matrixOf(rows, cols)
		return func() error { return kernels.Gemm(result, square, false, wide, false, 1, 0, 1) }
	})
	each("gemm_of_bf16", func(rows, cols int) func() error {
		rows, cols = min(rows, cols), max(rows, cols)
		square, wide := matrixOf(rows, rows), matrixOf(rows, cols)
		square.Data, wide.Data = inBF16(square.Data), inBF16(wide.Data)
		result := matrixOf(rows, cols)
		return func() error { return kernels.Gemm(result, square, false, wide, false, 1, 0, 1) }
	})
	each("syrk", func(rows, cols int) func() error {
		rows, cols = min(rows, cols), max(rows, cols)
		wide, result := matrixOf(rows, cols), matrixOf(rows, rows)
		return func() error { return kernels.Syrk(result, wide, 1, 0, 1) }
	})
}

func matrixOf(rows, cols int) kernels.Matrix {
	return kernels.Matrix{Data: kernels.Float32s(normal(rows*cols, uint64(rows*cols))), Rows: rows, Cols: cols, Stride: cols}
}

func inBF16(x kernels.Floats) kernels.Floats {
	y := make([]bf16.BF16, len(x.F32))
	for i, v := range x.F32 {
		y[i] = bf16.FromFloat32(v)
	}
	return kernels.BF16s(y)
}
