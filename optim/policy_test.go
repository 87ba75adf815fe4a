package optim_test

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// TestPrecisionPolicy: the parameter's word beats its group's, which beats the role's, which
// beats the configuration's.
func TestPrecisionPolicy(t *testing.T) {
	const eight, four = `"adam_8bit": true`, `"adam_4bit": true, "quant_block_size": 32`
	for _, test := range []struct {
		config, role, group, param string
		wide                       bool
	}{
		{eight, "", "", "", false},
		{eight, "matrix", "", "", false},
		{eight, "token_embedding", "", "", true},
		{eight, "", "fp32", "", true},
		{eight, "", "float32", "", true},
		{eight, "token_embedding", "8bit", "", false},
		{eight, "token_embedding", "uint8", "", false},
		{eight, "token_embedding", "int8", "", false},
		{eight, "", "", "fp32", true},
		{eight, "", "", "float32", true},
		{eight, "token_embedding", "", "int8", false},
		{eight, "token_embedding", "", "uint8", false},
		{eight, "", "fp32", "8bit", false},
		{eight, "token_embedding", "fp32", "uint8", false},
		{eight, "token_embedding", "uint8", "float32", true},
		{four, "token_embedding", "", "", false}, // 4-bit exempts no embedding
		{`"nesterov": false`, "token_embedding", "float32", "fp32", true},
	} {
		groups := ""
		if test.group != "" {
			groups = `, "param_groups": [{"params": ["*"], "state_precision": "` + test.group + `"}]`
		}
		opt, _ := newOptimizer(t, `{`+test.config+groups+`}`,
			optim.Param{Name: "w", Shape: []int64{4, 3}, Role: test.role, StatePrecision: test.param, Weights: f32(12)})
		require.Equal(t, test.wide, opt.State("w")[0].F32 != nil, "%+v", test)
	}
}

// TestRolesOfGroups: a group gives a role that the parameter does not have itself.
func TestRolesOfGroups(t *testing.T) {
	const text = `{"adam_8bit": true, "param_groups": [{"params": ["*"], "role": "token_embedding"}, {"params": ["b*"], "role": "matrix"}]}`
	opt, _ := newOptimizer(t, text,
		optim.Param{Name: "a", Shape: []int64{2, 2}, Weights: f32(4)},
		optim.Param{Name: "b", Shape: []int64{2, 2}, Weights: f32(4)},
		optim.Param{Name: "c", Shape: []int64{2, 2}, Role: "vector", Weights: f32(4)})
	require.Equal(t, []string{"exp_avg", "exp_avg_sq"}, kinds(opt.State("a")))
	for _, name := range []string{"b", "c"} {
		require.Equal(t, []string{"exp_avg", "exp_avg_absmax", "exp_avg_sq", "exp_avg_sq_absmax"}, kinds(opt.State(name)))
	}
}

