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

// plain is AdamW as a textbook writes it, in the order of operations of the contract.
type plain struct {
	w, m, v []float32
	step    int
}

func newPlain(w []float32) *plain {
	return &plain{w: append([]float32{}, w...), m: make([]float32, len(w)), v: make([]float32, len(w))}
}

const lr, beta1, beta2, eps = 0.01, 0.9, 0.999, 1e-8

func power(b float64, t int) float64 {
	p := 1.0
	for ; t > 0; t >>= 1 {
		if t&1 == 1 {
			p *= b
		}
		b *= b
	}
	return p
}

func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// moments of element i; each product is rounded before it is added.
func (p *plain) moments(i int, g float32) {
	p.m[i] = float32(float32(beta1)*p.m[i]) + float32(float32(1-beta1)*g)
	p.v[i] = float32(float32(beta2)*p.v[i]) + float32(float32(float32(1-beta2)*g)*g)
}

func (p *plain) adamW(g []float32, lr, decay float64) {
	p.step++
	c1, c2 := 1-power(beta1, p.step), float32(math.Sqrt(1-power(beta2, p.step)))
	for i := range p.w {
		p.moments(i, g[i])
		w := float32(p.w[i] * float32(1-float64(lr*decay)))
		p.w[i] = w - float32(float32(lr/c1)*p.m[i])/(root(p.v[i])/c2+float32(eps))
	}
}

func (p *plain) nAdamW(g []float32, lr, decay float64) {
	p.step++
	c1, next, c2 := 1-power(beta1, p.step), 1-power(beta1, p.step+1), float32(math.Sqrt(1-power(beta2, p.step)))
	for i := range p.w {
		p.moments(i, g[i])
		w := float32(p.w[i] * float32(1-float64(lr*decay)))
		ahead := float32(float32(beta1/next)*p.m[i]) + float32(float32((1-beta1)/c1)*g[i])
		p.w[i] = w - float32(float32(lr)*ahead)/(root(p.v[i])/c2+float32(eps))
	}
}

func (p *plain) optax(g []float32, lr, decay float64) {
	p.step++
	c1 := 1 - float32(power(float64(float32(beta1)), p.step))
	c2 := 1 - float32(power(float64(float32(beta2)), p.step))
	for i := range p.w {
		p.m[i] = float32(float32(beta1)*p.m[i]) + float32(float32(1-beta1)*g[i])
		p.v[i] = float32(float32(beta2)*p.v[i]) + float32(float32(1-beta2)*float32(g[i]*g[i]))
		u := (p.m[i] / c1) / (root(p.v[i]/c2) + float32(eps))
		p.w[i] -= float32(float32(lr) * (u + float32(float32(decay)*p.w[i])))
	}
}

// TestFloat32IsThePlainLoop: the default and its variants are the loops above bit for bit,
// with any schedule, clipped or not, whatever the formats of weights and gradients.
func TestFloat32IsThePlainLoop(t *testing.T) {
	const n, steps = 1000, 12
	for options, rule := range map[string]func(p *plain, g []float32, lr, decay float64){
		``:                     (*plain).adamW,
		`, "nesterov": true`:   (*plain).nAdamW,
		`, "variant": "optax"`: (*plain).optax,
	} {
		for _, schedule := range []string{`0.01`, `{"type": "linear", "peak": 0.01, "warmup": 3, "total": 10}`} {
			for _, narrow := range []bool{false, true} {
				text := fmt.Sprintf(`{"lr": %s, "weight_decay": 0.1%s}`, schedule, options)
				config := parse(t, text)
				opt, params := newOptimizer(t, text, optim.Param{Name: "w", Shape: []int64{n}, Weights: numbers(n, 1, narrow)})
				p := newPlain(widened(params[0].Weights))
				for step := range steps {
					params[0].Gradients = numbers(n, uint64(100+step), narrow)
					r, err := opt.Step()
					require.NoError(t, err)
					// The first update takes the schedule's value of 0.
					rate := config.(optim.AdamWConfig).LR.At(int64(step))
					require.Equal(t, rate, r.LR)
					require.Equal(t, int64(step+1), r.Step)
					rule(p, widened(params[0].Gradients), rate, 0.1)
					for i, w := range p.w {
						if narrow {
							p.w[i] = bf16.FromFloat32(w).Float32()
						}
					}
					require.Equal(t, p.w, widened(params[0].Weights), "%s step %d", text, step)
				}
				require.Equal(t, p.m, opt.State("w")[0].F32)
				require.Equal(t, p.v, opt.State("w")[1].F32)
			}
		}
	}
}

