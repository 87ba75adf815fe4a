package optim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// TestMatricesTogether: matrices of several parameters that are orthogonalised together have
// the bits that each has by itself, poisoned ones beside it included.
func TestMatricesTogether(t *testing.T) {
	defer optim.SmallBatches()()
	shapes := [][]int{{8, 12}, {12, 8}, {8, 12}, {3, 8, 12}, {5, 7}, {8, 12}, {1, 1}, {1, 350}, {12, 8}, {1, 70_000}, {1, 350}, {64}}
	for name, text := range map[string]string{
		"float32":  `{"type": "muon", "lr": 0.02, "weight_decay": 0.1}`,
		"bfloat16": `{"type": "muon", "lr": 0.02, "momentum_dtype": "bfloat16", "weight_rounding": "stochastic"}`,
		"8-bit":    `{"type": "muon", "lr": 0.02, "momentum_dtype": "8bit", "quant_block_size": 64}`,
		"adaptive": `{"type": "muon", "lr": 0.02, "adaptive": true, "nonfinite": "skip"}`,
		"skip":     `{"type": "muon", "lr": 0.02, "nonfinite": "skip"}`,
		"spread":   `{"type": "muon", "lr": 0.02, "nonfinite": "propagate", "ns_dtype": "bfloat16"}`,
	} {
		t.Run(name, func(t *testing.T) {
			all := func() (params []optim.Param) {
				for i, shape := range shapes {
					p := equal(1, true, shape...)[0]
					p.Name = fmt.Sprint("w", i)
					copy(p.Gradients.BF16, numbers(p.Gradients.Len(), uint64(i), true).BF16)
					params = append(params, p)
				}
				return params
			}
			together, alone := all(), all()
			opt, _ := newOptimizer(t, text, together...)
			var each []*optim.Optimizer
			for i := range alone {
				one, _ := newOptimizer(t, text, alone[i])
				each = append(each, one)
			}
			for step := range 3 {
				if step == 1 {
					for _, i := range []int{2, 3, 4, 9} {
						together[i].Gradients.BF16[1] = bf16.FromFloat32(float32(math.NaN()))
						alone[i].Gradients.BF16[1] = together[i].Gradients.BF16[1]
					}
				}
				got, err := opt.Step()
				require.NoError(t, err)
				want := optim.StepResult{Step: got.Step, LR: got.LR, GradNorm: got.GradNorm, Clip: got.Clip}
				for i, one := range each {
					r, err := one.Step()
					require.NoError(t, err)
					want.Add(r.Counts)
					want.Updated += r.Updated
					want.SkippedParameters += r.SkippedParameters
					require.Equal(t, bits(snapshot(one, alone[i:i+1])), bits(snapshot(opt, together[i:i+1])), "w%d, step %d", i, step)
				}
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
			}
		})
	}
}

// bits replaces numbers by their patterns, since a NaN equals nothing.
func bits(all []any) []any {
	for i, list := range all {
		if numbers, ok := list.([]float32); ok {
			patterns := make([]uint32, len(numbers))
			for j, x := range numbers {
				patterns[j] = math.Float32bits(x)
			}
			all[i] = patterns
		}
	}
	return all
}

// BenchmarkMuonStep is a step of 64 matrices: as one stack, as a parameter each, and as
// parameters of which no two have the same shape.
func BenchmarkMuonStep(b *testing.B) {
	const config = `{"type": "muon", "lr": 0.02}`
	b.Run("stack", func(b *testing.B) { benchmarkStep(b, config, equal(1, false, 64, 128, 128)) })
	b.Run("parameters", func(b *testing.B) { benchmarkStep(b, config, equal(64, false, 128, 128)) })
	b.Run("shapes", func(b *testing.B) {
		var params []optim.Param
		for i := range 64 {
			p := equal(1, false, 96+i, 16384/(96+i))[0]
			p.Name = fmt.Sprint("w", i)
			params = append(params, p)
		}
		benchmarkStep(b, config, params)
	})
}

// BenchmarkMuonParts are the parts of such a step: the momentum's direction, Newton-Schulz,
// and the update.
func BenchmarkMuonParts(b *testing.B) {
	const count, rows, cols = 64, 128, 128
	const n = count * rows * cols
	t := kernels.MuonTensors{
		Weights: numbers(n, 1, false), Gradients: numbers(n, 2, false),
		Momentum: kernels.Moment{Floats: numbers(n, 3, false)}, Update: make([]float32, n),
	}
	s := kernels.MuonScalars{OldMomentum: 0.95, NewGradient: 0.05, Divisor: 1, DirectionM: 1, GradScale: 1, Decay: 1, Scale: 1, StepSize: 1e-3}
	triples, safety, err := kernels.Polynomials("jordan", nil, false)
	require.NoError(b, err)
	plan := kernels.PlanNewtonSchulz(triples, safety)
	work := make([]float32, kernels.NewtonSchulzWork(plan, count, rows, cols))
	stack := kernels.Stack{Data: kernels.Float32s(t.Update), Count: count, Rows: rows, Cols: cols, Stride: cols, Step: rows * cols}
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"momentum", func() error { return kernels.MuonDirection(t.Update, &t, &s) }},
		{"newton_schulz", func() error { _, err := kernels.NewtonSchulz(stack, stack, plan, work); return err }},
		{"update", func() error { return kernels.MuonUpdate(&t, &s) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, part.do())
			}
		})
	}
}
