package optim_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"
)

func singularValues(t *testing.T, x []float32, rows, cols int) []float64 {
	t.Helper()
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	var svd mat.SVD
	require.True(t, svd.Factorize(mat.NewDense(rows, cols, wide), mat.SVDNone))
	return svd.Values(nil)
}

// change is what a step with gradients g does to zero weights, divided by -lr.
func change(t *testing.T, text string, p optim.Param, g kernels.Floats) []float32 {
	t.Helper()
	p.Name, p.Weights, p.Gradients = "w", f32(g.Len()), g
	opt, params := newOptimizer(t, strings.Replace(text, `{`, `{"type": "muon", "lr": 0.5, `, 1), p)
	_, err := opt.Step()
	require.NoError(t, err)
	for i, w := range params[0].Weights.F32 {
		params[0].Weights.F32[i] = -w / 0.5
	}
	return params[0].Weights.F32
}

// TestMuonOrthogonalises: the update is no multiple of the gradient, and its singular values
// are in the schedule's range whatever the gradient's size is.
func TestMuonOrthogonalises(t *testing.T) {
	for _, test := range []struct {
		options   string
		low, high float64
		tolerance float64
	}{
		{`"ns_coeffs": "jordan"`, 0.682, 1.134, 1e-3},
		{`"ns_coeffs": "dion"`, 0.978, 1.032, 1e-3},
		{`"ns_coeffs": "deepseek-v4"`, 1, 1.0005, 1e-4},
		{`"ns_coeffs": "polar-express", "ns_steps": 8`, 1, 1, 1e-4},
		{`"ns_coeffs": "jordan", "ns_dtype": "bfloat16"`, 0.682, 1.134, 5e-2},
		{`"ns_coeffs": "jordan", "ns_method": "gram"`, 0.682, 1.134, 3e-3},
		{`"ns_coeffs": "jordan", "momentum_dtype": "8bit"`, 0.682, 1.134, 1e-3},
		{`"ns_coeffs": "jordan", "variant": "torch"`, 0.682, 1.134, 5e-2},
		{`"ns_coeffs": "jordan", "variant": "moonlight", "adjust": "original"`, 0.682, 1.134, 5e-2},
	} {
		for _, scale := range []float64{1, 1e-6, 1e-30, 1e30} {
			const rows, cols = 24, 16
			g := numbers(rows*cols, 5, false)
			for i := range g.F32 {
				g.F32[i] *= float32(scale)
			}
			u := change(t, `{`+test.options+`}`, optim.Param{Shape: []int64{rows, cols}}, g)
			for _, s := range singularValues(t, u, rows, cols) {
				require.Greater(t, s, test.low-test.tolerance, test.options)
				require.Less(t, s, test.high+test.tolerance, test.options)
			}
			require.Greater(t, math.Abs(float64(u[0]/g.F32[0]/(u[1]/g.F32[1]))-1), 0.05)
		}
	}
}

// TestPlainGradientsStayWithAdamW: a vector takes the NAdamW path, and a group may send a
// matrix there too.
func TestPlainGradientsStayWithAdamW(t *testing.T) {
	const muon = `{"type": "muon", "lr": 0.01, "adam_learning_rate": 0.003, "adam_b1": 0.8, "adam_b2": 0.99, "eps": 1e-6, "adam_weight_decay": 0.2, "variant": "torch"%s}`
	const adamw = `{"lr": 0.003, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.2, "nesterov": true}`
	shapes := map[string][]int64{"vector": {12}, "emb": {4, 3}}
	param := func(name string) optim.Param {
		return optim.Param{Name: name, Shape: shapes[name], Weights: numbers(12, 1, false), Gradients: numbers(12, 2, false)}
	}
	opt, params := newOptimizer(t, fmt.Sprintf(muon, `, "param_groups": [{"params": ["emb"], "optimizer": "adamw"}]`), param("vector"), param("emb"))
	plain, plainParams := newOptimizer(t, adamw, param("vector"), param("emb"))
	for range 4 {
		for _, o := range []*optim.Optimizer{opt, plain} {
			_, err := o.Step()
			require.NoError(t, err)
		}
	}
	for i := range params {
		require.Equal(t, plainParams[i].Weights, params[i].Weights)
	}
}