// TestScheduleGoesOnAfterLoad: the position is part of a checkpoint.
func TestScheduleGoesOnAfterLoad(t *testing.T) {
	const text = `{"lr": {"type": "cosine", "peak": 1, "floor": 0.25, "warmup": 3, "total": 8}}`
	schedule := parse(t, text).(optim.AdamWConfig).LR
	w := optim.Param{Name: "w", Shape: []int64{2}, Weights: f32(2), Gradients: f32(2)}
	for at := range int64(10) {
		opt, _ := newOptimizer(t, text, w)
		for step := range at {
			r, err := opt.Step()
			require.NoError(t, err)
			require.Equal(t, schedule.At(step), r.LR)
		}
		again, _ := newOptimizer(t, text, w)
		_, err := again.Load(saved(t, opt, optim.SaveOptions{}))
		require.NoError(t, err)
		r, err := again.Step()
		require.NoError(t, err)
		require.Equal(t, schedule.At(at), r.LR)
	}
}

// TestClipping scales by the global norm of all gradients, in either format.
func TestClipping(t *testing.T) {
	a, b := kernels.Float32s([]float32{3, 0, 0}), kernels.BF16s([]bf16.BF16{bf16.FromFloat32(4)})
	opt, params := newOptimizer(t, `{"lr": 0.01, "grad_clip_norm": 0.5}`,
		optim.Param{Name: "a", Shape: []int64{3}, Weights: numbers(3, 1, false), Gradients: a},
		optim.Param{Name: "b", Weights: numbers(1, 2, false), Gradients: b},
		optim.Param{Name: "c", Weights: numbers(1, 2, false)})
	p := newPlain(params[0].Weights.F32)
	r, err := opt.Step()
	require.NoError(t, err)
	require.Equal(t, 5.0, r.GradNorm)
	require.Equal(t, 0.5/(5+1e-6), r.Clip)
	require.False(t, r.Skipped)
	c := float32(r.Clip)
	p.adamW([]float32{3 * c, 0, 0}, lr, 0)
	require.Equal(t, p.w, params[0].Weights.F32)
	require.Equal(t, []float32{3, 0, 0}, a.F32, "gradients are only read")

	params[0].Gradients, params[1].Gradients = kernels.Float32s([]float32{0.3, 0, 0}), kernels.Floats{}
	r, err = opt.Step()
	require.NoError(t, err)
	require.Equal(t, float64(float32(0.3)), r.GradNorm)
	require.Equal(t, 1.0, r.Clip)

	opt, _ = newOptimizer(t, `{}`, optim.Param{Name: "w", Weights: f32(1), Gradients: f32(1)})
	r, err = opt.Step()
	require.NoError(t, err)
	require.True(t, math.IsNaN(r.GradNorm))
	require.Equal(t, 1.0, r.Clip)
}

// TestANormThatIsNotFiniteSkipsTheStep for every configuration: the state stays, and the
// step does not count.
func TestANormThatIsNotFiniteSkipsTheStep(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, text := range []string{
			`{"grad_clip_norm": 1}`, `{"grad_clip_norm": 1, "adam_8bit": true}`, `{"grad_clip_norm": 1, "adam_4bit": true}`,
			`{"grad_clip_norm": 1, "moments_dtype": "bfloat16", "nonfinite": "skip"}`, `{"type": "muon", "lr": 1, "grad_clip_norm": 1}`,
		} {
			opt, params := small(t, text, 2, nil)
			before := snapshot(opt, params)
			good := params[1].Gradients.F32[3]
			params[1].Gradients.F32[3] = bad
			require.NoError(t, opt.Accumulate())
			r, err := opt.Step()
			require.NoError(t, err)
			require.True(t, r.Skipped)
			require.False(t, r.GradNorm-r.GradNorm == 0)
			require.Zero(t, r.Counts)
			require.Equal(t, before, snapshot(opt, params))
			require.Equal(t, int64(2), opt.Steps())

			// The sums are dropped too.
			params[1].Gradients.F32[3] = good
			r, err = opt.Step()
			require.NoError(t, err)
			require.False(t, r.Skipped)
			require.Equal(t, int64(3), r.Step)
		}
	}
}

