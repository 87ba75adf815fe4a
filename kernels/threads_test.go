package kernels_test

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

// TestNoDoorDependsOnThreads gives each public door several pieces to split.
func TestNoDoorDependsOnThreads(t *testing.T) {
	const n = 100_003
	x, g := normal(n, 1), normal(n, 2)
	narrow := make([]bf16.BF16, n)
	require.NoError(t, kernels.Round(narrow, x))
	coded := func(book *codebook.Codebook, block int) kernels.Moment {
		f := kernels.Format{Codebook: book, Block: block, Nibble: codebook.HighFirst}
		m := kernels.Moment{Codes: make([]uint8, f.CodeBytes(n)), Scales: make([]float32, f.Scales(n)), Format: f}
		_, err := kernels.Quantize(m.Codes, m.Scales, g, f)
		require.NoError(t, err)
		return m
	}
	copied := func(x []float32) kernels.Floats { return kernels.Float32s(append([]float32(nil), x...)) }
	zeros := func() kernels.Floats { return kernels.Float32s(make([]float32, n)) }
	narrowed := func() kernels.Floats { return kernels.BF16s(append([]bf16.BF16(nil), narrow...)) }
	scalars := kernels.AdamWHyper{LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, Step: 2, GradScale: 1}.Scalars()
	scalars.Rounding = kernels.AdamWRounding{StochasticWeights: true, StochasticMoments: true, SeedM: 1, SeedV: 2, SeedW: 3}
	adamW := func(weights, gradients kernels.Floats, m, v kernels.Moment) func(kernels.Threads) any {
		return func(threads kernels.Threads) any {
			t := &kernels.AdamWTensors{Weights: weights, Gradients: gradients, M: m, V: v}
			counts, err := kernels.AdamW(t, &scalars, threads)
			return []any{*t, counts, err}
		}
	}
	muon := &kernels.MuonScalars{GradScale: 1, OldMomentum: 0.9, NewGradient: 0.1, DirectionM: 1, Divisor: 1, Decay: 1, Scale: 1, StepSize: 0.1}
	muon.Rounding = kernels.MuonRounding{StochasticWeights: true, SeedW: 4}

	// Each makes its arrays anew and returns the call.
	for name, door := range map[string]func() func(kernels.Threads) any{
		"stochastic": func() func(kernels.Threads) any {
			dst := make([]bf16.BF16, n)
			return func(threads kernels.Threads) any {
				return []any{kernels.Stochastic(dst, x, kernels.Stream{Seed: 5, First: 3}, threads), dst}
			}
		},
		"round": func() func(kernels.Threads) any {
			dst := make([]bf16.BF16, n)
			return func(threads kernels.Threads) any { return []any{kernels.Round(dst, x, threads), dst} }
		},
		"widen": func() func(kernels.Threads) any {
			dst := make([]float32, n)
			return func(threads kernels.Threads) any { return []any{kernels.Widen(dst, narrow, threads), dst} }
		},
		"round to float16": func() func(kernels.Threads) any {
			dst := make([]uint16, n)
			return func(threads kernels.Threads) any { return []any{kernels.RoundFloat16(dst, x, threads), dst} }
		},
		"widen float16": func() func(kernels.Threads) any {
			dst := make([]float32, n)
			return func(threads kernels.Threads) any { return []any{kernels.WidenFloat16(dst, narrow, threads), dst} }
		},
		"scale": func() func(kernels.Threads) any {
			y := copied(x)
			return func(threads kernels.Threads) any { kernels.Scale(y, 0.3, threads); return y }
		},
		"accumulate": func() func(kernels.Threads) any {
			y := narrowed()
			return func(threads kernels.Threads) any {
				return []any{kernels.Accumulate(y, kernels.Float32s(g), threads), y}
			}
		},
		"adamw float32": func() func(kernels.Threads) any {
			return adamW(copied(x), copied(g), kernels.Moment{Floats: zeros()}, kernels.Moment{Floats: zeros()})
		},
		"adamw bfloat16": func() func(kernels.Threads) any {
			return adamW(narrowed(), narrowed(), kernels.Moment{Floats: narrowed()}, kernels.Moment{Floats: narrowed()})
		},
		"adamw 8bit": func() func(kernels.Threads) any {
			return adamW(narrowed(), copied(g), coded(codebook.Dynamic8(), 100), coded(codebook.Dynamic8Unsigned(), 100))
		},
		"adamw 4bit": func() func(kernels.Threads) any {
			return adamW(copied(x), narrowed(), coded(codebook.DE4(), 33), coded(codebook.Linear4(), 33))
		},
		"adamw factored": func() func(kernels.Threads) any {
			const rows, cols = 1000, 100
			m := coded(codebook.DE4(), 128).Slice(0, rows*cols)
			t := &kernels.AdamWTensors{Weights: copied(x[:rows*cols]), Gradients: copied(g[:rows*cols]), M: m}
			row, col := make([]float32, rows), make([]float32, cols)
			return func(threads kernels.Threads) any {
				counts, skipped, err := kernels.AdamWFactored(t, row, col, &scalars, threads)
				return []any{*t, row, col, counts, skipped, err}
			}
		},
		"muon": func() func(kernels.Threads) any {
			t := &kernels.MuonTensors{Weights: narrowed(), Gradients: copied(g), Momentum: coded(codebook.Dynamic8(), 100), Update: copied(x).F32}
			direction := make([]float32, n)
			return func(threads kernels.Threads) any {
				return []any{kernels.MuonDirection(direction, t, muon, threads), kernels.MuonUpdate(t, muon, threads), *t, direction}
			}
		},
	} {
		want := door()(1)
		for _, threads := range []kernels.Threads{2, 3, 7} {
			require.Equal(t, want, door()(threads), fmt.Sprintf("%s with %d threads", name, threads))
		}
	}

	for _, book := range codebook.All() {
		for _, block := range []int{33, 128, 50_001} {
			want := coded(book, block)
			for _, threads := range []kernels.Threads{1, 3} {
				got := coded(book, block)
				clear(got.Codes)
				_, err := kernels.Quantize(got.Codes, got.Scales, g, got.Format, threads)
				require.NoError(t, err)
				require.Equal(t, want, got)
				y, z := make([]float32, n), make([]float32, n)
				require.NoError(t, kernels.Dequantize(y, got.Codes, got.Scales, got.Format, threads))
				require.NoError(t, kernels.Dequantize(z, got.Codes, got.Scales, got.Format))
				require.Equal(t, z, y)
			}
		}
	}
}
