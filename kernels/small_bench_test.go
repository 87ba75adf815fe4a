package kernels_test

import (
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

// BenchmarkSmall is what a call costs that has little to do.
func BenchmarkSmall(b *testing.B) {
	const n = 64
	x, y, narrow := normal(n, 1), normal(n, 2), make([]bf16.BF16, n)
	sums := kernels.Float32s(normal(n, 3))
	scalars := &kernels.MuonScalars{GradScale: 1, OldMomentum: 0.9, NewGradient: 0.1, DirectionM: 1, Divisor: 1, Decay: 1, Scale: 1}
	t := &kernels.MuonTensors{
		Weights: kernels.Float32s(normal(n, 4)), Gradients: kernels.Float32s(x), Momentum: kernels.Moment{Floats: kernels.Float32s(normal(n, 5))}, Update: y,
	}
	for _, c := range []struct {
		name string
		call func()
	}{
		{"round", func() { _ = kernels.Round(narrow, x) }},
		{"widen", func() { _ = kernels.Widen(y, narrow) }},
		{"stochastic", func() { _ = kernels.Stochastic(narrow, x, kernels.Stream{Seed: 1}) }},
		{"scale", func() { kernels.Scale(sums, 1) }},
		{"absmax", func() { kernels.Absmax(x) }},
		{"norm", func() { kernels.Norm(sums) }},
		{"dot", func() { _, _ = kernels.Dot(x, x) }},
		{"accumulate", func() { _ = kernels.Accumulate(sums, kernels.Float32s(x)) }},
		{"muon-update", func() { _ = kernels.MuonUpdate(t, scalars) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.call()
			}
		})
	}
}
