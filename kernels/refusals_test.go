package kernels_test

import (
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

// TestRefusals are arguments that would read or write beyond what they are.
func TestRefusals(t *testing.T) {
	x := make([]float32, 64)
	f32 := kernels.Float32s
	scalars := kernels.AdamWHyper{LR: 1, Step: 1, GradScale: 1}.Scalars()
	eight := kernels.Moment{Codes: make([]uint8, 64), Scales: make([]float32, 2), Format: kernels.Format{Codebook: codebook.Dynamic8(), Block: 32}}
	four := kernels.Moment{Codes: make([]uint8, 32), Scales: make([]float32, 2), Format: kernels.Format{Codebook: codebook.DE4(), Block: 32}}
	factors := kernels.Moment{Row: make([]float32, 8), Col: make([]float32, 8)}
	plan := &kernels.NewtonSchulzPlan{Safety: 1}
	stack := func(count, step int, data []float32) kernels.Stack {
		return kernels.Stack{Data: f32(data), Count: count, Rows: 2, Cols: 2, Stride: 2, Step: step}
	}
	work := make([]float32, kernels.NewtonSchulzWork(plan, 1, 2, 2))
	adamW := func(m, v kernels.Moment, first int64) error {
		_, err := kernels.AdamW(&kernels.AdamWTensors{Weights: f32(make([]float32, 64)), Gradients: f32(x), M: m, V: v, First: first}, &scalars)
		return err
	}
	factored := func(row, col, w []float32) error {
		_, _, err := kernels.AdamWFactored(&kernels.AdamWTensors{Weights: f32(w), Gradients: f32(make([]float32, 64)), M: four}, row, col, &scalars)
		return err
	}
	orthogonalize := func(dst, src kernels.Stack, work []float32) error {
		_, err := kernels.NewtonSchulz(dst, src, plan, work)
		return err
	}
	huge := kernels.Matrix{Data: f32(x[:16]), Rows: math.MaxInt/2 + 2, Cols: 16, Stride: 1 << 30}
	for _, c := range []struct {
		err  error
		want string
	}{
		{adamW(eight, factors, 0), "adamw: a factored second moment needs a first moment of 4-bit codes"},
		{adamW(four, factors, math.MaxInt64), "adamw: 64 elements from 9223372036854775807 on are outside of the 8x8 factors"},
		{adamW(four, factors, -1), "adamw: the first element's position is -1, want 0 or more"},
		{kernels.Stochastic(make([]uint16, 64), x, kernels.Stream{First: -3}), "bf16_stochastic: the first element's position is -3, want 0 or more"},
		{factored(x[:8], x[:8], make([]float32, 64)), "adamw: row factors and column factors overlap, want separate memory"},
		{factored(x[:8], make([]float32, 8), x), "adamw: row factors and weights overlap, want separate memory"},
		{orthogonalize(stack(3, 8, x), stack(3, 4, x), work), "newton_schulz: dst and src overlap, want separate memory"},
		{orthogonalize(stack(1, 4, work), stack(1, 4, x), work), "newton_schulz: work and dst overlap, want separate memory"},
		{orthogonalize(stack(math.MaxInt/4+2, 8, x), stack(math.MaxInt/4+2, 8, x), work), ""},
		{kernels.Gemm(kernels.Matrix{Data: f32(make([]float32, 256)), Rows: 16, Cols: 16, Stride: 16}, huge, true, huge, false, 1, 0), ""},
	} {
		if c.want == "" {
			require.ErrorContains(t, c.err, "which no memory holds")
		} else {
			require.EqualError(t, c.err, c.want)
		}
	}
	require.NoError(t, orthogonalize(stack(3, 4, x), stack(3, 4, x), work))
	require.NoError(t, kernels.Gemm(kernels.Matrix{Data: f32(make([]float32, 4)), Rows: 2, Cols: 2, Stride: 2},
		kernels.Matrix{Data: f32(x[:4]), Rows: 2, Cols: 2, Stride: 2}, false, kernels.Matrix{Data: f32(x[4:8]), Rows: 2, Cols: 2, Stride: 2}, false, 1, 0, kernels.Threads(math.MaxInt)))
}
