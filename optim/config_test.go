package optim

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

const commonDefaults = `"grad_clip_norm":null,"quant_block_size":128,"weight_rounding":"nearest","master":"none","seed":0,` +
	`"optimizer_state_offload":"none","optimizer_state_offload_batch_size":1`

const muonDefaults = `"ns_steps":null,"ns_method":"standard","eps":1e-8,"parity_norm":false,"consistent_rms":null,"momentum_dtype":"float32",` +
	`"adam_b1":0.9,"adam_b2":0.999,"adam_learning_rate":null,"adam_weight_decay":0,"adaptive":false,"beta":0.95,` + commonDefaults

func TestDefaults(t *testing.T) {
	adamw := `{"type":"adamw","lr":0.001,"weight_decay":0,"betas":[0.9,0.999],"eps":1e-8,"moments_dtype":"float32","moments_rounding":"nearest",` +
		`"adam_8bit":false,"adam_4bit":false,"nesterov":false,"variant":"torch","headroom":false,` + commonDefaults + `}`
	for _, test := range []struct{ document, want, adjust string }{
		{`{}`, adamw, ""},
		{`{"type": "adamw"}`, adamw, ""},
		{`{"type": "muon", "lr": 0.02}`, `{"type":"muon","variant":"optax","lr":0.02,"weight_decay":0,"nesterov":true,"ns_coeffs":"jordan","ns_dtype":"float32",` + muonDefaults + `}`, "optax"},
		{`{"type": "muon", "variant": "optax", "lr": 1}`, `{"type":"muon","variant":"optax","lr":1,"weight_decay":0,"nesterov":true,"ns_coeffs":"jordan","ns_dtype":"float32",` + muonDefaults + `}`, "optax"},
		{`{"variant": "torch", "type": "muon"}`, `{"type":"muon","variant":"torch","lr":0.001,"weight_decay":0.1,"nesterov":true,"ns_coeffs":"jordan","ns_dtype":"bfloat16",` + muonDefaults + `}`, "original"},
		{`{"type": "muon", "variant": "jordan"}`, `{"type":"muon","variant":"jordan","lr":0.02,"weight_decay":0,"nesterov":true,"ns_coeffs":"jordan","ns_dtype":"bfloat16",` + muonDefaults + `}`, "original"},
		{`{"type": "muon", "variant": "moonlight"}`, `{"type":"muon","variant":"moonlight","lr":0.001,"weight_decay":0.1,"nesterov":true,"ns_coeffs":"jordan","ns_dtype":"bfloat16",` + muonDefaults + `}`, "match_rms_adamw"},
		{`{"type": "muon", "variant": "dion"}`, `{"type":"muon","variant":"dion","lr":0.01,"weight_decay":0,"nesterov":false,"ns_coeffs":"polar-express-1.02","ns_dtype":"float32",` + muonDefaults + `}`, "spectral"},
	} {
		c, err := ParseConfig([]byte(test.document))
		require.NoError(t, err, test.document)
		written, err := json.Marshal(c)
		require.NoError(t, err)
		require.JSONEq(t, test.want, string(written), test.document)
		if muon, ok := c.(MuonConfig); ok {
			require.Equal(t, test.adjust, muon.adjust(), test.document)
		}
	}

	parsed, err := ParseConfig([]byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, DefaultAdamW(), parsed)
	muon := DefaultMuon()
	require.EqualError(t, muon.Validate(), "optim: lr: missing, want a number or a schedule")
	muon.LR = Constant(0.02)
	parsed, err = ParseConfig([]byte(`{"type": "muon", "lr": 0.02}`))
	require.NoError(t, err)
	require.Equal(t, muon, parsed)
}

