package optim_test

import (
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

func parse(t testing.TB, text string) optim.Config {
	t.Helper()
	config, err := optim.ParseConfig([]byte(text))
	require.NoError(t, err)
	return config
}

func newOptimizer(t testing.TB, text string, params ...optim.Param) (*optim.Optimizer, []optim.Param) {
	t.Helper()
	opt, err := optim.New(parse(t, text), params)
	require.NoError(t, err)
	return opt, params
}

func f32(n int) kernels.Floats { return kernels.Float32s(make([]float32, n)) }

func b16(n int) kernels.Floats { return kernels.BF16s(make([]uint16, n)) }

// kinds lists a state's tensors.
func kinds(tensors []optim.StateTensor) (list []string) {
	for _, t := range tensors {
		list = append(list, t.Kind)
	}
	return list
}

func TestParametersThatAreRefused(t *testing.T) {
	shared := make([]float32, 24)
	narrow := make([]uint16, 48)
	w := optim.Param{Name: "w", Shape: []int64{2, 3}, Weights: kernels.Float32s(shared[:6])}
	with := func(edit func(p *optim.Param)) []optim.Param {
		p := w
		edit(&p)
		return []optim.Param{p}
	}
	for _, test := range []struct {
		config string
		params []optim.Param
		want   string
	}{
		{`{}`, with(func(p *optim.Param) { p.Name = "" }), `parameter 0 has no name`},
		{`{}`, with(func(p *optim.Param) { p.Name = "\xff" }), `the name of parameter 0, "\xff", is not UTF-8`},
		{`{}`, []optim.Param{w, w}, `two parameters are called "w", want distinct names`},
		{`{}`, with(func(p *optim.Param) { p.Weights = f32(5) }), `parameter "w": 5 weights, want 6 for shape [2 3]`},
		{`{}`, with(func(p *optim.Param) { p.Weights = kernels.Floats{} }), `parameter "w": 0 weights, want 6 for shape [2 3]`},
		{`{}`, with(func(p *optim.Param) { p.Shape = nil }), `parameter "w": 6 weights, want 1 for shape []`},
		{`{}`, with(func(p *optim.Param) { p.Shape = []int64{-2, -3} }), `parameter "w": shape [-2 -3], want sizes of 0 or more with a product below 2^63`},
		{`{}`, with(func(p *optim.Param) { p.Shape = []int64{1 << 32, 1 << 31} }), `parameter "w": shape [4294967296 2147483648], want sizes of 0 or more with a product below 2^63`},
		{`{}`, with(func(p *optim.Param) { p.Shape = []int64{0, 1 << 40, 1 << 40} }), `parameter "w": shape [0 1099511627776 1099511627776], want sizes of 0 or more with a product below 2^63`},
		{`{}`, with(func(p *optim.Param) { p.Shape = []int64{1 << 40} }), `parameter "w": 6 weights, want 1099511627776 for shape [1099511627776]`},
		{`{}`, with(func(p *optim.Param) { p.Weights.BF16 = []bf16.BF16{} }), `parameter "w": weights are given in float32 and in bf16, want one of them`},
		{`{}`, with(func(p *optim.Param) { p.Role = "bias" }), `parameter "w": role "bias", want one of token_embedding, matrix, conv, vector`},
		{`{}`, with(func(p *optim.Param) { p.Role, p.Shape = "matrix", []int64{6} }), `parameter "w": role matrix needs two axes or more, found shape [6]`},
		{`{}`, with(func(p *optim.Param) { p.InputAxis = 2 }), `parameter "w": input axis 2, want 0 for [in, out] or 1 for [out, in]`},
		{`{}`, with(func(p *optim.Param) { p.StatePrecision = "4bit" }), `parameter "w": state precision "4bit", want 8bit or fp32`},
		{`{}`, with(func(p *optim.Param) { p.StatePrecision = "int8" }), `parameter "w": state precision 8bit, want adam_8bit in the configuration`},
		{`{"adam_4bit": true}`, with(func(p *optim.Param) { p.StatePrecision = "fp32" }), `parameter "w": state precision fp32, which adam_4bit does not have`},
		{`{"moments_dtype": "bfloat16"}`, with(func(p *optim.Param) { p.StatePrecision = "fp32" }), `parameter "w": state precision fp32, want moments_dtype float32 instead of bfloat16`},
		{`{"type": "muon", "lr": 1}`, with(func(p *optim.Param) { p.StatePrecision = "8bit" }), `parameter "w": state precision 8bit, want momentum_dtype 8bit or linear8 instead of float32`},
		{`{"type": "muon", "lr": 1, "momentum_dtype": "bfloat16"}`, with(func(p *optim.Param) { p.StatePrecision = "float32" }), `parameter "w": state precision fp32, want another momentum_dtype than bfloat16`},
		{`{"type": "muon", "lr": 1, "param_groups": [{"params": ["w"], "role": "vector", "optimizer": "muon"}]}`, []optim.Param{w}, `parameter "w": optimizer muon needs a matrix, found role vector`},
		{`{"param_groups": [{"params": ["w", "v*"]}]}`, []optim.Param{w}, `param_groups[0].params[1]: "v*" matches none of 1 parameters`},
		{`{"master": "split"}`, []optim.Param{w}, `master: got split, want none where no parameter has bf16 weights`},

		// Weights that share memory.
		{`{}`, []optim.Param{w, {Name: "v", Shape: []int64{6}, Weights: kernels.Float32s(shared[5:11])}}, `parameters "w" and "v" share a part of their weights, want all or nothing`},
		{`{}`, []optim.Param{w, {Name: "v", Shape: []int64{6}, Weights: f32(6), Gradients: kernels.Float32s(shared[5:11])}}, `the gradients of parameter "v" overlap the weights of "w", want separate memory`},
		{`{}`, []optim.Param{{Name: "v", Shape: []int64{24}, Weights: f32(24), Gradients: kernels.Float32s(shared)}, w}, `the gradients of parameter "v" overlap the weights of "w", want separate memory`},
		{`{}`, []optim.Param{{Name: "v", Shape: []int64{24}, Weights: kernels.Float32s(shared)}, w}, `parameters "v" and "w" share a part of their weights, want all or nothing`},
		{`{}`, []optim.Param{
			{Name: "v", Shape: []int64{48}, Weights: kernels.BF16s(narrow)}, {Name: "u", Shape: []int64{1}, Weights: kernels.BF16s(narrow[47:])},
		}, `parameters "v" and "u" share a part of their weights, want all or nothing`},
		{`{}`, []optim.Param{w, {Name: "v", Shape: []int64{6}, Weights: w.Weights, Role: "vector"}}, `parameters "w" and "v" are tied but have role "" and "vector", want one`},
		{`{"adam_8bit": true}`, []optim.Param{w, {Name: "v", Shape: []int64{6}, Weights: w.Weights, StatePrecision: "fp32"}}, `parameters "w" and "v" are tied but have state precision "" and "fp32", want one`},
		{`{}`, []optim.Param{w, {Name: "v", Shape: []int64{6}, Weights: w.Weights, Gradients: f32(6)}}, `parameters "w" and "v" are tied but have different gradients, want one`},
	} {
		_, err := optim.New(parse(t, test.config), test.params)
		require.EqualError(t, err, "optim: "+test.want)
	}
}

func TestNewChecksTheConfiguration(t *testing.T) {
	config := optim.DefaultMuon()
	_, err := optim.New(config, nil)
	require.EqualError(t, err, "optim: lr: missing, want a number or a schedule")
	config.LR = optim.Constant(1)
	for want, edit := range map[string]func(c *optim.MuonConfig){
		"beta: got 1, want a number in [0, 1)":                           func(c *optim.MuonConfig) { c.Beta = 1 },
		"eps: got -1, want a number in [1e-45, 3e+38]":                   func(c *optim.MuonConfig) { c.Eps = -1 },
		"ns_steps: got -1, want null or an integer in [0, 99]":           func(c *optim.MuonConfig) { c.NSSteps = new(-1) },
		"ns_steps: got 100, want null or an integer in [0, 99]":          func(c *optim.MuonConfig) { c.NSSteps = new(100) },
		"ns_steps: newton-schulz: polynomial dion: 6 steps, want 0 to 5": func(c *optim.MuonConfig) { c.NSSteps, c.NSCoeffs.Preset = new(6), "dion" },
	} {
		edited := config
		edit(&edited)
		_, err := optim.New(edited, nil)
		require.EqualError(t, err, "optim: "+want)
	}
}

// TestSlicesThatAStepRefuses also shows that nothing has changed after the error.
func TestSlicesThatAStepRefuses(t *testing.T) {
	for _, text := range []string{`{"adam_8bit": true, "grad_clip_norm": 1}`, `{"type": "muon", "lr": 1}`} {
		for _, test := range []struct {
			want string
			edit func(first, later *optim.Param)
		}{
			{`parameter "w": 5 gradients, want 6 as weights`, func(p, _ *optim.Param) { p.Gradients = f32(5) }},
			{`parameter "w": 7 gradients, want 6 as weights`, func(p, _ *optim.Param) { p.Gradients = b16(7) }},
			{`parameter "w": gradients are given in float32 and in bf16, want one of them`, func(p, _ *optim.Param) {
				p.Gradients = kernels.Floats{F32: make([]float32, 6), BF16: make([]bf16.BF16, 6)}
			}},
			{`parameter "w": weights and gradients overlap, want separate memory`, func(p, _ *optim.Param) { p.Gradients = p.Weights }},
			{`parameter "w": the weights were replaced by others of another length or format`, func(p, _ *optim.Param) { p.Weights = f32(7) }},
			{`parameter "w": the weights were replaced by others of another length or format`, func(p, _ *optim.Param) { p.Weights = b16(6) }},
			{`parameters "w" and "tied" are tied but have different gradients, want one`, func(_, p *optim.Param) { p.Gradients = f32(6) }},
		} {
			weights := numbers(6, 1, false)
			opt, params := newOptimizer(t, text,
				optim.Param{Name: "first", Shape: []int64{4}, Weights: numbers(4, 2, false), Gradients: numbers(4, 3, false)},
				optim.Param{Name: "w", Shape: []int64{2, 3}, Weights: weights, Gradients: numbers(6, 4, false)},
				optim.Param{Name: "tied", Shape: []int64{2, 3}, Weights: weights},
			)
			test.edit(&params[1], &params[2])
			before := snapshot(opt, params)
			_, err := opt.Step()
			require.EqualError(t, err, "optim: "+test.want)
			require.EqualError(t, opt.Accumulate(), "optim: "+test.want)
			require.Equal(t, before, snapshot(opt, params))
		}
	}
}

// snapshot copies all that a step may change.
func snapshot(opt *optim.Optimizer, params []optim.Param) []any {
	all := []any{opt.Steps()}
	for _, p := range params {
		all = append(all, widened(p.Weights))
		for _, tensor := range opt.State(p.Name) {
			all = append(all, tensor.Kind, append([]float32{}, tensor.F32...), append([]uint8{}, tensor.U8...),
				append([]uint16{}, tensor.U16...), append([]bf16.BF16{}, tensor.BF16...))
		}
	}
	return all
}

// TestUnusualParameters steps parameters without elements, without axes and without
// gradients under every configuration.
func TestUnusualParameters(t *testing.T) {
	for name, text := range resumable {
		opt, params := newOptimizer(t, text,
			optim.Param{Name: "none", Shape: []int64{0, 3}},
			optim.Param{Name: "huge", Shape: []int64{1 << 40, 0}, Weights: f32(0), Gradients: f32(0)},
			optim.Param{Name: "stack", Shape: []int64{1 << 40, 1 << 20, 0}, Weights: b16(0)},
			optim.Param{Name: "scalar", Weights: kernels.BF16s([]uint16{0x3c80}), Gradients: kernels.Float32s([]float32{1})},
			optim.Param{Name: "one", Shape: []int64{1, 1}, Weights: kernels.Float32s([]float32{0x1p-6}), Gradients: kernels.BF16s([]uint16{0x3f80})},
			optim.Param{Name: "embedding", Shape: []int64{2, 1}, Weights: kernels.Float32s([]float32{1, 2})},
			optim.Param{Name: "w", Shape: []int64{1, 2}, Weights: kernels.Float32s([]float32{3, 4}), Gradients: kernels.Floats{}},
		)
		for range 3 {
			r, err := opt.Step()
			require.NoError(t, err, name)
			require.Zero(t, r.Counts, name)
		}
		for _, stepped := range params[3:5] {
			require.Less(t, stepped.Weights.At(0), float32(0x1p-6), name)
		}
		require.Equal(t, []float32{1, 2}, params[5].Weights.F32, name)
		require.Equal(t, []float32{3, 4}, params[6].Weights.F32, name)
		require.NoError(t, opt.Save(t.TempDir()+"/checkpoint", optim.SaveOptions{Weights: true}), name)
	}
}

func TestNoParameters(t *testing.T) {
	opt, _ := newOptimizer(t, `{"grad_clip_norm": 1}`)
	r, err := opt.Step()
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Step)
	require.Zero(t, r.GradNorm)
	require.Nil(t, opt.State("w"))
}

