package optim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// resumable are the configurations that resume bit for bit.
var resumable = map[string]string{
	"float32":          `{"weight_decay": 0.01, "grad_clip_norm": 1}`,
	"optax nesterov":   `{"variant": "optax", "nesterov": true}`,
	"bfloat16":         `{"moments_dtype": "bfloat16", "betas": [0.9, 0.99]}`,
	"stochastic":       `{"moments_dtype": "bfloat16", "moments_rounding": "stochastic", "weight_rounding": "stochastic", "seed": 7}`,
	"8-bit":            `{"adam_8bit": true, "quant_block_size": 16}`,
	"8-bit headroom":   `{"adam_8bit": true, "headroom": true}`,
	"8-bit scheduled":  `{"adam_8bit": true, "lr": {"type": "cosine", "peak": 0.01, "warmup": 2, "total": 9}}`,
	"4-bit":            `{"adam_4bit": true, "quant_block_size": 32}`,
	"split master":     `{"adam_8bit": true, "master": "split"}`,
	"muon":             `{"type": "muon", "lr": 0.02, "weight_decay": 0.1}`,
	"muon 8-bit":       `{"type": "muon", "lr": 0.02, "momentum_dtype": "8bit", "quant_block_size": 64}`,
	"muon linear8":     `{"type": "muon", "lr": 0.02, "momentum_dtype": "linear8"}`,
	"muon bfloat16":    `{"type": "muon", "lr": 0.02, "momentum_dtype": "bfloat16", "ns_dtype": "bfloat16"}`,
	"muon split":       `{"type": "muon", "lr": 0.02, "master": "split", "adaptive": true}`,
	"muon torch":       `{"type": "muon", "variant": "torch", "parity_norm": true}`,
	"muon groups":      `{"type": "muon", "lr": 0.02, "param_groups": [{"params": ["emb*"], "optimizer": "adamw"}]}`,
	"8-bit with group": `{"adam_8bit": true, "param_groups": [{"params": ["w"], "state_precision": "fp32", "lr_scale": 0.5}]}`,
}

// model makes parameters of every role, in float32 or bf16.
func model(narrow bool) []optim.Param {
	var params []optim.Param
	for i, p := range []optim.Param{
		{Name: "embedding", Shape: []int64{19, 8}, Role: "token_embedding"},
		{Name: "w", Shape: []int64{12, 21}},
		{Name: "stack", Shape: []int64{3, 6, 9}},
		{Name: "conv", Shape: []int64{5, 2, 3, 3}, Role: "conv"},
		{Name: "gain", Shape: []int64{37}},
		{Name: "scalar"},
	} {
		n := int64(1)
		for _, size := range p.Shape {
			n *= size
		}
		p.Weights = numbers(int(n), uint64(i), narrow)
		params = append(params, p)
	}
	return params
}

func numbers(n int, seed uint64, narrow bool) kernels.Floats {
	rng := rand.New(rand.NewPCG(seed, 3))
	f32, b16 := make([]float32, n), make([]bf16.BF16, n)
	for i := range f32 {
		f32[i] = float32(rng.NormFloat64())
		b16[i] = bf16.FromFloat32(f32[i])
	}
	if narrow {
		return kernels.BF16s(b16)
	}
	return kernels.Float32s(f32)
}

func train(t *testing.T, opt *optim.Optimizer, params []optim.Param, from, to int, narrow bool) {
	t.Helper()
	for step := from; step < to; step++ {
		for i := range params {
			params[i].Gradients = numbers(params[i].Weights.Len(), uint64(1000+100*step+i), narrow)
		}
		_, err := opt.Step()
		require.NoError(t, err)
	}
}

// TestResumeGivesTheSameBits saves after three steps and continues to six, against six
// steps at a stretch.
func TestResumeGivesTheSameBits(t *testing.T) {
	for name, text := range resumable {
		for _, narrow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " bf16 ", narrow), func(t *testing.T) {
				config, err := optim.ParseConfig([]byte(text))
				require.NoError(t, err)
				params := model(narrow)
				opt, err := optim.New(config, params)
				if err != nil {
					require.ErrorContains(t, err, "master: got split, want none where no parameter has bf16 weights")
					require.False(t, narrow)
					return
				}
				train(t, opt, params, 0, 3, narrow)
				path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
				require.NoError(t, opt.Save(path, optim.SaveOptions{Weights: true, Metadata: map[string]string{"mine": "1"}}))
				train(t, opt, params, 3, 6, narrow)

				resumedParams := model(narrow)
				resumed, err := optim.New(config, resumedParams)
				require.NoError(t, err)
				metadata, err := resumed.Load(path)
				require.NoError(t, err)
				require.Equal(t, map[string]string{"mine": "1"}, metadata)
				require.Equal(t, int64(3), resumed.Steps())
				train(t, resumed, resumedParams, 3, 6, narrow)
				for i, p := range params {
					require.Equal(t, p.Weights, resumedParams[i].Weights, p.Name)
					require.Equal(t, opt.State(p.Name), resumed.State(p.Name), p.Name)
				}
				require.Equal(t, opt.Metrics(), resumed.Metrics())
			})
		}
	}
}