// TestMuonScales compares with the unscaled update for each way to adjust it.
func TestMuonScales(t *testing.T) {
	for _, test := range []struct {
		options string
		shape   []int64
		axis    int
		role    string
		want    float64
	}{
		{`"weight_decay": 0`, []int64{4, 9}, 0, "", 1.5}, // [in, out]
		{`"weight_decay": 0`, []int64{4, 9}, 1, "", 1},
		{`"weight_decay": 0`, []int64{9, 4}, 0, "", 1},
		{`"weight_decay": 0`, []int64{9, 4}, 1, "", 1.5},
		{`"adjust": "original"`, []int64{4, 9}, 0, "", 1.5},
		{`"adjust": "match_rms_adamw"`, []int64{4, 9}, 0, "", 0.6},
		{`"adjust": "match_rms_adamw"`, []int64{9, 4}, 1, "", 0.6},
		{`"adjust": "spectral"`, []int64{4, 9}, 0, "", 1.5},
		{`"adjust": "spectral"`, []int64{9, 4}, 0, "", 2. / 3},
		{`"consistent_rms": 0.5`, []int64{4, 9}, 0, "", 1.5},
		{`"consistent_rms": 0.5`, []int64{5, 4, 9}, 0, "", 1.5}, // of each matrix
		// A depthwise kernel is one matrix of (C, 9), from 9 to C.
		{`"weight_decay": 0`, []int64{16, 1, 3, 3}, 0, "conv", 4. / 3},
		{`"adjust": "spectral"`, []int64{4, 1, 3, 3}, 0, "conv", 2. / 3},
		{`"consistent_rms": 1`, []int64{16, 1, 3, 3}, 0, "conv", 4},
	} {
		n := 1
		for _, size := range test.shape {
			n *= int(size)
		}
		g := numbers(n, 3, false)
		p := optim.Param{Shape: test.shape, InputAxis: test.axis, Role: test.role}
		got := change(t, `{`+test.options+`}`, p, g)
		rows, cols := int(test.shape[len(test.shape)-2]), int(test.shape[len(test.shape)-1])
		if test.role == "conv" {
			rows, cols = int(test.shape[0]), n/int(test.shape[0])
		}
		plain := orthogonal(t, g.F32, rows, cols)
		for i, x := range plain {
			require.InDelta(t, test.want*float64(x), got[i], 1e-5, "%s %v", test.options, test.shape)
		}
	}
}

// orthogonal is what Muon makes of a stack of matrices on the first step, unscaled: the
// first momentum is a multiple of the gradient.
func orthogonal(t *testing.T, g []float32, rows, cols int) []float32 {
	t.Helper()
	triples, safety, err := kernels.Polynomials("jordan", nil, false)
	require.NoError(t, err)
	plan := kernels.NewtonSchulzPlan{Safety: safety}
	for _, p := range triples {
		plan.Steps = append(plan.Steps, [3]float32{float32(p[0]), float32(p[1]), float32(p[2])})
	}
	x := make([]float32, len(g))
	stack := kernels.Stack{Data: kernels.Float32s(x), Count: len(g) / (rows * cols), Rows: rows, Cols: cols, Stride: cols, Step: rows * cols}
	from := stack
	from.Data = kernels.Float32s(g)
	_, err = kernels.NewtonSchulz(stack, from, &plan, make([]float32, plan.WorkSize(rows, cols)))
	require.NoError(t, err)
	return x
}

var muonMomenta = []string{
	`"momentum_dtype": "float32"`, `"momentum_dtype": "bfloat16"`, `"momentum_dtype": "8bit", "quant_block_size": 12`,
	`"momentum_dtype": "linear8", "quant_block_size": 6`, `"adaptive": true`, `"nesterov": false`, `"variant": "torch"`, `"variant": "dion"`,
}

// TestStacksAreIndependentMatrices: [heads, d, D] and [L, E, M, N] are stepped as their
// matrices one by one.
func TestStacksAreIndependentMatrices(t *testing.T) {
	for _, options := range muonMomenta {
		text := `{"type": "muon", "lr": 0.02, ` + options + `}`
		for _, shape := range [][]int64{{5, 4, 3}, {2, 3, 3, 4}, {7, 1, 12}, {3, 12, 1}} {
			size := int(shape[len(shape)-2] * shape[len(shape)-1])
			count := 1
			for _, n := range shape[:len(shape)-2] {
				count *= int(n)
			}
			whole := optim.Param{Name: "w", Shape: shape, Weights: numbers(count*size, 1, true)}
			var single []optim.Param
			for i := range count {
				single = append(single, optim.Param{
					Name: fmt.Sprint(i), Shape: shape[len(shape)-2:], Weights: kernels.BF16s(numbers(count*size, 1, true).BF16[i*size : (i+1)*size]),
				})
			}
			together, params := newOptimizer(t, text, whole)
			alone, aloneParams := newOptimizer(t, text, single...)
			for step := range 3 {
				g := numbers(count*size, uint64(step), false)
				params[0].Gradients = g
				for i := range aloneParams {
					aloneParams[i].Gradients = kernels.Float32s(g.F32[i*size : (i+1)*size])
				}
				for _, o := range []*optim.Optimizer{together, alone} {
					_, err := o.Step()
					require.NoError(t, err)
				}
				for i, p := range aloneParams {
					require.Equal(t, p.Weights.BF16, params[0].Weights.BF16[i*size:(i+1)*size], "%s %v", options, shape)
				}
			}
		}
	}
}