// Two documents of each type which together give every key a value that is not its default.
var everyKey = []struct {
	document string
	want     Config
}{
	{
		`{"type": "adamw", "lr": {"type": "cosine", "peak": 0.01, "floor": 0.1, "warmup": 10, "total": 50, "denominator": "optax"},
		  "betas": [0.8, 0.95], "eps": 1e-45, "weight_decay": 0.1, "grad_clip_norm": 1, "moments_dtype": "bfloat16", "moments_rounding": "stochastic",
		  "nesterov": true, "variant": "optax", "nonfinite": "skip", "weight_rounding": "stochastic", "seed": 18446744073709551615,
		  "param_groups": [{"params": ["emb", "*.norm"], "lr_scale": 0, "weight_decay": 0, "role": "token_embedding"}, {"params": ["b"]}],
		  "optimizer_state_offload": "disk", "optimizer_state_offload_dir": "scratch", "optimizer_state_offload_batch_size": 4}`,
		AdamWConfig{
			Common: Common{
				LR:          Schedule{Type: "cosine", Peak: 0.01, Floor: 0.1, Warmup: 10, Total: 50, Denominator: "optax"},
				WeightDecay: 0.1, GradClipNorm: new(1.0), Nonfinite: "skip", QuantBlockSize: 128, WeightRounding: "stochastic", Master: "none",
				Seed: math.MaxUint64,
				ParamGroups: []ParamGroup{
					{Params: []string{"emb", "*.norm"}, LRScale: new(0.0), WeightDecay: new(0.0), Role: "token_embedding"},
					{Params: []string{"b"}},
				},
				OptimizerStateOffload: "disk", OptimizerStateOffloadDir: "scratch", OptimizerStateOffloadBatchSize: 4,
			},
			Betas: [2]float64{0.8, 0.95}, Eps: 1e-45, MomentsDtype: "bfloat16", MomentsRounding: "stochastic", Nesterov: true, Variant: "optax",
		},
	},
	{
		`{"lr": 0, "adam_8bit": true, "headroom": true, "quant_block_size": 1, "master": "split", "nonfinite": "propagate",
		  "param_groups": [{"params": ["*"], "state_precision": "int8"}]}`,
		AdamWConfig{
			Common: Common{
				LR: Constant(0), Nonfinite: "propagate", QuantBlockSize: 1, WeightRounding: "nearest", Master: "split",
				ParamGroups:           []ParamGroup{{Params: []string{"*"}, StatePrecision: "int8"}},
				OptimizerStateOffload: "none", OptimizerStateOffloadBatchSize: 1,
			},
			Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, MomentsDtype: "float32", MomentsRounding: "nearest", Adam8bit: true, Variant: "torch", Headroom: true,
		},
	},
	{
		`{"adam_4bit": true, "quant_block_size": 32, "optimizer_state_offload": "cpu"}`,
		AdamWConfig{
			Common: Common{
				LR: Constant(1e-3), QuantBlockSize: 32, WeightRounding: "nearest", Master: "none",
				OptimizerStateOffload: "cpu", OptimizerStateOffloadBatchSize: 1,
			},
			Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, MomentsDtype: "float32", MomentsRounding: "nearest", Adam4bit: true, Variant: "torch",
		},
	},
	{
		`{"type": "muon", "lr": {"type": "knots", "peak": 0.02, "total": 100, "knots": [{"at": 0, "frac": 0}, {"at": 0.1, "frac": 1, "interp": "hold"}]},
		  "beta": 0.9, "nesterov": false, "ns_steps": 0, "ns_coeffs": [[1.5, -0.5, 0], [2, -1.5, 0.5]], "ns_dtype": "bfloat16", "ns_method": "gram", "eps": 1e-6,
		  "parity_norm": true, "consistent_rms": 0.2, "weight_decay": 0.01, "grad_clip_norm": 0.5, "momentum_dtype": "8bit", "adam_b1": 0.8, "adam_b2": 0.95,
		  "adam_learning_rate": 0.001, "adam_weight_decay": 0.02, "adaptive": true, "quant_block_size": 4096, "seed": 7, "weight_rounding": "stochastic",
		  "nonfinite": "skip", "param_groups": [{"params": ["head"], "optimizer": "adamw", "state_precision": "fp32", "role": "matrix"}],
		  "optimizer_state_offload": "disk", "optimizer_state_offload_dir": "/scratch", "optimizer_state_offload_batch_size": 2}`,
		MuonConfig{
			Common: Common{
				LR:          Schedule{Type: "knots", Peak: 0.02, Total: 100, Knots: []Knot{{At: 0, Frac: 0}, {At: 0.1, Frac: 1, Interp: "hold"}}},
				WeightDecay: 0.01, GradClipNorm: new(0.5), Nonfinite: "skip", QuantBlockSize: 4096, WeightRounding: "stochastic", Master: "none", Seed: 7,
				ParamGroups:           []ParamGroup{{Params: []string{"head"}, Optimizer: "adamw", StatePrecision: "fp32", Role: "matrix"}},
				OptimizerStateOffload: "disk", OptimizerStateOffloadDir: "/scratch", OptimizerStateOffloadBatchSize: 2,
			},
			Variant: "optax", Beta: 0.9, NSSteps: new(0), NSCoeffs: NSCoeffs{Triples: []kernels.Triple{{1.5, -0.5, 0}, {2, -1.5, 0.5}}}, NSDtype: "bfloat16", NSMethod: "gram", Eps: 1e-6,
			ParityNorm: true, ConsistentRMS: new(0.2), MomentumDtype: "8bit", AdamB1: 0.8, AdamB2: 0.95, AdamLearningRate: new(Constant(0.001)),
			AdamWeightDecay: 0.02, Adaptive: true,
		},
	},
	{
		`{"type": "muon", "variant": "torch", "adjust": "match_rms_adamw", "master": "split", "ns_coeffs": [2, -1.5, 0.5], "ns_dtype": "float32", "weight_decay": 0}`,
		MuonConfig{
			Common: Common{
				LR: Constant(1e-3), QuantBlockSize: 128, WeightRounding: "nearest", Master: "split",
				OptimizerStateOffload: "none", OptimizerStateOffloadBatchSize: 1,
			},
			Variant: "torch", Beta: 0.95, Nesterov: true, NSCoeffs: NSCoeffs{Triples: []kernels.Triple{{2, -1.5, 0.5}}}, NSDtype: "float32", NSMethod: "standard", Eps: 1e-8,
			Adjust: "match_rms_adamw", MomentumDtype: "float32", AdamB1: 0.9, AdamB2: 0.999,
		},
	},
}

