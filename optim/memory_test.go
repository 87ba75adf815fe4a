//go:build !race

package optim_test

// The race detector allocates, and drops at random what pools hold.

import (
	"runtime"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// allocated is how many bytes f allocates, whether they are still used or not.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestMemory: New allocates the bytes that Metrics reports and next to nothing else, and a
// step, the first one too, allocates no float32 copy of a parameter but Muon's of a matrix
// and its workspace.
func TestMemory(t *testing.T) {
	const rows, cols = 128, 2048
	const n = rows * cols
	gradients := b16(n)
	work := kernels.NewtonSchulzWork(&kernels.NewtonSchulzPlan{}, 1, rows, cols)
	for _, test := range []struct {
		name, config string
		perParameter float64 // bytes, without scales and factors
		step         int64   // bytes that the first step may allocate
	}{
		{"float32", `{}`, 8, 0},
		{"optax", `{"variant": "optax"}`, 8, 0},
		{"bfloat16", `{"moments_dtype": "bfloat16"}`, 4, 0},
		{"stochastic", `{"moments_dtype": "bfloat16", "moments_rounding": "stochastic", "weight_rounding": "stochastic"}`, 4, 0},
		{"8-bit", `{"adam_8bit": true}`, 2 + 8./128, 0},
		{"8-bit nesterov", `{"adam_8bit": true, "nesterov": true, "grad_clip_norm": 1}`, 2 + 8./128, 0},
		{"4-bit", `{"adam_4bit": true}`, 0.5 + 4./128, 4 * (2*rows + cols)},
		{"split master", `{"adam_8bit": true, "master": "split"}`, 4 + 8./128, 0},
		{"muon", `{"type": "muon", "lr": 1, "ns_steps": 0}`, 4, 4 * (n + work)},
		{"muon 8-bit", `{"type": "muon", "lr": 1, "ns_steps": 0, "momentum_dtype": "8bit"}`, 1 + 4./128, 4 * (n + work)},
	} {
		param := optim.Param{Name: "w", Shape: []int64{rows, cols}, Weights: b16(n), Gradients: gradients}
		config := parse(t, test.config)
		_, err := optim.New(config, []optim.Param{{Name: "w", Weights: b16(1)}}) // makes the codebooks
		require.NoError(t, err)
		var opt *optim.Optimizer
		held := allocated(func() {
			var err error
			opt, err = optim.New(config, []optim.Param{param})
			require.NoError(t, err)
		})
		reported := opt.Metrics()["state_total_bytes"]
		require.InDelta(t, test.perParameter*n, float64(reported), 4*(rows+cols), test.name)
		require.InDelta(t, float64(reported), float64(held), 32<<10, test.name)
		step := allocated(func() {
			_, err := opt.Step()
			require.NoError(t, err)
		})
		const scratch = n // bytes of the blocks that goroutines work on: a quarter of a copy
		require.InDelta(t, float64(test.step), float64(step), scratch, test.name)
		runtime.KeepAlive(opt)
	}
}

// TestMuonOfAStack: the workspace is that of a batch, not of the stack.
func TestMuonOfAStack(t *testing.T) {
	const count, rows, cols = 256, 2, 8192
	opt, _ := newOptimizer(t, `{"type": "muon", "lr": 1, "ns_steps": 0}`, optim.Param{
		Name: "w", Shape: []int64{count, rows, cols}, Weights: b16(count * rows * cols), Gradients: b16(count * rows * cols),
	})
	step := allocated(func() {
		_, err := opt.Step()
		require.NoError(t, err)
	})
	const batch = 1 << 20 // elements
	work := kernels.NewtonSchulzWork(&kernels.NewtonSchulzPlan{}, batch/(rows*cols), rows, cols)
	require.Less(t, step, 4*(batch+work)+64<<10)
}

// TestStepAllocatesNothing after the first, with gradients in either format.
func TestStepAllocatesNothing(t *testing.T) {
	for name, text := range resumable {
		for _, narrow := range []bool{false, true} {
			if text == resumable["split master"] || text == resumable["muon split"] {
				narrow = true
			}
			opt, params := newOptimizer(t, text, model(narrow)...)
			for i := range params {
				params[i].Gradients = numbers(params[i].Weights.Len(), uint64(i), narrow)
			}
			require.Zero(t, testing.AllocsPerRun(10, func() {
				_, err := opt.Step()
				require.NoError(t, err)
			}), name)
			require.NoError(t, opt.Accumulate())
			require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, opt.Accumulate()) }), name)
		}
	}
}