// TestAnotherFileIsReplaced: what Save writes replaces a file of any kind, and a failed
// Save leaves it.
func TestAnotherFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, os.WriteFile(path, []byte("notes"), 0o666))
	opt, params := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{3}, Weights: f32(3), Gradients: f32(3)})
	require.Error(t, opt.Save(path, optim.SaveOptions{Metadata: map[string]string{"\xff": ""}}))
	notes, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "notes", string(notes))
	for range 2 {
		params[0].Weights.F32[1]++
		_, err := opt.Step()
		require.NoError(t, err)
		require.NoError(t, opt.Save(path, optim.SaveOptions{Weights: true}))
	}
	again, params := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{3}, Weights: f32(3)})
	_, err = again.Load(path)
	require.NoError(t, err)
	require.Equal(t, []float32{0, 2, 0}, params[0].Weights.F32)
	require.Equal(t, int64(2), again.Steps())
}

// TestWeightsAreOptional: without them Load leaves the weights alone.
func TestWeightsAreOptional(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		opt, params := newOptimizer(t, `{"adam_8bit": true}`, model(narrow)...)
		train(t, opt, params, 0, 2, narrow)
		path := filepath.Join(t.TempDir(), "checkpoint")
		require.NoError(t, opt.Save(path, optim.SaveOptions{}))
		f, err := tensorfile.Open(path)
		require.NoError(t, err)
		for _, tensor := range f.Tensors {
			require.NotContains(t, tensor.Name, "weight/")
		}
		require.NoError(t, f.Close())
		again, otherParams := newOptimizer(t, `{"adam_8bit": true}`, model(narrow)...)
		metadata, err := again.Load(path)
		require.NoError(t, err)
		require.Empty(t, metadata)
		for i, p := range model(narrow) {
			require.Equal(t, p.Weights, otherParams[i].Weights)
			require.Equal(t, opt.State(p.Name), again.State(p.Name))
		}

		require.NoError(t, opt.Save(path, optim.SaveOptions{Weights: true}))
		f, err = tensorfile.Open(path)
		require.NoError(t, err)
		defer f.Close()
		for _, p := range params {
			tensor, ok := f.Tensor("weight/" + p.Name)
			require.True(t, ok)
			require.Equal(t, map[bool]tensorfile.DType{false: "F32", true: "BF16"}[narrow], tensor.DType)
			require.Equal(t, append([]int64{}, p.Shape...), tensor.Shape)
		}
	}
}

// TestStatesAreNotCastToTheWeights: the moments keep their format beside bf16 weights.
func TestStatesAreNotCastToTheWeights(t *testing.T) {
	opt, params := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{2}, Weights: b16(2)})
	params[0].Gradients = kernels.Float32s([]float32{1.2345678, 3e-30})
	_, err := opt.Step()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, opt.Save(path, optim.SaveOptions{}))
	again, _ := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{2}, Weights: b16(2)})
	_, err = again.Load(path)
	require.NoError(t, err)
	m := again.State("w")[0]
	require.Equal(t, opt.State("w")[0], m)
	require.NotEqual(t, m.F32[0], bf16.FromFloat32(m.F32[0]).Float32())
}

// TestBigStepCounters resumes at a step beyond float64's integers.
func TestBigStepCounters(t *testing.T) {
	const step = 1<<53 + 1
	for _, text := range []string{
		`{"adam_8bit": true, "nesterov": true, "lr": {"type": "constant", "peak": 0.5, "warmup": 9007199254740996}}`,
		`{"moments_dtype": "bfloat16", "moments_rounding": "stochastic", "weight_rounding": "stochastic"}`,
		`{"type": "muon", "lr": 0.5}`,
	} {
		opt, _ := newOptimizer(t, text, model(true)...)
		path := filepath.Join(t.TempDir(), "checkpoint")
		opt.SetSteps(step)
		require.NoError(t, opt.Save(path, optim.SaveOptions{}))
		again, params := newOptimizer(t, text, model(true)...)
		_, err := again.Load(path)
		require.NoError(t, err)
		require.Equal(t, int64(step), again.Steps())
		for i, p := range params {
			params[i].Gradients = numbers(p.Weights.Len(), 1, true)
		}
		r, err := again.Step()
		require.NoError(t, err)
		require.Equal(t, int64(step+1), r.Step)
		require.Zero(t, r.NonFinite)
		require.Positive(t, r.LR)
		require.Less(t, r.LR, 0.5+1e-9)
	}
}

// FuzzLoad: no file makes Load panic, and one that it refuses changes nothing.
func FuzzLoad(f *testing.F) {
	var optimizers []*optim.Optimizer
	var models [][]optim.Param
	for _, text := range []string{`{}`, `{"adam_8bit": true, "quant_block_size": 4}`, `{"type": "muon", "lr": 1}`} {
		opt, params := small(f, text, 1, nil)
		content, err := os.ReadFile(saved(f, opt, optim.SaveOptions{Weights: true, Metadata: map[string]string{"a": "b"}}))
		require.NoError(f, err)
		f.Add(content)
		optimizers, models = append(optimizers, opt), append(models, params)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for i, opt := range optimizers {
			before := snapshot(opt, models[i])
			metadata, err := opt.LoadBytes(content)
			if err != nil {
				require.Nil(t, metadata)
				require.Equal(t, before, snapshot(opt, models[i]))
				require.Less(t, len(err.Error()), 2000)
				continue
			}
			_, err = opt.Step()
			require.NoError(t, err)
		}
	})
}