func TestEveryKey(t *testing.T) {
	for _, defaults := range []Config{DefaultAdamW(), DefaultMuon()} {
		for _, f := range jsonFields(reflect.TypeOf(defaults)) {
			set := false
			for _, test := range everyKey {
				if test.want.Type() == defaults.Type() {
					value := func(c Config) any { return reflect.ValueOf(c).FieldByIndex(f.index).Interface() }
					set = set || !reflect.DeepEqual(value(test.want), value(defaults))
				}
			}
			require.True(t, set, "%s %s is set by no test", defaults.Type(), f.key)
		}
	}
	for _, test := range everyKey {
		got, err := ParseConfig([]byte(test.document))
		require.NoError(t, err, test.document)
		require.Equal(t, test.want, got)
		requireRoundTrip(t, got)
	}
	require.Equal(t, "match_rms_adamw", everyKey[4].want.(MuonConfig).adjust())
}

func requireRoundTrip(t *testing.T, c Config) {
	t.Helper()
	written, err := json.Marshal(c)
	require.NoError(t, err)
	again, err := ParseConfig(written)
	require.NoError(t, err, "%s", written)
	require.Equal(t, c, again, "%s", written)
}

func TestAWrongTypeIsRefusedForEveryKey(t *testing.T) {
	for _, c := range []Config{DefaultAdamW(), DefaultMuon()} {
		for _, f := range jsonFields(reflect.TypeOf(c)) {
			wrong := "true"
			if reflect.TypeOf(c).FieldByIndex(f.index).Type.Kind() == reflect.Bool {
				wrong = "7"
			}
			values := []string{wrong}
			if !strings.HasPrefix(f.want, orNull) {
				values = append(values, "null")
			}
			for _, value := range values {
				_, err := ParseConfig([]byte(`{"type": "` + c.Type() + `", "` + f.key + `": ` + value + `}`))
				require.ErrorContains(t, err, "optim: "+f.key+": got "+value+", want ")
			}
		}
	}
}

func TestNullMeansAbsent(t *testing.T) {
	for _, defaults := range []Config{DefaultAdamW(), defaultMuon("torch")} {
		for _, f := range jsonFields(reflect.TypeOf(defaults)) {
			if strings.HasPrefix(f.want, orNull) {
				got, err := ParseConfig([]byte(`{"type": "` + defaults.Type() + `", "variant": "torch", "` + f.key + `": null}`))
				require.NoError(t, err, f.key)
				require.Equal(t, defaults, got, f.key)
			}
		}
	}
}

// The keys in the order of the fields.
const (
	commonKeys = "type, lr, weight_decay, grad_clip_norm, nonfinite, quant_block_size, weight_rounding, master, seed, param_groups, " +
		"optimizer_state_offload, optimizer_state_offload_dir, optimizer_state_offload_batch_size, "
	adamWKeys = commonKeys + "betas, eps, moments_dtype, moments_rounding, adam_8bit, adam_4bit, nesterov, variant, headroom"
	muonKeys  = commonKeys + "variant, beta, nesterov, ns_steps, ns_coeffs, ns_dtype, ns_method, eps, parity_norm, consistent_rms, " +
		"adjust, momentum_dtype, adam_b1, adam_b2, adam_learning_rate, adam_weight_decay, adaptive"
)