// TestNaNInOneMatrixOfAStack: the others are stepped as if alone.
func TestNaNInOneMatrixOfAStack(t *testing.T) {
	const count, size, at = 6, 12, 3
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		for _, options := range muonMomenta {
			for _, policy := range []string{"skip", "propagate"} {
				text := `{"type": "muon", "lr": 0.02, "nonfinite": "` + policy + `", ` + options + `}`
				param := optim.Param{Name: "w", Shape: []int64{count, 3, 4}, Weights: numbers(count*size, 1, false)}
				opt, params := newOptimizer(t, text, param)
				param.Weights = numbers(count*size, 1, false)
				twin, twinParams := newOptimizer(t, text, param)
				params[0].Gradients, twinParams[0].Gradients = numbers(count*size, 2, false), numbers(count*size, 2, false)
				for _, o := range []*optim.Optimizer{opt, twin} {
					_, err := o.Step()
					require.NoError(t, err)
				}
				before := widened(params[0].Weights)
				params[0].Gradients.F32[at*size+5] = float32(bad)
				r, err := opt.Step()
				require.NoError(t, err)
				_, err = twin.Step()
				require.NoError(t, err)
				require.Equal(t, int64(size), r.NonFinite)
				require.Zero(t, r.SkippedParameters)
				lo, hi := at*size, (at+1)*size
				got, want := params[0].Weights.F32, twinParams[0].Weights.F32
				require.Equal(t, want[:lo], got[:lo], "%s %s", options, policy)
				require.Equal(t, want[hi:], got[hi:], "%s %s", options, policy)
				if policy == "skip" {
					require.Equal(t, int64(size), r.SkippedElements)
					require.Equal(t, before[lo:hi], got[lo:hi])
					continue
				}
				require.Zero(t, r.SkippedElements)
				for _, w := range got[lo:hi] {
					require.True(t, w != w)
				}
			}
		}
	}
}

// TestBlocksAcrossMatrices: with codes, what shares a block with a skipped matrix is left
// alone too, and nothing else.
func TestBlocksAcrossMatrices(t *testing.T) {
	const count, size = 8, 9
	for _, test := range []struct {
		bad     []int // matrices
		skipped [][2]int
		blocks  int64
	}{
		{[]int{0}, [][2]int{{0, 12}}, 3},
		{[]int{1}, [][2]int{{8, 20}}, 3},
		{[]int{3, 4}, [][2]int{{24, 48}}, 6},
		{[]int{2, 7}, [][2]int{{16, 28}, {60, 72}}, 6},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7}, [][2]int{{0, 72}}, 18},
	} {
		opt, params := newOptimizer(t, `{"type": "muon", "lr": 0.02, "momentum_dtype": "8bit", "quant_block_size": 4, "nonfinite": "skip"}`,
			optim.Param{Name: "w", Shape: []int64{count, 3, 3}, Weights: numbers(count*size, 1, false), Gradients: numbers(count*size, 2, false)})
		before := widened(params[0].Weights)
		for _, matrix := range test.bad {
			params[0].Gradients.F32[matrix*size] = float32(math.NaN())
		}
		r, err := opt.Step()
		require.NoError(t, err)
		left := make([]bool, count*size)
		total := 0
		for _, span := range test.skipped {
			for i := span[0]; i < span[1]; i++ {
				left[i] = true
				total++
			}
		}
		require.Equal(t, kernels.Counts{NonFinite: int64(len(test.bad) * size), SkippedElements: int64(total), SkippedBlocks: test.blocks}, r.Counts)
		require.Equal(t, total == count*size, r.SkippedParameters == 1)
		codes := opt.State("w")[0].U8
		for i, w := range params[0].Weights.F32 {
			require.Equal(t, left[i], w == before[i], "element %d", i)
			if left[i] {
				require.Equal(t, uint8(127), codes[i])
			}
		}
	}
}

