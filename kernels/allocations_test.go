//go:build !race

package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

// The race detector makes pools forget what they hold, so this runs without it.
func TestMatrixProductsAllocateNothing(t *testing.T) {
	for _, n := range []int{20, 150} {
		m := func(seed uint64) kernels.Matrix {
			return kernels.Matrix{Data: kernels.Float32s(normal(n*n, seed)), Rows: n, Cols: n, Stride: n}
		}
		a, b, c := m(1), m(2), m(3)
		stack := stackOf(3, n, n, 0)
		groups := []kernels.Stack{stackOf(2, n, 2*n, 0), stackOf(3, n, n, 0), stackOf(1, 1, n, 0)}
		plan := newtonSchulzPlans["standard"]
		work := make([]float32, kernels.NewtonSchulzGroupsWork(&plan, groups))
		for name, call := range map[string]func(){
			"gemm":          func() { _ = kernels.Gemm(c, a, false, b, false, 1, 0) },
			"syrk":          func() { _ = kernels.Syrk(c, a, 1, 0) },
			"newton-schulz": func() { _, _ = kernels.NewtonSchulz(stack, stack, &plan, work) },
			"groups":        func() { _, _ = kernels.NewtonSchulzGroups(groups, groups, &plan, work) },
			"size":          func() { kernels.NewtonSchulzGroupsWork(&plan, groups) },
		} {
			require.Zerof(t, testing.AllocsPerRun(5, call), "%s of %dx%d", name, n, n)
		}
	}
}

// TestHotPathsAllocateNothing covers a call on one goroutine and one that splits.
func TestHotPathsAllocateNothing(t *testing.T) {
	for _, n := range []int{128, 100_000} {
		x, y := normal(n, 1), make([]float32, n)
		narrow := make([]bf16.BF16, n)
		f := kernels.Format{Codebook: codebook.Dynamic8(), Block: 128}
		u := kernels.Format{Codebook: codebook.Dynamic8Unsigned(), Block: 128}
		moment := func(f kernels.Format) kernels.Moment {
			return kernels.Moment{Codes: make([]uint8, f.CodeBytes(n)), Scales: make([]float32, f.Scales(n)), Format: f}
		}
		m, v := moment(f), moment(u)
		tensors := &kernels.AdamWTensors{Weights: kernels.Float32s(y), Gradients: kernels.Float32s(x), M: m, V: v}
		scalars := kernels.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1}.Scalars()
		for name, call := range map[string]func(){
			"quantize":   func() { _, _ = kernels.Quantize(m.Codes, m.Scales, x, f) },
			"dequantize": func() { _ = kernels.Dequantize(y, m.Codes, m.Scales, f) },
			"quantize16": func() { _, _ = kernels.QuantizeBF16(m.Codes, m.Scales, narrow, f) },
			"decode16":   func() { _ = kernels.DequantizeBF16(narrow, m.Codes, m.Scales, f) },
			"float16":    func() { _, _ = kernels.QuantizeFloat16(m.Codes, m.Scales, narrow, f) },
			"to float16": func() { _ = kernels.DequantizeFloat16(narrow, m.Codes, m.Scales, f) },
			"round16":    func() { _ = kernels.RoundFloat16(narrow, x) },
			"widen16":    func() { _ = kernels.WidenFloat16(y, narrow) },
			"round":      func() { _ = kernels.Round(narrow, x) },
			"widen":      func() { _ = kernels.Widen(y, narrow) },
			"absmax":     func() { kernels.Absmax(x) },
			"norm":       func() { kernels.Norm(kernels.Float32s(x)) },
			"adamw":      func() { _, _ = kernels.AdamW(tensors, &scalars) },
		} {
			require.Zerof(t, testing.AllocsPerRun(20, call), "%s of %d elements", name, n)
		}
	}
}

// TestLongBlocksOfHalves: they need no more memory than others.
func TestLongBlocksOfHalves(t *testing.T) {
	const n = 20_001
	for _, half := range halfFormats {
		for _, f := range []kernels.Format{{Codebook: codebook.Dynamic8(), Block: n - 2}, {Codebook: codebook.NF4(), Block: 5001}} {
			x, codes, scales := make([]uint16, n), make([]uint8, f.CodeBytes(n)), make([]float32, f.Scales(n))
			require.Zero(t, testing.AllocsPerRun(20, func() {
				_, _ = half.quantize(codes, scales, x, f)
				_ = half.dequantize(x, codes, scales, f)
			}))
		}
	}
}