func TestRefused(t *testing.T) {
	for _, test := range []struct{ document, want string }{
		// The document.
		{"{\"seed\xff\": 1}", `the configuration is not valid UTF-8`},
		{`[]`, `got an array, want an object`},
		{`null`, `got null, want an object`},
		{`"adamw"`, `got "adamw", want an object`},
		{`{"lr": 1, "lr": 1}`, `key "lr" appears twice`},
		{`{"type": "adamw", "type": "muon"}`, `key "type" appears twice`},
		{`{"lr": {"type": "constant", "peak": 1, "peak": 2}}`, `lr: key "peak" appears twice`},
		{`{"param_groups": [{"params": ["a"], "role": "conv", "role": "conv"}]}`, `param_groups[0]: key "role" appears twice`},

		// Unknown keys.
		{`{"amsgrad": true}`, `unknown key "amsgrad", want one of ` + adamWKeys},
		{`{"optim_bits": 8}`, `unknown key "optim_bits", here called "adam_8bit"`},
		{`{"learning_rate": 8}`, `unknown key "learning_rate", here called "lr"`},
		{`{"type": "muon", "learningRate": 8}`, `unknown key "learningRate", here called "lr"`},
		{`{"beta1": 0.9}`, `unknown key "beta1", here called "betas"`},
		{`{"type": "muon", "beta2": 0.9}`, `unknown key "beta2", here called "adam_b2"`},
		{`{"momentum": 0.9}`, `unknown key "momentum", here called "betas"`},
		{`{"wd": 0.1}`, `unknown key "wd", here called "weight_decay"`},
		{`{"weight-decay": 0.1}`, `unknown key "weight-decay", the nearest valid key is "weight_decay"`},
		{`{"epsilon": 0.1}`, `unknown key "epsilon", here called "eps"`},
		{`{"LR": 1}`, `unknown key "LR", the nearest valid key is "lr"`},
		{`{"beta": [0.9, 0.999]}`, `unknown key "beta", the nearest valid key is "betas"`},
		{`{"tpye": "muon"}`, `unknown key "tpye", the nearest valid key is "type"`},
		{`{"master_weights": true}`, `unknown key "master_weights", the nearest valid key is "master"`},
		{`{"Common": {}}`, `unknown key "Common", want one of ` + adamWKeys},
		{`{"": 1}`, `unknown key "", want one of ` + adamWKeys},
		{`{"é": 1}`, `unknown key "é", want one of ` + adamWKeys},
		{`{"type": "muon", "lr": 1, "betas": [0.9, 0.999]}`, `unknown key "betas", the nearest valid key is "beta"`},
		{`{"type": "muon", "lr": 1, "ns_coefs": "dion"}`, `unknown key "ns_coefs", the nearest valid key is "ns_coeffs"`},
		{`{"lr": {"type": "linear", "peak": 1, "warm_up": 1}}`, `lr: unknown key "warm_up", the nearest valid key is "warmup"`},
		{`{"lr": {"type": "linear", "peak": 1, "restarts": 1}}`, `lr: unknown key "restarts", want one of type, peak, floor, warmup, total, denominator, knots`},
		{`{"lr": {"type": "knots", "peak": 1, "knots": [{"at": 0, "fraction": 1}]}}`, `lr.knots[0]: unknown key "fraction", the nearest valid key is "frac"`},
		{`{"param_groups": [{"params": ["a"]}, {"params": ["b"], "lr": 1}]}`, `param_groups[1]: unknown key "lr", here called "lr_scale"`},
		{`{"` + strings.Repeat("x", 1000) + `": 1}`, `unknown key "` + strings.Repeat("x", 59) + `…, want one of ` + adamWKeys},

		// Common keys.
		{`{"type": 1}`, `type: got 1, want adamw or muon`},
		{`{"type": null}`, `type: got null, want adamw or muon`},
		{`{"type": "AdamW"}`, `type: got "AdamW", want adamw or muon`},
		{`{"type": "sgd", "momentum": 0.9}`, `type: got "sgd", want adamw or muon`},
		{`{"lr": -1e-3}`, `lr: got -0.001, want a number >= 0`},
		{`{"lr": "1e-3"}`, `lr: got "1e-3", want a number or a schedule`},
		{`{"lr": [1]}`, `lr: got an array, want a number or a schedule`},
		{`{"lr": 1e400}`, `lr: got 1e400, which is beyond float64`},
		{`{"weight_decay": -0.1}`, `weight_decay: got -0.1, want a number >= 0`},
		{`{"weight_decay": -1e999}`, `weight_decay: got -1e999, which is beyond float64`},
		{`{"grad_clip_norm": 0}`, `grad_clip_norm: got 0, want null or a number > 0`},
		{`{"grad_clip_norm": "off"}`, `grad_clip_norm: got "off", want null or a number > 0`},
		{`{"nonfinite": "ignore"}`, `nonfinite: got "ignore", want null, propagate or skip`},
		{`{"nonfinite": ""}`, `nonfinite: got "", want null, propagate or skip`},
		{`{"quant_block_size": 0}`, `quant_block_size: got 0, want an integer in [1, 4096]`},
		{`{"quant_block_size": -1}`, `quant_block_size: got -1, want an integer in [1, 4096]`},
		{`{"quant_block_size": 4097}`, `quant_block_size: got 4097, want an integer in [1, 4096]`},
		{`{"quant_block_size": 128.5}`, `quant_block_size: got 128.5, want an integer in [1, 4096]`},
		{`{"quant_block_size": 99999999999999999999}`, `quant_block_size: got 99999999999999999999, want an integer in [1, 4096]`},
		{`{"weight_rounding": "up"}`, `weight_rounding: got "up", want nearest or stochastic`},
		{`{"weight_rounding": ""}`, `weight_rounding: got "", want nearest or stochastic`},
		{`{"master": "fp32"}`, `master: got "fp32", want none or split`},
		{`{"master": "split", "weight_rounding": "stochastic"}`, `master: split excludes weight_rounding stochastic`},
		{`{"seed": -1}`, `seed: got -1, want an integer in [0, 2^64)`},
		{`{"seed": 18446744073709551616}`, `seed: got 18446744073709551616, want an integer in [0, 2^64)`},
		{`{"optimizer_state_offload": "gpu"}`, `optimizer_state_offload: got "gpu", want none, cpu or disk`},
		{`{"optimizer_state_offload": "disk"}`, `optimizer_state_offload_dir: missing, want a directory for optimizer_state_offload disk`},
		{`{"optimizer_state_offload_dir": "/tmp"}`, `optimizer_state_offload: none excludes optimizer_state_offload_dir "/tmp"`},
		{`{"optimizer_state_offload": "cpu", "optimizer_state_offload_dir": "/tmp"}`, `optimizer_state_offload: cpu excludes optimizer_state_offload_dir "/tmp"`},
		{`{"optimizer_state_offload": "disk", "optimizer_state_offload_dir": 7}`, `optimizer_state_offload_dir: got 7, want null or a directory`},
		{`{"optimizer_state_offload_batch_size": 0}`, `optimizer_state_offload_batch_size: got 0, want an integer >= 1`},

		// AdamW.
		{`{"betas": 0.9}`, `betas: got 0.9, want an array of 2 numbers in [0, 1)`},
		{`{"betas": []}`, `betas: got 0 elements, want 2`},
		{`{"betas": [0.9]}`, `betas: got 1 elements, want 2`},
		{`{"betas": [0.9, 0.99, 0.999]}`, `betas: got 3 elements, want 2`},
		{`{"betas": [0.9, 1]}`, `betas[1]: got 1, want a number in [0, 1)`},
		{`{"betas": [-0.1, 0.9]}`, `betas[0]: got -0.1, want a number in [0, 1)`},
		{`{"betas": [0.9, "0.999"]}`, `betas[1]: got "0.999", want a number in [0, 1)`},
		{`{"eps": 1e-46}`, `eps: got 1e-46, want a number in [1e-45, 3e+38]`},
		{`{"eps": 1e39}`, `eps: got 1e+39, want a number in [1e-45, 3e+38]`},
		{`{"eps": -1}`, `eps: got -1, want a number in [1e-45, 3e+38]`},
		{`{"moments_dtype": "bf16"}`, `moments_dtype: got "bf16", want float32 or bfloat16`},
		{`{"moments_dtype": "bfloat16", "moments_rounding": "truncate"}`, `moments_rounding: got "truncate", want nearest or stochastic`},
		{`{"moments_rounding": "stochastic"}`, `moments_dtype: float32 excludes moments_rounding stochastic`},
		{`{"adam_8bit": true, "adam_4bit": true}`, `adam_8bit: true excludes adam_4bit true`},
		{`{"adam_8bit": true, "moments_dtype": "bfloat16"}`, `adam_8bit: true excludes moments_dtype bfloat16`},
		{`{"adam_4bit": true, "moments_dtype": "bfloat16"}`, `adam_4bit: true excludes moments_dtype bfloat16`},
		{`{"adam_8bit": true, "moments_rounding": "stochastic"}`, `adam_8bit: true excludes moments_rounding stochastic`},
		{`{"adam_4bit": true, "moments_rounding": "stochastic"}`, `adam_4bit: true excludes moments_rounding stochastic`},
		{`{"adam_8bit": 1}`, `adam_8bit: got 1, want true or false`},
		{`{"adam_4bit": "true"}`, `adam_4bit: got "true", want true or false`},
		{`{"adam_4bit": true, "quant_block_size": 16}`, `quant_block_size: got 16, want a power of two in [32, 1024] with adam_4bit`},
		{`{"adam_4bit": true, "quant_block_size": 100}`, `quant_block_size: got 100, want a power of two in [32, 1024] with adam_4bit`},
		{`{"adam_4bit": true, "quant_block_size": 2048}`, `quant_block_size: got 2048, want a power of two in [32, 1024] with adam_4bit`},
		{`{"nesterov": 0}`, `nesterov: got 0, want true or false`},
		{`{"variant": "moonlight"}`, `variant: got "moonlight", want torch or optax`},
		{`{"variant": "optax", "betas": [0.9, 0.99999999]}`, `betas[1]: got 0.99999999, which is 1 in float32, want less with variant optax`},
		{`{"headroom": true}`, `headroom: true excludes adam_8bit false`},
		{`{"headroom": true, "adam_4bit": true}`, `headroom: true excludes adam_8bit false`},

		// Muon.
		{`{"type": "muon"}`, `lr: missing, want a number or a schedule`},
		{`{"type": "muon", "variant": "keller"}`, `variant: got "keller", want optax, torch, jordan, moonlight or dion`},
		{`{"type": "muon", "variant": null}`, `variant: got null, want optax, torch, jordan, moonlight or dion`},
		{`{"type": "muon", "lr": 1, "beta": 1}`, `beta: got 1, want a number in [0, 1)`},
		{`{"type": "muon", "lr": 1, "ns_steps": -1}`, `ns_steps: got -1, want null or an integer in [0, 99]`},
		{`{"type": "muon", "lr": 1, "ns_steps": 100}`, `ns_steps: got 100, want null or an integer in [0, 99]`},
		{`{"type": "muon", "lr": 1, "ns_steps": 5.0}`, `ns_steps: got 5.0, want null or an integer in [0, 99]`},
		{`{"type": "muon", "lr": 1, "ns_dtype": "float16"}`, `ns_dtype: got "float16", want float32 or bfloat16`},
		{`{"type": "muon", "lr": 1, "ns_method": "svd"}`, `ns_method: got "svd", want standard or gram`},
		{`{"type": "muon", "lr": 1, "eps": -1}`, `eps: got -1, want a number in [1e-45, 3e+38]`},
		{`{"type": "muon", "lr": 1, "consistent_rms": 0}`, `consistent_rms: got 0, want null or a number > 0`},
		{`{"type": "muon", "lr": 1, "adjust": "none"}`, `adjust: got "none", want null, optax, original, match_rms_adamw or spectral`},
		{`{"type": "muon", "lr": 1, "momentum_dtype": "4bit"}`, `momentum_dtype: got "4bit", want float32, bfloat16, 8bit or linear8`},
		{`{"type": "muon", "lr": 1, "adam_b1": 1}`, `adam_b1: got 1, want a number in [0, 1)`},
		{`{"type": "muon", "lr": 1, "adam_b2": -1}`, `adam_b2: got -1, want a number in [0, 1)`},
		{`{"type": "muon", "lr": 1, "adam_learning_rate": -1}`, `adam_learning_rate: got -1, want a number >= 0`},
		{`{"type": "muon", "lr": 1, "adam_learning_rate": {"type": "linear", "peak": 1}}`, `adam_learning_rate.total: got 0, want an integer >= 1`},
		{`{"type": "muon", "lr": 1, "adam_weight_decay": -1}`, `adam_weight_decay: got -1, want a number >= 0`},
		{`{"type": "muon", "variant": "torch", "adaptive": true}`, `adaptive: true excludes variant torch`},
		{`{"type": "muon", "lr": 0.02, "ns_method": "gram", "ns_dtype": "bfloat16", "ns_coeffs": "polar-express"}`, `ns_method: gram excludes ns_coeffs polar-express with ns_dtype bfloat16`},
		{`{"type": "muon", "variant": "dion", "consistent_rms": 0.2}`, `consistent_rms: a number excludes variant dion`},
		{`{"type": "muon", "lr": 1, "consistent_rms": 0.2, "adjust": "original"}`, `consistent_rms: a number excludes adjust original`},
		{`{"type": "muon", "lr": 1, "headroom": true}`, `unknown key "headroom", want one of ` + muonKeys},

		// Groups.
		{`{"param_groups": {"params": ["a"]}}`, `param_groups: got an object, want an array`},
		{`{"param_groups": ["a"]}`, `param_groups[0]: got "a", want an object`},
		{`{"param_groups": [{}]}`, `param_groups[0].params: missing, want an array`},
		{`{"param_groups": [{"params": "a"}]}`, `param_groups[0].params: got "a", want an array`},
		{`{"param_groups": [{"params": []}]}`, `param_groups[0].params: got none, want at least one pattern`},
		{`{"param_groups": [{"params": [""]}]}`, `param_groups[0].params[0]: got "", want a string of at least one character`},
		{`{"param_groups": [{"params": ["a", "[b"]}]}`, `param_groups[0].params[1]: malformed pattern "[b": [ needs characters and a ]`},
		{`{"param_groups": [{"params": ["a"], "lr_scale": -1}]}`, `param_groups[0].lr_scale: got -1, want null or a number >= 0`},
		{`{"param_groups": [{"params": ["a"], "weight_decay": -1}]}`, `param_groups[0].weight_decay: got -1, want null or a number >= 0`},
		{`{"param_groups": [{"params": ["a"], "role": "embedding"}]}`, `param_groups[0].role: got "embedding", want null, token_embedding, matrix, conv or vector`},
		{`{"adam_8bit": true, "param_groups": [{"params": ["a"], "state_precision": "bf16"}]}`, `param_groups[0].state_precision: got "bf16", want null, 8bit, fp32, uint8, int8 or float32`},
		{`{"param_groups": [{"params": ["a"], "state_precision": "uint8"}]}`, `param_groups[0].state_precision: uint8 excludes adam_8bit false`},
		{`{"adam_4bit": true, "param_groups": [{"params": ["a"], "state_precision": "fp32"}]}`, `param_groups[0].state_precision: fp32 excludes adam_4bit true`},
		{`{"moments_dtype": "bfloat16", "param_groups": [{"params": ["a"], "state_precision": "float32"}]}`, `param_groups[0].state_precision: float32 excludes moments_dtype bfloat16`},
		{`{"param_groups": [{"params": ["a"], "optimizer": "adamw"}]}`, `param_groups[0].optimizer: adamw excludes type adamw`},
		{`{"type": "muon", "lr": 1, "param_groups": [{"params": ["a"], "optimizer": "sgd"}]}`, `param_groups[0].optimizer: got "sgd", want null, muon or adamw`},
		{`{"type": "muon", "lr": 1, "param_groups": [{"params": ["a"], "state_precision": "8bit"}]}`, `param_groups[0].state_precision: 8bit excludes momentum_dtype float32`},
		{`{"type": "muon", "lr": 1, "momentum_dtype": "bfloat16", "param_groups": [{"params": ["a"], "state_precision": "fp32"}]}`, `param_groups[0].state_precision: fp32 excludes momentum_dtype bfloat16`},

		// Schedules.
		{`{"lr": {"peak": 1}}`, `lr.type: missing, want constant, linear, cosine or knots`},
		{`{"lr": {"type": "constant"}}`, `lr.peak: missing, want a number >= 0`},
		{`{"lr": {"type": "step", "peak": 1}}`, `lr.type: got "step", want constant, linear, cosine or knots`},
		{`{"lr": {"type": "constant", "peak": -1}}`, `lr.peak: got -1, want a number >= 0`},
		{`{"lr": {"type": "cosine", "peak": 1, "total": 10, "floor": 1.5}}`, `lr.floor: got 1.5, want a number in [0, 1]`},
		{`{"lr": {"type": "cosine", "peak": 1, "total": 10, "warmup": -1}}`, `lr.warmup: got -1, want an integer >= 0`},
		{`{"lr": {"type": "cosine", "peak": 1, "total": 10, "warmup": 10}}`, `lr.warmup: got 10, want fewer steps than total's 10`},
		{`{"lr": {"type": "cosine", "peak": 1}}`, `lr.total: got 0, want an integer >= 1`},
		{`{"lr": {"type": "linear", "peak": 1, "total": -5}}`, `lr.total: got -5, want an integer >= 0`},
		{`{"lr": {"type": "linear", "peak": 1, "total": 1e3}}`, `lr.total: got 1e3, want an integer >= 0`},
		{`{"lr": {"type": "linear", "peak": 1, "total": 10, "denominator": "jax"}}`, `lr.denominator: got "jax", want null, torch or optax`},
		{`{"lr": {"type": "constant", "peak": 1, "floor": 0.5}}`, `lr.floor: means nothing in a constant schedule`},
		{`{"lr": {"type": "constant", "peak": 1, "total": 5}}`, `lr.total: means nothing in a constant schedule`},
		{`{"lr": {"type": "linear", "peak": 1, "total": 5, "knots": [{"at": 0, "frac": 1}]}}`, `lr.knots: means nothing in a linear schedule`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "warmup": 1, "knots": [{"at": 0, "frac": 1}]}}`, `lr.warmup: means nothing in a knots schedule`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5}}`, `lr.knots: got none, want at least one`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "knots": [{"frac": 1}]}}`, `lr.knots[0].at: missing, want a number in [0, 1]`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "knots": [{"at": 0}]}}`, `lr.knots[0].frac: missing, want a number in [0, 1]`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "knots": [{"at": 2, "frac": 1}]}}`, `lr.knots[0].at: got 2, want a number in [0, 1]`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "knots": [{"at": 0, "frac": 2}]}}`, `lr.knots[0].frac: got 2, want a number in [0, 1]`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "knots": [{"at": 0, "frac": 1, "interp": "spline"}]}}`, `lr.knots[0].interp: got "spline", want null, linear, cosine or hold`},
		{`{"lr": {"type": "knots", "peak": 1, "total": 5, "knots": [{"at": 0.5, "frac": 1}, {"at": 0.5, "frac": 0}]}}`, `lr.knots[1].at: got 0.5, want more than the 0.5 before it`},
	} {
		c, err := ParseConfig([]byte(test.document))
		require.EqualError(t, err, "optim: "+test.want, shorten(test.document))
		require.Nil(t, c)
	}
}

func TestMalformedJSON(t *testing.T) {
	for _, document := range []string{
		``, ` `, `{"lr": 1`, `{"lr": 1} {}`, `{"lr": 1}]`, `{"lr": 1,}`, `{lr: 1}`, `{"lr": NaN}`, `{"lr": Infinity}`, `{"lr": 01}`, `{"lr": .5}`,
		"\ufeff{}", strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
	} {
		c, err := ParseConfig([]byte(document))
		require.Nil(t, c)
		require.Error(t, err, shorten(document))
		require.True(t, strings.HasPrefix(err.Error(), "optim: the configuration is not valid JSON: "), err.Error())

		require.Error(t, new(Schedule).UnmarshalJSON([]byte(document)))
		require.Error(t, new(NSCoeffs).UnmarshalJSON([]byte(document)))
	}
}

// What JSON cannot say, or the parser never leaves behind.
func TestValidateOfConfigsBuiltInGo(t *testing.T) {
	adamw := func(change func(*AdamWConfig)) Config {
		c := DefaultAdamW()
		change(&c)
		return c
	}
	muon := func(change func(*MuonConfig)) Config {
		c := defaultMuon("torch")
		change(&c)
		return c
	}
	for _, test := range []struct {
		config Config
		want   string
	}{
		{AdamWConfig{}, `lr: missing, want a number or a schedule; start from DefaultAdamW, which sets every key that has a default`},
		{MuonConfig{}, `lr: missing, want a number or a schedule; start from DefaultMuon, which sets every key that has a default`},
		{DefaultMuon(), `lr: missing, want a number or a schedule`},
		{adamw(func(c *AdamWConfig) { c.LR = Constant(math.NaN()) }), `lr.peak: got NaN, want a number >= 0`},
		{adamw(func(c *AdamWConfig) { c.LR = Constant(math.Inf(1)) }), `lr.peak: got +Inf, want a number >= 0`},
		{adamw(func(c *AdamWConfig) { c.LR = Schedule{Peak: 1} }), `lr.type: got "", want constant, linear, cosine or knots`},
		{adamw(func(c *AdamWConfig) { c.Betas[0] = math.NaN() }), `betas[0]: got NaN, want a number in [0, 1)`},
		{adamw(func(c *AdamWConfig) { c.WeightDecay = math.Inf(1) }), `weight_decay: got +Inf, want a number >= 0`},
		{adamw(func(c *AdamWConfig) { c.GradClipNorm = new(math.Inf(1)) }), `grad_clip_norm: got +Inf, want null or a number > 0`},
		{adamw(func(c *AdamWConfig) { c.GradClipNorm = new(0.0) }), `grad_clip_norm: got 0, want null or a number > 0`},
		{adamw(func(c *AdamWConfig) { c.MomentsDtype = "" }), `moments_dtype: got "", want float32 or bfloat16`},
		{adamw(func(c *AdamWConfig) { c.ParamGroups = []ParamGroup{{}} }), `param_groups[0].params: got none, want at least one pattern`},
		{adamw(func(c *AdamWConfig) { c.OptimizerStateOffloadBatchSize = 0 }), `optimizer_state_offload_batch_size: got 0, want an integer >= 1`},
		{muon(func(c *MuonConfig) { c.Variant = "" }), `variant: got "", want optax, torch, jordan, moonlight or dion`},
		{muon(func(c *MuonConfig) { c.AdamLearningRate = &Schedule{} }), `adam_learning_rate: missing, want null or a number or a schedule`},
		{muon(func(c *MuonConfig) { c.NSCoeffs = NSCoeffs{} }), `ns_coeffs: missing, want a preset's name, a triple or a list of triples`},
		{muon(func(c *MuonConfig) { c.NSCoeffs.Triples = []kernels.Triple{{1}} }), `ns_coeffs: got preset jordan and triples, want one of the two`},
		{muon(func(c *MuonConfig) { c.NSCoeffs = NSCoeffs{Triples: []kernels.Triple{{}, {0, 0, math.NaN()}}} }), `ns_coeffs: newton-schulz: coefficient c of polynomial 1 is NaN, want a finite float32`},
		{muon(func(c *MuonConfig) { c.NSCoeffs = NSCoeffs{Triples: []kernels.Triple{}} }), `ns_coeffs: newton-schulz: the list of polynomials is empty, want one triple or more`},
		{muon(func(c *MuonConfig) { c.ConsistentRMS = new(math.NaN()) }), `consistent_rms: got NaN, want null or a number > 0`},
	} {
		require.EqualError(t, test.config.Validate(), "optim: "+test.want)
	}
	require.NoError(t, DefaultAdamW().Validate())
	for variant := range muonVariants {
		if variant != "optax" {
			require.NoError(t, defaultMuon(variant).Validate())
		}
	}
}

