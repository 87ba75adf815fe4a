package optim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/golden"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// replay holds the parameters of a golden file while an optimizer steps them.
type replay struct {
	*golden.Set
	names  []string
	params []optim.Param
	opt    *optim.Optimizer
}

func newReplay(t *testing.T, file, config string, names []string, edit func(p *optim.Param)) *replay {
	r := &replay{Set: golden.Open(t, file), names: names}
	parsed, err := optim.ParseConfig([]byte(config))
	require.NoError(t, err)
	for _, name := range names {
		key := "p0." + name
		p := optim.Param{Name: name, Shape: r.Shape(key), Weights: r.floats(key)}
		if edit != nil {
			edit(&p)
		}
		r.params = append(r.params, p)
	}
	r.opt, err = optim.New(parsed, r.params)
	require.NoError(t, err)
	return r
}

// floats reads a tensor in the format it is stored in.
func (r *replay) floats(key string) kernels.Floats {
	if r.DType(key) == "BF16" {
		return kernels.BF16s(r.BF16(key))
	}
	return kernels.Float32s(r.F32(key))
}

func (r *replay) step(t *testing.T, step int) optim.StepResult {
	for i, name := range r.names {
		r.params[i].Gradients = r.floats(fmt.Sprintf("g%d.%s", step, name))
	}
	result, err := r.opt.Step()
	require.NoError(t, err)
	return result
}

func widened(f kernels.Floats) []float32 {
	x := make([]float32, f.Len())
	for i := range x {
		x[i] = f.At(i)
	}
	return x
}

// relative is the largest |a-b| / max(|b|, floor); NaN matches NaN.
func relative(a, b []float32, floor float64) float64 {
	worst := 0.0
	for i := range b {
		if a[i] != a[i] && b[i] != b[i] {
			continue
		}
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if d > 0 || d != d {
			worst = max(worst, d/max(math.Abs(float64(b[i])), floor))
		}
	}
	return worst
}

var goldenNames = []string{"emb", "w", "b"}

// TestAReno8bit replays AReno's 8-bit AdamW: every code and every bf16 weight is equal.
func TestAReno8bit(t *testing.T) {
	for _, dtype := range []string{"bfloat16", "float32"} {
		for _, block := range []int{16, 128} {
			t.Run(fmt.Sprint(dtype, block), func(t *testing.T) {
				config := fmt.Sprintf(`{"lr": 0.01, "weight_decay": 0.01, "adam_8bit": true, "quant_block_size": %d}`, block)
				r := newReplay(t, fmt.Sprintf("areno_adamw8bit_%s_b%d", dtype, block), config, goldenNames, func(p *optim.Param) {
					if p.Name == "emb" {
						p.Role = "token_embedding"
					}
				})
				for step := 1; step <= 6; step++ {
					result := r.step(t, step)
					if step == 4 {
						require.Equal(t, int64(1), result.SkippedBlocks)
					} else {
						require.Zero(t, result.SkippedBlocks)
					}
					for i, name := range r.names {
						want := r.floats(fmt.Sprintf("p%d.%s", step, name))
						if dtype == "bfloat16" {
							require.Equal(t, want.BF16, r.params[i].Weights.BF16, "step %d %s", step, name)
						} else {
							require.Less(t, relative(r.params[i].Weights.F32, want.F32, 1e-3), 2e-6, "step %d %s", step, name)
						}
					}
					r.requireState(t, step, 0, []string{"emb"})
					r.requireState(t, step, 1, []string{"w", "b"})
				}
				var metrics map[string]int64
				require.NoError(t, json.Unmarshal([]byte(r.Meta("metrics")), &metrics))
				for name, bytes := range metrics {
					require.Equal(t, bytes, r.opt.Metrics()["adam8_"+name], name)
				}
			})
		}
	}
}

// requireState compares one of AReno's states, which holds several parameters after one
// another, with ours.
func (r *replay) requireState(t *testing.T, step, state int, names []string) {
	t.Helper()
	for _, moment := range []string{"exp_avg", "exp_avg_sq"} {
		var codes []uint8
		var numbers, scales []float32
		for _, name := range names {
			for _, tensor := range r.opt.State(name) {
				switch tensor.Kind {
				case moment:
					codes, numbers = append(codes, tensor.U8...), append(numbers, tensor.F32...)
				case moment + "_absmax":
					scales = append(scales, tensor.F32...)
				}
			}
		}
		key := fmt.Sprintf("s%d.%d.%s", step, state, moment)
		if codes == nil {
			for i, want := range r.F32(key) {
				require.InDelta(t, want, numbers[i], 1e-7+1e-6*math.Abs(float64(want)), key) // its lerp is fused
			}
			continue
		}
		require.Equal(t, r.U8(key+"_q"), codes, key)
		require.Less(t, relative(scales, r.F32(key+"_scale"), 1e-30), 1e-6, key)
	}
}

