package optim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// planned describes parameters to Plan.
func planned(params []optim.Param) []optim.PlannedParam {
	list := make([]optim.PlannedParam, len(params))
	for i, p := range params {
		list[i] = optim.PlannedParam{Name: p.Name, Shape: p.Shape, Role: p.Role, StatePrecision: p.StatePrecision, BFloat16: p.Weights.BF16 != nil}
	}
	return list
}

// TestPlanIsWhatNewHolds, for every configuration of these tests and shapes around blocks.
func TestPlanIsWhatNewHolds(t *testing.T) {
	shapes := append(model(true), optim.Param{Name: "none", Shape: []int64{0, 3}, Weights: b16(0)})
	for _, n := range []int64{1, 31, 32, 33, 127, 128, 129, 4096, 4097} {
		shapes = append(shapes,
			optim.Param{Name: fmt.Sprint("vector", n), Shape: []int64{n}, Weights: b16(int(n))},
			optim.Param{Name: fmt.Sprint("matrix", n), Shape: []int64{3, n}, Weights: f32(int(3 * n))})
	}
	configs := map[string]string{}
	for name, text := range resumable {
		configs[name] = text
	}
	configs["8-bit groups"] = `{"adam_8bit": true, "param_groups": [{"params": ["vector*"], "state_precision": "fp32"}, {"params": ["matrix*"], "role": "token_embedding"}]}`
	configs["odd block"] = `{"adam_8bit": true, "quant_block_size": 7, "headroom": true}`
	configs["4-bit small"] = `{"adam_4bit": true, "quant_block_size": 32, "master": "split"}`
	configs["muon groups"] = `{"type": "muon", "lr": 1, "momentum_dtype": "8bit", "param_groups": [{"params": ["matrix*"], "optimizer": "adamw", "state_precision": "8bit"}]}`
	for name, text := range configs {
		config := parse(t, text)
		opt, err := optim.New(config, shapes)
		require.NoError(t, err, name)
		plan, err := optim.Plan(config, planned(shapes), 1)
		require.NoError(t, err, name)
		require.Equal(t, opt.Metrics(), plan.Metrics, name)
		require.Equal(t, plan.Metrics["state_total_bytes"], plan.State(), name)
		require.Equal(t, plan.Metrics["master_bytes"], plan.Master, name)
		require.Equal(t, plan.Total(), plan.PerRank, name)
	}
}

func TestPlanArithmetic(t *testing.T) {
	const n = 4096 * 4096
	matrix := []optim.PlannedParam{{Name: "w", Shape: []int64{4096, 4096}}}
	plan := func(config string) optim.PlannedBytes {
		b, err := optim.Plan(parse(t, config), matrix, 1)
		require.NoError(t, err)
		require.Equal(t, int64(n), b.Parameters)
		require.Equal(t, int64(4*n), b.Weights)
		require.Equal(t, int64(4*n), b.Gradients)
		return b
	}
	exact := plan(`{}`)
	require.Equal(t, int64(12*n), exact.Weights+exact.State())
	bfloat16 := plan(`{"moments_dtype": "bfloat16"}`)
	require.Equal(t, (exact.Weights+exact.State())/3, exact.State()-bfloat16.State(), "one third of three copies")
	require.Equal(t, 2.0625, float64(plan(`{"adam_8bit": true}`).State())/n)
	require.Equal(t, 0.5+4./128+8./4096, float64(plan(`{"adam_4bit": true}`).State())/n) // 0.533
	require.Equal(t, 4., float64(plan(`{"type": "muon", "lr": 1}`).State())/n)
	require.Equal(t, 1+4./128, float64(plan(`{"type": "muon", "lr": 1, "momentum_dtype": "8bit"}`).State())/n)

	narrow := []optim.PlannedParam{{Name: "w", Shape: []int64{4096, 4096}, BFloat16: true}}
	b, err := optim.Plan(parse(t, `{"adam_8bit": true, "master": "split"}`), narrow, 1)
	require.NoError(t, err)
	require.Equal(t, int64(2*n), b.Master)
	require.Equal(t, int64(2*n+2*n)+b.State(), b.Total())

	huge, err := optim.Plan(parse(t, `{"adam_8bit": true}`), []optim.PlannedParam{{Name: "w", Shape: []int64{1 << 20, 1 << 20}}}, 1)
	require.NoError(t, err)
	require.Equal(t, int64(2.0625*(1<<40)), huge.State())
}