func TestUnmarshalIntoAConfig(t *testing.T) {
	var document struct {
		Optimizer AdamWConfig
		Muon      MuonConfig
	}
	require.NoError(t, json.Unmarshal([]byte(`{"Optimizer": {"adam_8bit": true}, "Muon": {"type": "muon", "variant": "dion"}}`), &document))
	want := DefaultAdamW()
	want.Adam8bit = true
	require.Equal(t, want, document.Optimizer)
	require.Equal(t, defaultMuon("dion"), document.Muon)

	before := document.Optimizer
	require.EqualError(t, json.Unmarshal([]byte(`{"Optimizer": {"type": "muon", "variant": "torch"}}`), &document), "optim: type: got muon, want adamw")
	require.EqualError(t, json.Unmarshal([]byte(`{"Muon": {}}`), &document), "optim: type: got adamw, want muon")
	require.EqualError(t, json.Unmarshal([]byte(`{"Optimizer": {"amsgrad": true}}`), &document), "optim: unknown key \"amsgrad\", want one of "+adamWKeys)
	require.Equal(t, before, document.Optimizer)
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		document string
		warns    bool
	}{
		{`{"moments_dtype": "bfloat16"}`, true},
		{`{"moments_dtype": "bfloat16", "betas": [0.9, 0.997]}`, true},
		{`{"moments_dtype": "bfloat16", "betas": [0.9, 0.996]}`, false},
		{`{"moments_dtype": "bfloat16", "moments_rounding": "stochastic"}`, false},
		{`{"adam_8bit": true}`, false},
		{`{}`, false},
		{`{"type": "muon", "lr": 1, "momentum_dtype": "bfloat16"}`, false},
	} {
		c, err := ParseConfig([]byte(test.document))
		require.NoError(t, err)
		if test.warns {
			require.Len(t, c.Warnings(), 1, test.document)
			require.Contains(t, c.Warnings()[0], "betas[1]: got 0.99")
		} else {
			require.Empty(t, c.Warnings(), test.document)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, test := range everyKey {
		f.Add([]byte(test.document))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			require.Nil(t, c)
			require.True(t, strings.HasPrefix(err.Error(), "optim: "), err.Error())
			require.Less(t, len(err.Error()), 600)
			return
		}
		require.NoError(t, c.Validate())
		requireRoundTrip(t, c)
	})
}
