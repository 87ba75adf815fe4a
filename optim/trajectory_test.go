package optim_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// A problem gives the gradient at w of a step.
type problem func(step int, w []float32) []float32

const problemSize = 256

var problems = map[string]func() problem{
	// A logistic regression on noisy examples.
	"logistic": func() problem {
		const examples = 256
		rng := rand.New(rand.NewPCG(1, 1))
		x, y := make([]float64, examples*problemSize), make([]float64, examples)
		for e := range examples {
			margin := 0.0
			for i := range problemSize {
				x[e*problemSize+i] = rng.NormFloat64()
				margin += x[e*problemSize+i] * math.Sin(float64(i))
			}
			y[e] = math.Copysign(1, margin+rng.NormFloat64())
		}
		return func(_ int, w []float32) []float32 {
			sum := make([]float64, problemSize)
			for e := range examples {
				row, margin := x[e*problemSize:(e+1)*problemSize], 0.0
				for i, v := range row {
					margin += v * float64(w[i])
				}
				slope := -y[e] / (1 + math.Exp(y[e]*margin))
				for i, v := range row {
					sum[i] += slope * v
				}
			}
			g := make([]float32, problemSize)
			for i := range g {
				g[i] = float32(sum[i] / examples)
			}
			return g
		}
	},
	// A quadratic under noise with a Cauchy distribution.
	"heavy tails": func() problem {
		rng := rand.New(rand.NewPCG(2, 2))
		return func(_ int, w []float32) []float32 {
			g := make([]float32, problemSize)
			for i := range g {
				noise := max(-1000, min(math.Tan(math.Pi*(rng.Float64()-0.5)), 1000))
				g[i] = w[i] - float32(math.Sin(float64(i))) + float32(0.1*noise)
			}
			return g
		}
	},
	// Gradients of one direction, which fall a hundredfold.
	"falling": func() problem {
		rng := rand.New(rand.NewPCG(3, 3))
		return func(step int, _ []float32) []float32 {
			g := make([]float32, problemSize)
			for i := range g {
				g[i] = 0.75 + 0.5*rng.Float32()
				if step >= 100 {
					g[i] /= 100
				}
			}
			return g
		}
	},
}

// follow returns the weights and the second moments after some steps.
func follow(t *testing.T, options, name string, steps int) (w, v []float64) {
	t.Helper()
	opt, params := newOptimizer(t, `{"lr": 0.001, "quant_block_size": 128`+options+`}`,
		optim.Param{Name: "w", Shape: []int64{problemSize}, Weights: f32(problemSize)})
	gradient := problems[name]()
	for step := range steps {
		params[0].Gradients = kernels.Float32s(gradient(step, params[0].Weights.F32))
		_, err := opt.Step()
		require.NoError(t, err)
	}
	for i, x := range params[0].Weights.F32 {
		w, v = append(w, float64(x)), append(v, float64(secondMoment(opt).At(i)))
	}
	return w, v
}

// secondMoment puts the pieces of a state together.
func secondMoment(opt *optim.Optimizer) (m kernels.Moment) {
	m.Format.Block = 128
	for _, tensor := range opt.State("w") {
		switch tensor.Kind {
		case "exp_avg_sq":
			m.F32, m.BF16, m.Codes = tensor.F32, tensor.BF16, tensor.U8
		case "exp_avg_sq_absmax":
			m.Scales = tensor.F32
		}
	}
	switch len(m.Codes) {
	case problemSize:
		m.Format.Codebook = codebook.Dynamic8Unsigned()
	case problemSize / 2:
		m.Format.Codebook = codebook.Linear4()
	}
	return m
}

func norm(x []float64) (n float64) {
	for _, v := range x {
		n = math.Hypot(n, v)
	}
	return n
}