// TestMuonPolicy: which parameters have a momentum alone.
func TestMuonPolicy(t *testing.T) {
	muon := []string{"exp_avg"}
	adamw := []string{"exp_avg", "exp_avg_sq"}
	for _, test := range []struct {
		shape []int64
		role  string
		group string
		want  []string
	}{
		{nil, "", "", adamw},
		{[]int64{6}, "", "", adamw},
		{[]int64{2, 3}, "", "", muon},
		{[]int64{1, 2, 3}, "", "", muon},
		{[]int64{2, 1, 3}, "conv", "", muon},
		{[]int64{2, 3}, "token_embedding", "", muon},
		{[]int64{2, 3}, "token_embedding", `"optimizer": "adamw"`, adamw},
		{[]int64{2, 3}, "", `"optimizer": "adamw"`, adamw},
		{[]int64{2, 3}, "", `"optimizer": "muon"`, muon},
		{[]int64{2, 3}, "", `"role": "vector"`, adamw},
		{[]int64{2, 3}, "vector", "", adamw},
	} {
		groups := ""
		if test.group != "" {
			groups = `, "param_groups": [{"params": ["*"], ` + test.group + `}]`
		}
		n := 1
		for _, size := range test.shape {
			n *= int(size)
		}
		opt, _ := newOptimizer(t, `{"type": "muon", "lr": 1`+groups+`}`, optim.Param{Name: "w", Shape: test.shape, Role: test.role, Weights: f32(n)})
		require.Equal(t, test.want, kinds(opt.State("w")), "%+v", test)
	}
	opt, _ := newOptimizer(t, `{"type": "muon", "lr": 1, "momentum_dtype": "8bit", "param_groups": [{"params": ["wide"], "state_precision": "fp32"}, {"params": ["bias"], "state_precision": "8bit"}]}`,
		optim.Param{Name: "w", Shape: []int64{2, 3}, Weights: f32(6)},
		optim.Param{Name: "wide", Shape: []int64{2, 3}, Weights: f32(6)},
		optim.Param{Name: "bias", Shape: []int64{6}, Weights: f32(6)},
		optim.Param{Name: "gain", Shape: []int64{6}, Weights: f32(6)})
	require.Equal(t, []string{"exp_avg", "exp_avg_absmax"}, kinds(opt.State("w")))
	require.Equal(t, []string{"exp_avg"}, kinds(opt.State("wide")))
	require.Equal(t, []string{"exp_avg", "exp_avg_absmax", "exp_avg_sq", "exp_avg_sq_absmax"}, kinds(opt.State("bias")))
	require.Equal(t, []string{"exp_avg", "exp_avg_sq"}, kinds(opt.State("gain")))
}

// TestMetrics has the documented example of 12 and 12 elements first.
func TestMetrics(t *testing.T) {
	params := func(narrow bool) []optim.Param {
		return []optim.Param{
			{Name: "emb", Shape: []int64{4, 3}, Role: "token_embedding", Weights: numbers(12, 1, narrow)},
			{Name: "w", Shape: []int64{3, 4}, Weights: numbers(12, 1, narrow)},
		}
	}
	for _, test := range []struct {
		config string
		narrow bool
		want   map[string]int64
	}{
		{`{"adam_8bit": true, "quant_block_size": 4}`, false, map[string]int64{
			"adam8_quantized_state_bytes": 24, "adam8_fp32_exempt_bytes": 96, "adam8_block_metadata_bytes": 24, "adam8_total_bytes": 144, "state_total_bytes": 144,
		}},
		{`{"adam_8bit": true, "quant_block_size": 4, "master": "split"}`, true, map[string]int64{
			"adam8_quantized_state_bytes": 24, "adam8_fp32_exempt_bytes": 96, "adam8_block_metadata_bytes": 24, "adam8_total_bytes": 144,
			"master_bytes": 48, "state_total_bytes": 192,
		}},
		{`{"adam_4bit": true, "quant_block_size": 32}`, false, map[string]int64{
			"adam4_quantized_state_bytes": 12, "adam4_scale_metadata_bytes": 2*4 + 2*7*4, "adam4_total_bytes": 76, "state_total_bytes": 76,
		}},
		{`{}`, false, map[string]int64{"state_total_bytes": 192}},
		{`{"moments_dtype": "bfloat16"}`, false, map[string]int64{"state_total_bytes": 96}}, // W for a weight of W bytes in fp32
		{`{"type": "muon", "lr": 1}`, false, map[string]int64{"state_total_bytes": 96}},
		{`{"type": "muon", "lr": 1, "momentum_dtype": "8bit", "quant_block_size": 12}`, false, map[string]int64{"state_total_bytes": 32}},
	} {
		opt, _ := newOptimizer(t, test.config, params(test.narrow)...)
		require.Equal(t, test.want, opt.Metrics(), test.config)
	}
}

