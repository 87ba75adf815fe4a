package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func planOf(t *testing.T, args ...string) (p planJSON) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, append([]string{"plan", "--json"}, args...)...)), &p))
	return p
}

func (p planJSON) configuration(t *testing.T, name string) planConfiguration {
	t.Helper()
	for _, c := range p.Configurations {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no configuration "+name)
	return planConfiguration{}
}

// TestPlanOfDecoders compares with the published numbers of parameters.
func TestPlanOfDecoders(t *testing.T) {
	for name, test := range map[string]struct {
		config     string
		parameters int64
	}{
		"Llama 2 7B": {`{"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
			"num_attention_heads": 32, "tie_word_embeddings": false, "torch_dtype": "float16"}`, 6738415616},
		"Llama 3 8B": {`{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16"}`, 8030261248},
		"Mistral 7B": {`{"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": null}`, 7241732096},
		"Mixtral 8x7B": {`{"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8}`, 46702792704},
		"Qwen2 0.5B": {`{"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
			"num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": true}`, 494032768},
		"Qwen2 7B": {`{"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
			"num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": false}`, 7615616512},
		"Qwen3 0.6B": {`{"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
			"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": true}`, 596049920},
		"Qwen3 30B A3B": {`{"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
			"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "moe_intermediate_size": 768,
			"decoder_sparse_step": 1, "mlp_only_layers": []}`, 30532122624},
		"Gemma 2B": {`{"model_type": "gemma", "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
			"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256}`, 2506172416},
		"Gemma 2 2B": {`{"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
			"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}`, 2614341888},
		"Gemma 3 1B": {`{"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
			"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256}`, 999885952},
		"Phi-3 mini": {`{"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 32}`, 3821079552},
		"GPT-2": {`{"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}`, 124439808},
		"Pythia 70M": {`{"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6,
			"num_attention_heads": 8, "tie_word_embeddings": false}`, 70426624},
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(path, []byte(test.config), 0o644))
		p := planOf(t, path)
		require.Equal(t, test.parameters, p.Parameters, name)
		width := int64(4)
		if strings.Contains(test.config, "float16") {
			width = 2
		}
		require.Equal(t, width*test.parameters, p.configuration(t, "adamw_8bit").WeightsBytes, name)
		require.Equal(t, 8*test.parameters, p.configuration(t, "adamw_float32").StateBytes, name)
		require.Equal(t, 4*test.parameters, planOf(t, path, "--dtype", "float32").configuration(t, "muon").WeightsBytes, name)
	}
}

// TestPlanRoles: token embeddings stay float32 in adamw_8bit and by AdamW in muon.
func TestPlanRoles(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "model.safetensors")
	const rows, cols = 256, 32
	store(t, path, nil,
		f32("model.embed_tokens.weight", numbers(rows*cols), rows, cols),
		f32("a[0]*.wte", numbers(rows*cols), rows, cols),
		f32("w", numbers(rows*cols), rows, cols),
		tensor{"steps", "I64", nil, make([]byte, 8)},
	)
	p := planOf(t, path)
	require.Equal(t, []string{"steps"}, p.Skipped)
	require.Equal(t, 3, p.Tensors)
	const n = rows * cols
	require.Equal(t, int64(2*8*n+2*n+2*4*n/128), p.configuration(t, "adamw_8bit").StateBytes)
	require.Equal(t, int64(2*8*n+4*n), p.configuration(t, "muon").StateBytes)
	require.Equal(t, int64(2*8*n+2*n), p.configuration(t, "muon_bfloat16").StateBytes)
	for _, name := range []string{"muon_8bit", "muon_linear8"} {
		require.Equal(t, int64(2*8*n+n+4*n/128), p.configuration(t, name).StateBytes)
	}
	require.Contains(t, succeeds(t, "plan", path), "left out: steps")
}

// TestPlanIsWhatStepReports for a configuration of one's own.
func TestPlanIsWhatStepReports(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("p"), nil, f32("embed_tokens", numbers(300), 30, 10), tensor{"b", "BF16", []int64{77}, make([]byte, 154)})
	store(t, at("g"), nil, f32("b", numbers(77), 77))
	for i, config := range []string{`{}`, `{"adam_8bit": true, "master": "split"}`, `{"adam_4bit": true}`, `{"type": "muon", "lr": 1}`} {
		require.NoError(t, os.WriteFile(at("own.json"), []byte(config), 0o644))
		var line stepJSON
		out := succeeds(t, "step", "--config", at("own.json"), "--params", at("p"), "--grads", at("g"),
			"--out-params", at(fmt.Sprint("p", i)), "--out-state", at(fmt.Sprint("s", i)))
		require.NoError(t, json.Unmarshal([]byte(out), &line))
		c := planOf(t, at("p"), "--config", at("own.json")).configuration(t, "own")
		require.Equal(t, line.State["state_total_bytes"], c.StateBytes+c.MasterBytes)
		require.Equal(t, line.State["master_bytes"], c.MasterBytes)
		require.Equal(t, c.MomentsBytes+c.MetadataBytes, c.StateBytes)
		require.Equal(t, c.WeightsBytes+c.GradientsBytes+c.StateBytes+c.MasterBytes, c.TotalBytes)
	}
}