// TestAReno4bit replays AReno's 4-bit AdamW: codes are equal, bf16 weights but for a handful.
func TestAReno4bit(t *testing.T) {
	for _, dtype := range []string{"bfloat16", "float32"} {
		for _, block := range []int{32, 128} {
			t.Run(fmt.Sprint(dtype, block), func(t *testing.T) {
				config := fmt.Sprintf(`{"lr": 0.01, "weight_decay": 0.01, "adam_4bit": true, "quant_block_size": %d}`, block)
				r := newReplay(t, fmt.Sprintf("areno_adamw4bit_%s_b%d", dtype, block), config, goldenNames, nil)
				different := 0
				for step := 1; step <= 6; step++ {
					r.step(t, step)
					for i, name := range r.names {
						want := r.floats(fmt.Sprintf("p%d.%s", step, name))
						if dtype == "float32" {
							require.Less(t, relative(r.params[i].Weights.F32, want.F32, 1e-2), 2e-6, "step %d %s", step, name)
							continue
						}
						for k, w := range want.BF16 {
							if w != r.params[i].Weights.BF16[k] {
								different++
							}
						}
					}
					r.requireFourBitState(t, step)
				}
				require.LessOrEqual(t, different, 5)
				var metrics map[string]int64
				require.NoError(t, json.Unmarshal([]byte(r.Meta("metrics")), &metrics))
				for name, bytes := range metrics {
					require.Equal(t, bytes, r.opt.Metrics()["adam4_"+name], name)
				}
			})
		}
	}
}

func (r *replay) requireFourBitState(t *testing.T, step int) {
	t.Helper()
	state := map[string][]float32{}
	codes := map[string][]uint8{}
	for _, name := range r.names {
		for _, tensor := range r.opt.State(name) {
			state[tensor.Kind] = append(state[tensor.Kind], tensor.F32...)
			codes[tensor.Kind] = append(codes[tensor.Kind], tensor.U8...)
		}
	}
	for i, name := range []string{"emb", "w"} {
		var factors []float32
		for _, tensor := range r.opt.State(name) {
			if tensor.Kind == "row" || tensor.Kind == "col" {
				factors = append(factors, tensor.F32...)
			}
		}
		key := fmt.Sprintf("s%d.factored_second_moments.%d", step, i)
		require.Less(t, relative(factors, r.F32(key), 1e-30), 1e-6, key)
	}
	for _, moment := range []string{"exp_avg", "exp_avg_sq"} {
		key := fmt.Sprintf("s%d.0.%s", step, moment)
		require.Equal(t, r.U8(key+"_q"), codes[moment], key)
		require.Less(t, relative(state[moment+"_absmax"], r.F32(key+"_scale"), 1e-30), 1e-6, key)
	}
}

func TestTorchAdamW(t *testing.T) {
	r := newReplay(t, "torch_adamw_float32", `{"lr": 0.01, "weight_decay": 0.01}`, goldenNames, nil)
	for step := 1; step <= 8; step++ {
		r.step(t, step)
		for i, name := range r.names {
			want := r.F32(fmt.Sprintf("p%d.%s", step, name))
			for k, w := range r.params[i].Weights.F32 {
				require.InDelta(t, want[k], w, 1e-8+1e-6*math.Abs(float64(want[k])), "step %d %s", step, name)
			}
			m := r.opt.State(name)[0]
			require.Equal(t, "exp_avg", m.Kind)
			for k, x := range r.F32(fmt.Sprintf("m%d.%s", step, name)) {
				require.InDelta(t, x, m.F32[k], 1e-7+1e-6*math.Abs(float64(x)), "step %d %s", step, name) // its lerp is fused
			}
		}
	}
}

// TestTorchAdamWBFloat16 compares with a system that rounds every operation to bf16, from
// bf16 weights and gradients.
func TestTorchAdamWBFloat16(t *testing.T) {
	r := newReplay(t, "torch_adamw_bfloat16", `{"lr": 0.01, "weight_decay": 0.01, "moments_dtype": "bfloat16"}`, goldenNames, func(p *optim.Param) {
		p.Weights = rounded(p.Weights)
	})
	for step := 1; step <= 8; step++ {
		for i, name := range r.names {
			r.params[i].Gradients = rounded(r.floats(fmt.Sprintf("g%d.%s", step, name)))
		}
		_, err := r.opt.Step()
		require.NoError(t, err)
		for i, name := range r.names {
			want := r.F32(fmt.Sprintf("p%d.%s", step, name))
			for k, w := range widened(r.params[i].Weights) {
				require.InDelta(t, want[k], w, 1e-3+0x1p-6*math.Abs(float64(want[k])), "step %d %s", step, name)
			}
		}
	}
}