// TestExemptAndQuantisedShareNoBlock: blocks restart at every parameter, so a large value
// in one does not coarsen another.
// A pointer to a configuration is the configuration: the optimizer keeps its values.
func TestPointerToAConfiguration(t *testing.T) {
	config := optim.DefaultAdamW()
	config.Adam8bit = true
	params := []optim.Param{{Name: "w", Shape: []int64{4}, Weights: kernels.Float32s(make([]float32, 4))}}
	opt, err := optim.New(&config, params)
	require.NoError(t, err)
	config.Adam8bit = false
	require.EqualValues(t, 16, opt.Metrics()["adam8_total_bytes"])
	for _, none := range []optim.Config{(*optim.AdamWConfig)(nil), (*optim.MuonConfig)(nil), nil} {
		_, err := optim.New(none, params)
		require.ErrorContains(t, err, "no configuration")
	}
}

func TestExemptAndQuantisedShareNoBlock(t *testing.T) {
	opt, _ := newOptimizer(t, `{"adam_8bit": true, "quant_block_size": 8}`,
		optim.Param{Name: "exempt", Shape: []int64{4}, StatePrecision: "fp32", Weights: f32(4), Gradients: kernels.Float32s([]float32{1e20, 1, 1, 1})},
		optim.Param{Name: "a", Shape: []int64{4}, Weights: f32(4), Gradients: kernels.Float32s([]float32{1, 2, 3, 4})},
		optim.Param{Name: "b", Shape: []int64{12}, Weights: f32(12), Gradients: numbers(12, 1, false)},
	)
	_, err := opt.Step()
	require.NoError(t, err)
	require.Equal(t, []float32{float32(1-0.9) * 4}, opt.State("a")[1].F32)
	require.Len(t, opt.State("b")[1].F32, 2)
}

// TestGroups: each setting alone against an optimizer that has it everywhere.
func TestGroups(t *testing.T) {
	for _, test := range []struct{ group, config, everywhere string }{
		{`"lr_scale": 0.5`, `"lr": 0.01`, `"lr": 0.005`},
		{`"lr_scale": 0`, `"lr": 0.01`, `"lr": 0`},
		{`"weight_decay": 0`, `"weight_decay": 0.5`, `"weight_decay": 0`},
		{`"weight_decay": 0.25`, `"weight_decay": 0.5`, `"weight_decay": 0.25`},
		{`"lr_scale": 0.5`, `"type": "muon", "lr": 0.01`, `"type": "muon", "lr": 0.005`},
		{`"weight_decay": 0.25`, `"type": "muon", "lr": 0.01`, `"type": "muon", "lr": 0.01, "weight_decay": 0.25, "adam_weight_decay": 0.25`},
	} {
		params := func() []optim.Param {
			var list []optim.Param
			for i, name := range []string{"layers.0.w", "layers.1.w", "layers.1.b"} {
				list = append(list, optim.Param{Name: name, Shape: []int64{2, 3}, Weights: numbers(6, uint64(i), false), Gradients: numbers(6, uint64(10+i), false)})
			}
			list[2].Shape = []int64{6}
			return list
		}
		grouped, got := newOptimizer(t, fmt.Sprintf(`{%s, "param_groups": [{"params": ["layers.1.*"], %s}]}`, test.config, test.group), params()...)
		inside, in := newOptimizer(t, `{`+test.everywhere+`}`, params()...)
		outside, out := newOptimizer(t, `{`+test.config+`}`, params()...)
		for range 3 {
			for _, o := range []*optim.Optimizer{grouped, inside, outside} {
				_, err := o.Step()
				require.NoError(t, err)
			}
		}
		require.Equal(t, out[0].Weights, got[0].Weights, test.group)
		require.Equal(t, in[1].Weights, got[1].Weights, test.group)
		require.Equal(t, in[2].Weights, got[2].Weights, test.group)
		require.NotEqual(t, in[1].Weights, out[1].Weights, test.group)
	}
}