// TestAccumulate sums micro-batches in bf16, and steps with the sums.
func TestAccumulate(t *testing.T) {
	const n, batches = 100, 5
	for _, narrow := range []bool{false, true} {
		for _, text := range []string{`{"grad_clip_norm": 1}`, `{"adam_4bit": true, "quant_block_size": 32}`, `{"type": "muon", "lr": 1}`} {
			param := func() optim.Param {
				return optim.Param{Name: "w", Shape: []int64{4, n / 4}, Weights: numbers(n, 1, false)}
			}
			opt, params := newOptimizer(t, text, param(), optim.Param{Name: "rest", Weights: f32(1)})
			manual, manualParams := newOptimizer(t, text, param(), optim.Param{Name: "rest", Weights: f32(1)})
			for step := range 3 {
				sums := make([]bf16.BF16, n)
				for batch := range batches {
					g := numbers(n, uint64(1000*step+batch), narrow)
					for i := range sums {
						sums[i] = bf16.FromFloat32(sums[i].Float32() + g.At(i))
					}
					params[0].Gradients = g
					require.NoError(t, opt.Accumulate())
				}
				manualParams[0].Gradients = kernels.BF16s(sums)
				require.Equal(t, manual.GradNorm(), opt.GradNorm())
				want, err := manual.Step()
				require.NoError(t, err)
				got, err := opt.Step()
				require.NoError(t, err)
				if !math.IsNaN(want.GradNorm) {
					require.Equal(t, want, got)
				}
				require.Equal(t, snapshot(manual, manualParams), snapshot(opt, params))
			}
			// Without Accumulate a step takes the gradients as they are again.
			params[0].Gradients, manualParams[0].Gradients = numbers(n, 7, narrow), numbers(n, 7, narrow)
			for _, o := range []*optim.Optimizer{opt, manual} {
				_, err := o.Step()
				require.NoError(t, err)
			}
			require.Equal(t, snapshot(manual, manualParams), snapshot(opt, params))
		}
	}
}

// TestZeroGradients give zeros and no 0/0 whatever eps is.
func TestZeroGradients(t *testing.T) {
	for _, small := range []string{"1e-45", "1e-8"} {
		for _, options := range []string{``, `, "variant": "optax"`, `, "nesterov": true`, `, "adam_8bit": true`, `, "adam_4bit": true`, `, "moments_dtype": "bfloat16"`} {
			for _, shape := range [][]int64{{6}, {2, 3}} {
				opt, params := newOptimizer(t, `{"eps": `+small+options+`}`,
					optim.Param{Name: "w", Shape: shape, Weights: kernels.Float32s([]float32{1, -1, 0, 2, 3, 4}), Gradients: f32(6)})
				for range 3 {
					r, err := opt.Step()
					require.NoError(t, err)
					require.Zero(t, r.Counts)
				}
				require.Equal(t, []float32{1, -1, 0, 2, 3, 4}, params[0].Weights.F32)
			}
		}
	}
}

// TestBeta2IsNotRoundedToTheMoments: 0.999 would be 1 in bf16, and v would never grow.
func TestBeta2IsNotRoundedToTheMoments(t *testing.T) {
	opt, params := newOptimizer(t, `{"moments_dtype": "bfloat16"}`, optim.Param{Name: "w", Weights: b16(1)})
	params[0].Gradients = kernels.BF16s([]uint16{0x3f80})
	_, err := opt.Step()
	require.NoError(t, err)
	require.Equal(t, bf16.FromFloat32(0.001), opt.State("w")[1].BF16[0])
}

// TestThePrecisionFollowsFromTheWholeParameter: bitsandbytes keeps float32 moments below
// 4096 elements; here the size says nothing.
func TestThePrecisionFollowsFromTheWholeParameter(t *testing.T) {
	for _, n := range []int{1, 4095, 4096, 4100} {
		opt, _ := newOptimizer(t, `{"adam_8bit": true}`, optim.Param{Name: "w", Shape: []int64{int64(n)}, Weights: f32(n)})
		require.Equal(t, []string{"exp_avg", "exp_avg_absmax", "exp_avg_sq", "exp_avg_sq_absmax"}, kinds(opt.State("w")))
	}
}