// TestReplacedSlices: the slices that count are those of the moment.
func TestReplacedSlices(t *testing.T) {
	opt, params := newOptimizer(t, `{"lr": 0.5}`, optim.Param{Name: "w", Shape: []int64{3}, Weights: f32(3), Gradients: f32(3)})
	params[0].Gradients = kernels.BF16s([]uint16{0x3f80, 0xbf80, 0})
	params[0].Weights = kernels.Float32s([]float32{1, 1, 1})
	_, err := opt.Step()
	require.NoError(t, err)
	require.InDeltaSlice(t, []float32{0.5, 1.5, 1}, params[0].Weights.F32, 1e-6)
}

// TestTiedParametersCountOnce: one update, one state, under the first name.
func TestTiedParametersCountOnce(t *testing.T) {
	weights, gradients := numbers(12, 1, false), numbers(12, 2, false)
	alone := optim.Param{Name: "embedding", Shape: []int64{4, 3}, Role: "token_embedding", Weights: numbers(12, 1, false), Gradients: gradients}
	tied := alone
	tied.Weights = weights
	head := optim.Param{Name: "head", Shape: []int64{4, 3}, Weights: weights, Gradients: gradients}
	const text = `{"adam_8bit": true, "grad_clip_norm": 0.1}`
	once, _ := newOptimizer(t, text, alone)
	both, params := newOptimizer(t, text, tied, head)
	for range 3 {
		want, err := once.Step()
		require.NoError(t, err)
		got, err := both.Step()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, alone.Weights, params[1].Weights)
	require.Equal(t, once.Metrics(), both.Metrics())
	require.Equal(t, []string{"exp_avg", "exp_avg_sq"}, kinds(both.State("embedding")))
	require.Nil(t, both.State("head"))
}

// TestGradientsInTheState are noticed by the kernel alone; the error says how far the step
// has come.
func TestGradientsInTheState(t *testing.T) {
	opt, params := small(t, `{}`, 1, nil)
	params[1].Gradients = kernels.Float32s(opt.State("w")[0].F32)
	before := snapshot(opt, params[1:])
	_, err := opt.Step()
	require.EqualError(t, err, `optim: parameter "w": adamw: gradients and first moment overlap, want separate memory; this parameter and those after the first 1 have not been updated`)
	require.Equal(t, before, snapshot(opt, params[1:]))
}