func difference(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

// ratchet is how far above float32's a second moment in nearest bf16 ends, which cannot
// fall where b2 is 0.999.
var ratchet = map[string][2]float64{"logistic": {1.05, 1.5}, "heavy tails": {1.5, 4}, "falling": {5, 10}}

// TestTrajectories: with each storage the weights stay by those of float32 moments, but
// where a second moment in nearest bf16 cannot fall.
func TestTrajectories(t *testing.T) {
	for name, steps := range map[string]int{"logistic": 600, "heavy tails": 2000, "falling": 2000} {
		exactW, exactV := follow(t, ``, name, steps)
		for _, test := range []struct {
			name, options string
			near          float64    // weights, relative to the way that float32's went
			moment        [2]float64 // second moment, relative to float32's
		}{
			{"stochastic", `, "moments_dtype": "bfloat16", "moments_rounding": "stochastic"`, 0.03, [2]float64{0.95, 1.05}},
			{"8-bit", `, "adam_8bit": true`, 0.2, [2]float64{0.9, 1.1}},
			{"8-bit with headroom", `, "adam_8bit": true, "headroom": true`, 0.2, [2]float64{0.9, 1.1}},
			{"4-bit", `, "adam_4bit": true`, 0.75, [2]float64{0.8, 1.25}},
			{"nearest", `, "moments_dtype": "bfloat16"`, 0.3, ratchet[name]},
		} {
			w, v := follow(t, test.options, name, steps)
			off := norm(difference(w, exactW)) / norm(exactW)
			ratio := norm(v) / norm(exactV)
			require.Less(t, off, test.near, "%s, %s", name, test.name)
			require.Greater(t, ratio, test.moment[0], "%s, %s", name, test.name)
			require.Less(t, ratio, test.moment[1], "%s, %s", name, test.name)
		}
	}
}

// TestNearestLosesSmallDecay: lr*weight_decay = 1e-6 never moves a bf16 weight to the next
// one, moves it at random so that the mean is right, and stays in a split master.
func TestNearestLosesSmallDecay(t *testing.T) {
	const n, steps = 2048, 500
	decayed := float32(1)
	for range steps {
		decayed *= float32(1 - 1e-6)
	}
	want := float64(decayed)
	for _, test := range []struct {
		options   string
		want      float64
		tolerance float64
	}{
		{``, 1, 0},
		{`, "weight_rounding": "stochastic"`, want, 5 * 0x1p-8 * math.Sqrt(steps*1e-6*0x1p8/n)},
		{`, "master": "split"`, want, 1e-9},
	} {
		for _, storage := range []string{``, `, "adam_8bit": true`} {
			opt, params := newOptimizer(t, `{"lr": 1e-3, "weight_decay": 1e-3`+test.options+storage+`}`,
				optim.Param{Name: "w", Shape: []int64{n}, Weights: b16(n), Gradients: b16(n)})
			for i := range params[0].Weights.BF16 {
				params[0].Weights.BF16[i] = bf16.FromFloat32(1)
			}
			for range steps {
				_, err := opt.Step()
				require.NoError(t, err)
			}
			mean := 0.0
			for _, w := range masters(opt, params[0]) {
				mean += float64(w) / n
			}
			require.InDelta(t, test.want, mean, test.tolerance, test.options)
		}
	}
}

// masters are the float32 weights of a split master, or the weights.
func masters(opt *optim.Optimizer, p optim.Param) []float32 {
	w := widened(p.Weights)
	for _, tensor := range opt.State(p.Name) {
		if tensor.Kind == "low" {
			for i := range w {
				w[i] = reference.Join(p.Weights.BF16[i], tensor.U16[i])
			}
		}
	}
	return w
}

// TestSplitMasterIsFloat32: given the same gradients, the master is the float32 run's weight
// bit for bit, and the weight is that in bf16, ties away from zero.
func TestSplitMasterIsFloat32(t *testing.T) {
	for _, options := range []string{
		`"weight_decay": 0.1`, `"moments_dtype": "bfloat16"`, `"adam_8bit": true`, `"adam_4bit": true`, `"variant": "optax"`,
		`"type": "muon", "weight_decay": 0.1`, `"type": "muon", "variant": "torch", "momentum_dtype": "8bit"`,
	} {
		wide, wideParams := newOptimizer(t, `{"lr": 0.003, `+options+`}`, model(false)...)
		split, splitParams := newOptimizer(t, `{"lr": 0.003, "master": "split", `+options+`}`, model(true)...)
		for i, p := range splitParams {
			copy(wideParams[i].Weights.F32, widened(p.Weights))
		}
		for step := range 10 {
			train(t, wide, wideParams, step, step+1, true)
			train(t, split, splitParams, step, step+1, true)
			for i, p := range splitParams {
				want := wideParams[i].Weights.F32
				require.Equal(t, want, masters(split, p), "%s %s", options, p.Name)
				for k, w := range p.Weights.BF16 {
					nearest := bf16.BF16((math.Float32bits(want[k]) + 0x8000) >> 16)
					require.Equal(t, nearest, w)
				}
			}
		}
	}
}

// TestStreams: stochastic rounding differs between parameters, steps and seeds, and not
// between runs.
func TestStreams(t *testing.T) {
	const n = 64
	run := func(seed, name string, steps int) []bf16.BF16 {
		opt, params := newOptimizer(t, `{"lr": 1e-3, "weight_rounding": "stochastic", "seed": `+seed+`}`,
			optim.Param{Name: name, Shape: []int64{n}, Weights: numbers(n, 1, true), Gradients: numbers(n, 2, true)})
		for range steps {
			copy(params[0].Weights.BF16, numbers(n, 1, true).BF16)
			_, err := opt.Step()
			require.NoError(t, err)
		}
		return params[0].Weights.BF16
	}
	first := run("1", "w", 1)
	require.Equal(t, first, run("1", "w", 1))
	require.NotEqual(t, first, run("2", "w", 1))
	require.NotEqual(t, first, run("1", "v", 1))
	require.NotEqual(t, first, run("1", "w", 2))
}

// TestAnyNumberOfThreads gives the same bits, with random streams too.
func TestAnyNumberOfThreads(t *testing.T) {
	const rows, cols = 96, 1024
	for name, text := range resumable {
		var want []any
		for _, threads := range []int{1, 2, 5} {
			before := runtime.GOMAXPROCS(threads)
			opt, params := newOptimizer(t, text,
				optim.Param{Name: "w", Shape: []int64{rows * cols}, Weights: numbers(rows*cols, 1, true)},
				optim.Param{Name: "emb.w", Shape: []int64{rows, cols}, Role: "conv", Weights: numbers(rows*cols, 3, true)})
			for step := range 2 {
				params[0].Gradients = numbers(rows*cols, uint64(step), true)
				if !strings.Contains(text, "muon") { // whose products other tests cover
					params[1].Gradients = params[0].Gradients
				}
				_, err := opt.Step()
				require.NoError(t, err)
			}
			got := snapshot(opt, params)
			runtime.GOMAXPROCS(before)
			if threads == 1 {
				want = got
			}
			require.Equal(t, want, got, "%s, %d threads", name, threads)
		}
	}
}