// TestPlanPerRank works the shares out by hand.
func TestPlanPerRank(t *testing.T) {
	const chunk = 4096
	for _, test := range []struct {
		name, config string
		shapes       [][]int64
		ranks        int
		most         int64 // of the state
	}{
		{"even", `{}`, [][]int64{{8 * chunk}}, 4, 8 * 2 * chunk},
		{"one unit more", `{}`, [][]int64{{9 * chunk}}, 4, 8 * 3 * chunk},
		{"a short last unit", `{}`, [][]int64{{8*chunk + 1}}, 4, 8 * (2*chunk + 1)},
		{"the short one among all", `{}`, [][]int64{{4*chunk - 1}}, 4, 8 * chunk},
		{"small ones apart", `{}`, [][]int64{{10}, {20}, {30}}, 3, 8 * 30},
		{"more ranks than units", `{}`, [][]int64{{chunk}}, 1000, 8 * chunk},
		{"blocks stay whole", `{"adam_8bit": true, "quant_block_size": 3}`, [][]int64{{6 * chunk}}, 2, 2 * (3*chunk + 4*chunk)},
		{"factored", `{"adam_4bit": true}`, [][]int64{{256, 64}}, 2, 128*64/2 + 128*64/128*4 + 4*(128+64)},
		{"few rows", `{"adam_4bit": true}`, [][]int64{{3, 64}}, 2, 3*64/2 + 2*4 + 4*(3+64)},
		{"matrices", `{"type": "muon", "lr": 1}`, [][]int64{{5, 100, 30}}, 2, 4 * 3 * 3000},
		{"a matrix each", `{"type": "muon", "lr": 1}`, [][]int64{{100, 30}, {100, 20}, {100, 10}}, 2, 4 * 3000},
	} {
		params := []optim.PlannedParam{}
		weights := int64(0)
		for i, shape := range test.shapes {
			params = append(params, optim.PlannedParam{Name: fmt.Sprint(i), Shape: shape})
			n := int64(1)
			for _, d := range shape {
				n *= d
			}
			weights += 4 * n
		}
		b, err := optim.Plan(parse(t, test.config), params, test.ranks)
		require.NoError(t, err)
		require.Equal(t, test.most, b.PerRank-2*weights, test.name)
	}
}

// TestPlanSharesEverything: without factors, what the ranks hold adds up.
func TestPlanSharesEverything(t *testing.T) {
	for _, config := range []string{`{}`, `{"adam_8bit": true, "quant_block_size": 7}`, `{"type": "muon", "lr": 1, "momentum_dtype": "8bit"}`} {
		for ranks := 1; ranks < 9; ranks++ {
			shares, err := optim.PlanShares(parse(t, config), planned(model(false)), ranks)
			require.NoError(t, err)
			b, err := optim.Plan(parse(t, config), planned(model(false)), ranks)
			require.NoError(t, err)
			sum, most := int64(0), int64(0)
			for _, s := range shares {
				sum, most = sum+s, max(most, s)
			}
			require.Equal(t, b.State(), sum)
			require.Equal(t, b.PerRank, b.Weights+b.Gradients+most)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	w := optim.PlannedParam{Name: "w", Shape: []int64{2, 2}}
	for _, test := range []struct {
		config string
		params []optim.PlannedParam
		ranks  int
		want   string
	}{
		{`{}`, nil, 0, "optim: plan for 0 ranks, want 1 or more"},
		{`{}`, []optim.PlannedParam{{}}, 1, "optim: parameter 0 has no name"},
		{`{}`, []optim.PlannedParam{w, w}, 1, `optim: two parameters are called "w", want distinct names`},
		{`{}`, []optim.PlannedParam{{Name: "w", Shape: []int64{-1}}}, 1, `optim: parameter "w": shape [-1], want sizes of 0 or more with a product below 2^63`},
		{`{}`, []optim.PlannedParam{{Name: "w", Shape: []int64{math.MaxInt64}}}, 1, `optim: parameter "w": the model has more bytes than 63 bits count`},
		{`{}`, []optim.PlannedParam{{Name: "w", Role: "conv"}}, 1, `optim: parameter "w": role conv needs two axes or more, found shape []`},
		{`{"master": "split"}`, []optim.PlannedParam{w}, 1, "optim: master: got split, want none where no parameter has bf16 weights"},
		{`{"param_groups": [{"params": ["x"]}]}`, []optim.PlannedParam{w}, 1, `optim: param_groups[0].params[0]: "x" matches none of 1 parameters`},
	} {
		_, err := optim.Plan(parse(t, test.config), test.params, test.ranks)
		require.EqualError(t, err, test.want)
	}
	_, err := optim.Plan(nil, nil, 1)
	require.Error(t, err)
	_, err = optim.Plan(optim.AdamWConfig{}, nil, 1)
	require.Error(t, err)
}