// TestBatchesOfAStack steps a stack that is larger than a batch.
func TestBatchesOfAStack(t *testing.T) {
	const count, size = 264, 4 * 1024
	for _, options := range []string{`"ns_steps": 1`, `"ns_steps": 1, "momentum_dtype": "8bit", "quant_block_size": 96`} {
		text := `{"type": "muon", "lr": 0.02, ` + options + `}`
		g := numbers(count*size, 3, false)
		opt, params := newOptimizer(t, text, optim.Param{Name: "w", Shape: []int64{count, 4, 1024}, Weights: f32(count * size), Gradients: g})
		last := optim.Param{Name: "w", Shape: []int64{6, 4, 1024}, Weights: f32(6 * size), Gradients: kernels.Float32s(g.F32[(count-6)*size:])}
		alone, aloneParams := newOptimizer(t, text, last)
		for _, o := range []*optim.Optimizer{opt, alone} {
			_, err := o.Step()
			require.NoError(t, err)
		}
		require.Equal(t, aloneParams[0].Weights.F32, params[0].Weights.F32[(count-6)*size:], options)
		momentum, want := opt.State("w")[0], alone.State("w")[0]
		require.Equal(t, want.F32, momentum.F32[max(0, len(momentum.F32)-6*size):], options)
		require.Equal(t, want.U8, momentum.U8[max(0, len(momentum.U8)-6*size):], options)
	}
}

// TestZeroMatrices stay zero, alone and among others.
func TestZeroMatrices(t *testing.T) {
	for _, options := range muonMomenta {
		g := numbers(3*12, 1, false)
		clear(g.F32[12:24])
		u := change(t, `{`+options+`}`, optim.Param{Shape: []int64{3, 3, 4}}, g)
		require.Equal(t, make([]float32, 12), u[12:24], options)
		require.NotContains(t, u[:12], float32(0))
		u = change(t, `{`+options+`}`, optim.Param{Shape: []int64{3, 4}}, f32(12))
		require.Equal(t, make([]float32, 12), u, options)
	}
}

// TestMomentumOncePerStep: micro-batches are summed before the momentum moves.
func TestMomentumOncePerStep(t *testing.T) {
	const text = `{"type": "muon", "lr": 0.02}`
	g := kernels.Float32s([]float32{1, 2, 3, 4})
	opt, _ := newOptimizer(t, text, optim.Param{Name: "w", Shape: []int64{2, 2}, Weights: f32(4), Gradients: g})
	for range 3 {
		require.NoError(t, opt.Accumulate())
	}
	_, err := opt.Step()
	require.NoError(t, err)
	for i, m := range opt.State("w")[0].F32 {
		require.Equal(t, float32(1-0.95)*3*g.F32[i], m)
	}
}

// TestMuonDecay: decoupled, before the update or, for optax, within it.
func TestMuonDecay(t *testing.T) {
	for _, variant := range []string{"optax", "torch", "moonlight", "jordan", "dion"} {
		text := `{"type": "muon", "lr": 0.5, "variant": "` + variant + `", "weight_decay": 0.25}`
		opt, params := newOptimizer(t, text, optim.Param{Name: "w", Shape: []int64{2, 2}, Weights: kernels.Float32s([]float32{1, 2, -3, 4}), Gradients: f32(4)})
		_, err := opt.Step()
		require.NoError(t, err)
		require.Equal(t, []float32{0.875, 1.75, -2.625, 3.5}, params[0].Weights.F32, variant)
	}
}

// TestMuonRefusesStepsWithoutAnEnd, and leaves everything as it was.
func TestMuonRefusesStepsWithoutAnEnd(t *testing.T) {
	for _, text := range []string{
		`{"type": "muon", "lr": 1e39, "nonfinite": "skip"}`, `{"type": "muon", "lr": 1, "consistent_rms": 1e300}`,
		`{"type": "muon", "variant": "torch", "lr": 1e38, "weight_decay": 1e38}`,
	} {
		opt, params := newOptimizer(t, text,
			optim.Param{Name: "b", Shape: []int64{4}, Weights: numbers(4, 3, false), Gradients: numbers(4, 4, false)},
			optim.Param{Name: "w", Shape: []int64{2, 3}, Weights: numbers(6, 1, false), Gradients: numbers(6, 2, false)})
		_, err := opt.Step()
		require.ErrorContains(t, err, "is no finite step in float32", text)
		require.Equal(t, numbers(4, 3, false), params[0].Weights)
		require.Equal(t, numbers(6, 1, false), params[1].Weights)
		require.Zero(t, opt.Steps())
	}
}