func TestPlanPerRank(t *testing.T) {
	p := planOf(t, "--shapes", "4096x4096", "--shards", "8")
	c := p.configuration(t, "adamw_8bit")
	require.Equal(t, c.WeightsBytes+c.GradientsBytes+c.StateBytes/8, c.PerRankBytes)
	require.Contains(t, succeeds(t, "plan", "--shapes", "3,2x3", "--shards", "2"), "parameters: 9 in 2 tensors, ranks: 2")
}

// TestPlanOfAnIndex reads the headers of the files beside it.
func TestPlanOfAnIndex(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	index := at("model.safetensors.index.json")
	store(t, at("1.safetensors"), nil, f32("a", numbers(6), 2, 3), f32("unlisted", numbers(6), 6))
	store(t, at("2.safetensors"), nil, f32("b", numbers(4), 4))
	for text, want := range map[string]string{
		`{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}`: "",
		`{"weight_map": {"a": "2.safetensors"}}`:                       `it has no tensor "a"`,
		`{"weight_map": {"a": "../1.safetensors"}}`:                    "want the name of a file beside it",
		`{"weight_map": {"a": "3.safetensors"}}`:                       "3.safetensors",
		`{"weight_map": [1]}`:                                          "weight_map",
	} {
		require.NoError(t, os.WriteFile(index, []byte(text), 0o644))
		if want != "" {
			fails(t, exitBadInput, want, "plan", index)
			continue
		}
		p := planOf(t, index)
		require.Equal(t, int64(10), p.Parameters)
		require.Equal(t, 2, p.Tensors)
	}
}

func TestPlanRefuses(t *testing.T) {
	folder, in := small(t)
	at := filepath.Join(folder, "config.json")
	for text, want := range map[string]string{
		`{"model_type": "bert"}`:                        `model_type "bert", want one of gemma`,
		`{"model_type": "llama"}`:                       "hidden_size is missing or 0, want 1 to",
		`{"model_type": "gpt2", "n_layer": -1}`:         "want 1 to",
		`{"model_type": "llama", "vocab_size": "many"}`: "vocab_size",
		`{"model_type": "gpt2", "torch_dtype": "int8"}`: `dtype "int8", want float32`,
		`{"model_type": `:                               "unexpected end of JSON",
		`{}`:                                            `model_type ""`,
		`{"model_type": "mixtral", "num_hidden_layers": 10000, "vocab_size": 1, "hidden_size": 1, "intermediate_size": 1, "num_attention_heads": 1, "num_local_experts": 10000}`: "num_local_experts is 10000, want 1 to 26 in 10000 layers",
		`{"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 1, "hidden_size": 64, "intermediate_size": 1, "num_attention_heads": 3}`:                                  "hidden_size is 64, want a multiple of num_attention_heads, 3",
		`{"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 1, "hidden_size": 64, "intermediate_size": 1, "num_attention_heads": 4, "num_key_value_heads": 3}`:        "num_attention_heads is 4, want a multiple of num_key_value_heads, 3",
		`{"model_type": "llama", "num_hidden_layers": 1000000, "vocab_size": 1, "hidden_size": 1, "intermediate_size": 1, "num_attention_heads": 1}`:                             "num_hidden_layers is 1000000",
	} {
		require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
		fails(t, exitBadInput, want, "plan", at)
	}
	state := filepath.Join(folder, "state")
	succeeds(t, "step", "--config", writeConfig(t, `{}`), "--params", in, "--grads", in, "--out-params", filepath.Join(folder, "out"), "--out-state", state)
	for _, test := range []struct {
		want string
		args []string
	}{
		{"it holds an optimizer's state, want a model's weights", []string{state}},
		{"a file or --shapes", nil},
		{"a file or --shapes", []string{in, "--shapes", "3"}},
		{"--shards is 0", []string{in, "--shards", "0"}},
		{"--shards is 1048576, want 1 to 65536", []string{in, "--shards", "1048576"}},
		{`"3y4" is no shape`, []string{"--shapes", "3y4"}},
		{`"" is no shape`, []string{"--shapes", "3,,4"}},
		{"below 2^63", []string{"--shapes", "99999999999999999999"}},
		{"with a product below 2^63", []string{"--shapes", "9999999999x9999999999"}},
		{"more bytes than 63 bits", []string{"--shapes", "4000000000000000000"}},
		{"no such file", []string{filepath.Join(folder, "missing")}},
		{"a folder, want a file such as", []string{folder}},
		{"master: got split", []string{in, "--config", writeConfig(t, `{"master": "split"}`)}},
	} {
		fails(t, exitBadInput, test.want, append([]string{"plan"}, test.args...)...)
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}