func rounded(f kernels.Floats) kernels.Floats {
	narrow := make([]uint16, f.Len())
	for i := range narrow {
		narrow[i] = uint16(bf16.FromFloat32(f.At(i)))
	}
	return kernels.BF16s(narrow)
}

// TestOptaxAdamW is bit for bit in the optax variant and close in the contract's own.
func TestOptaxAdamW(t *testing.T) {
	for _, variant := range []string{"optax", "torch"} {
		r := newReplay(t, "optax_adamw_float32", `{"lr": 0.01, "weight_decay": 0.01, "variant": "`+variant+`"}`, goldenNames, nil)
		for step := 1; step <= 8; step++ {
			r.step(t, step)
			for i, name := range r.names {
				want := r.F32(fmt.Sprintf("p%d.%s", step, name))
				if variant == "optax" {
					require.Equal(t, want, r.params[i].Weights.F32, "step %d %s", step, name)
				}
				for k, w := range r.params[i].Weights.F32 {
					require.InDelta(t, want[k], w, 2e-7+5e-5*math.Abs(float64(want[k])), "step %d %s", step, name)
				}
			}
		}
	}
}

// muonReplay compares each step's parameters, relative to the step's largest change.
func muonReplay(t *testing.T, file, config string, names []string, tolerance float64, edit func(p *optim.Param)) {
	t.Helper()
	r := newReplay(t, file, config, names, edit)
	for step := 1; step <= 5; step++ {
		r.step(t, step)
		for i, name := range r.names {
			before, after := r.F32(fmt.Sprintf("p%d.%s", step-1, name)), r.F32(fmt.Sprintf("p%d.%s", step, name))
			change, off := 0.0, 0.0
			for k := range after {
				change = max(change, math.Abs(float64(after[k])-float64(before[k])))
				off = max(off, math.Abs(float64(after[k])-float64(r.params[i].Weights.F32[k])))
			}
			require.Greater(t, change, 0.0)
			require.LessOrEqual(t, off/change, tolerance, "%s step %d %s", file, step, name)
		}
	}
}

func TestOptaxMuon(t *testing.T) {
	for file, config := range map[string]string{
		"default":  `{}`,
		"plain":    `{"nesterov": false}`,
		"adaptive": `{"adaptive": true}`,
		"dion":     `{"ns_coeffs": "dion"}`,
		"rms02":    `{"consistent_rms": 0.2}`,
		"wd":       `{"weight_decay": 0.1, "beta": 0.9, "ns_steps": 3}`,
	} {
		config = strings.Replace(config, "{", `{"type": "muon", "lr": 0.02, `, 1)
		config = strings.Replace(config, ", }", "}", 1)
		muonReplay(t, "optax_muon_"+file, config, []string{"b", "tall", "w"}, 1e-4, nil)
	}
}

func TestTorchMuon(t *testing.T) {
	for file, options := range map[string]string{
		"original":  ``,
		"plain":     `, "nesterov": false`,
		"match_rms": `, "adjust": "match_rms_adamw", "weight_decay": 0`,
	} {
		for parity, tolerance := range map[bool]float64{true: 5e-3, false: 0.1} {
			config := fmt.Sprintf(`{"type": "muon", "variant": "torch", "lr": 0.02, "parity_norm": %v%s}`, parity, options)
			muonReplay(t, "torch_muon_"+file, config, []string{"tall", "w"}, tolerance, func(p *optim.Param) { p.InputAxis = 1 })
		}
	}
}

func TestTorchClip(t *testing.T) {
	set := golden.Open(t, "torch_clip_grad_norm")
	for i := range 4 {
		var params []optim.Param
		for j := range 3 {
			g := set.F32(fmt.Sprintf("%d.g%d", i, j))
			params = append(params, optim.Param{
				Name: fmt.Sprint(j), Shape: []int64{int64(len(g))},
				Weights: kernels.Float32s(make([]float32, len(g))), Gradients: kernels.Float32s(g),
			})
		}
		opt, err := optim.New(optim.DefaultAdamW(), params)
		require.NoError(t, err)
		norm := float64(set.F32(fmt.Sprintf("%d.norm", i))[0])
		require.InEpsilon(t, norm, opt.GradNorm(), 1e-6)
		c := float32(optim.ClipCoefficient(opt.GradNorm(), float64(set.F32(fmt.Sprintf("%d.max", i))[0])))
		for j, p := range params {
			for k, want := range set.F32(fmt.Sprintf("%d.c%d", i, j)) {
				require.InDelta(t, want, p.Gradients.F32[k]*c, 1e-6*math.Abs(float64(want)))
			}
		}
	}
}
