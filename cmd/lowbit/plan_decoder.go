package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/lowbit/optim"
)

// decoderConfig are the keys of a Hugging Face config.json that sizes depend on.
type decoderConfig struct {
	ModelType        string `json:"model_type"`
	DType            string `json:"dtype"`
	TorchDType       string `json:"torch_dtype"`
	VocabSize        int64  `json:"vocab_size"`
	HiddenSize       int64  `json:"hidden_size"`
	IntermediateSize int64  `json:"intermediate_size"`
	Layers           int64  `json:"num_hidden_layers"`
	Heads            int64  `json:"num_attention_heads"`
	KeyValueHeads    *int64 `json:"num_key_value_heads"`
	HeadDim          *int64 `json:"head_dim"`
	Tied             *bool  `json:"tie_word_embeddings"`
	AttentionBias    *bool  `json:"attention_bias"`
	MLPBias          bool   `json:"mlp_bias"`

	LocalExperts       int64   `json:"num_local_experts"` // mixtral
	Experts            int64   `json:"num_experts"`       // qwen3_moe
	ExpertIntermediate int64   `json:"moe_intermediate_size"`
	SparseStep         *int64  `json:"decoder_sparse_step"`
	DenseLayers        []int64 `json:"mlp_only_layers"`

	Positions  int64  `json:"n_positions"` // these of gpt2
	Embedding  int64  `json:"n_embd"`
	GPT2Layers int64  `json:"n_layer"`
	Inner      *int64 `json:"n_inner"`
}

// family is how the decoders of a model_type differ from llama's.
type family struct {
	tied      bool  // unless the configuration says otherwise
	headDim   int64 // likewise; 0 for hidden size over heads
	queryBias bool  // query, key and value have biases, the output has none
	queryNorm bool  // norms of queries and keys
	norms     []string
	fused     bool // query, key and value in one matrix, and gate and up in one
	mixture   func(b *shapes, layer string, c *decoderConfig) error
	params    func(b *shapes, c *decoderConfig) error // in place of llama's
}

var (
	twoNorms  = []string{"input_layernorm", "post_attention_layernorm"}
	fourNorms = append(twoNorms[:2:2], "pre_feedforward_layernorm", "post_feedforward_layernorm")
)

var families = map[string]family{
	"llama":       {norms: twoNorms},
	"mistral":     {norms: twoNorms},
	"mixtral":     {norms: twoNorms, mixture: mixtralExperts},
	"qwen2":       {norms: twoNorms, queryBias: true},
	"qwen3":       {norms: twoNorms, queryNorm: true, headDim: 128},
	"qwen3_moe":   {norms: twoNorms, queryNorm: true, headDim: 128, mixture: qwenExperts},
	"gemma":       {norms: twoNorms, tied: true, headDim: 256},
	"gemma2":      {norms: fourNorms, tied: true, headDim: 256},
	"gemma3_text": {norms: fourNorms, tied: true, headDim: 256, queryNorm: true},
	"phi3":        {norms: twoNorms, fused: true},
	"gpt2":        {tied: true, params: gpt2Params},
	"gpt_neox":    {params: gptNeoXParams},
}

func familyNames() string { return strings.Join(slices.Sorted(maps.Keys(families)), ", ") }

// shapes collects parameters.
type shapes struct {
	params   []optim.PlannedParam
	bfloat16 bool
}

func (b *shapes) add(name string, shape ...int64) {
	b.params = append(b.params, optim.PlannedParam{Name: name, Shape: shape, BFloat16: b.bfloat16})
}

// linear adds a matrix [out, in], and a bias if it has one.
func (b *shapes) linear(name string, out, in int64, bias bool) {
	b.add(name+".weight", out, in)
	if bias {
		b.add(name+".bias", out)
	}
}

// decoderParams lists the parameters of a decoder by the names that transformers gives
// them.
func decoderParams(text []byte) ([]optim.PlannedParam, error) {
	var c decoderConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	f, ok := families[c.ModelType]
	if !ok {
		return nil, fmt.Errorf("model_type %.100q, want one of %s", c.ModelType, familyNames())
	}
	b := &shapes{}
	switch dtype := c.DType + c.TorchDType; { // newer files have the one, older ones the other
	case strings.HasPrefix(dtype, "bfloat16"), strings.HasPrefix(dtype, "float16"):
		b.bfloat16 = true
	case dtype != "" && !strings.HasPrefix(dtype, "float32"):
		return nil, fmt.Errorf("dtype %.100q, want float32, bfloat16 or float16", dtype)
	}
	params := f.params
	if params == nil {
		params = f.llamaParams
	}
	if err := params(b, &c); err != nil {
		return nil, err
	}
	return b.params, nil
}

// checkSizes checks sizes that stand in a configuration.
func checkSizes(sizes map[string]int64) error {
	const most = 1 << 24
	for _, key := range sortedKeys(sizes) {
		n := sizes[key]
		if n == 0 {
			return fmt.Errorf("%s is missing or 0, want 1 to %d", key, most)
		}
		if n < 0 || n > most {
			return fmt.Errorf("%s is %d, want 1 to %d", key, n, most)
		}
	}
	const layers = 1 << 14 // whose parameters fit into memory
	for _, key := range []string{"num_hidden_layers", "n_layer"} {
		if n := sizes[key]; n > layers {
			return fmt.Errorf("%s is %d, want 1 to %d", key, n, layers)
		}
	}
	return nil
}

func (f family) llamaParams(b *shapes, c *decoderConfig) error {
	err := checkSizes(map[string]int64{
		"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize,
		"num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "num_key_value_heads": or(c.KeyValueHeads, 1), "head_dim": or(c.HeadDim, 1),
	})
	if err != nil {
		return err
	}
	if err := f.checkHeads(c); err != nil {
		return err
	}
	b.add("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		f.attention(b, layer+"self_attn.", c)
		if err := f.feedForward(b, layer, c); err != nil {
			return err
		}
		for _, norm := range f.norms {
			b.add(layer+norm+".weight", c.HiddenSize)
		}
	}
	b.add("model.norm.weight", c.HiddenSize)
	if !or(c.Tied, f.tied) {
		b.add("lm_head.weight", c.VocabSize, c.HiddenSize)
	}
	return nil
}

// checkHeads refuses heads that the hidden size, or keys and values, do not divide into.
func (f family) checkHeads(c *decoderConfig) error {
	keyValueHeads := or(c.KeyValueHeads, c.Heads)
	switch {
	case f.headDim == 0 && c.HeadDim == nil && c.HiddenSize%c.Heads != 0:
		return fmt.Errorf("hidden_size is %d, want a multiple of num_attention_heads, %d, or a head_dim", c.HiddenSize, c.Heads)
	case c.Heads%keyValueHeads != 0:
		return fmt.Errorf("num_attention_heads is %d, want a multiple of num_key_value_heads, %d", c.Heads, keyValueHeads)
	}
	return nil
}

func (f family) attention(b *shapes, name string, c *decoderConfig) {
	headDim := f.headDim
	if headDim == 0 {
		headDim = c.HiddenSize / c.Heads
	}
	headDim = or(c.HeadDim, headDim)
	queries, keys := c.Heads*headDim, or(c.KeyValueHeads, c.Heads)*headDim
	outBias := or(c.AttentionBias, false) && !f.queryBias
	bias := outBias || f.queryBias
	if f.fused {
		b.linear(name+"qkv_proj", queries+2*keys, c.HiddenSize, false)
	} else {
		b.linear(name+"q_proj", queries, c.HiddenSize, bias)
		b.linear(name+"k_proj", keys, c.HiddenSize, bias)
		b.linear(name+"v_proj", keys, c.HiddenSize, bias)
	}
	b.linear(name+"o_proj", c.HiddenSize, queries, outBias && !f.fused)
	if f.queryNorm {
		b.add(name+"q_norm.weight", headDim)
		b.add(name+"k_norm.weight", headDim)
	}
}

func (f family) feedForward(b *shapes, layer string, c *decoderConfig) error {
	switch name := layer + "mlp."; {
	case f.mixture != nil:
		return f.mixture(b, layer, c)
	case f.fused:
		b.linear(name+"gate_up_proj", 2*c.IntermediateSize, c.HiddenSize, false)
		b.linear(name+"down_proj", c.HiddenSize, c.IntermediateSize, false)
	default:
		b.linear(name+"gate_proj", c.IntermediateSize, c.HiddenSize, c.MLPBias)
		b.linear(name+"up_proj", c.IntermediateSize, c.HiddenSize, c.MLPBias)
		b.linear(name+"down_proj", c.HiddenSize, c.IntermediateSize, c.MLPBias)
	}
	return nil
}

// checkExperts limits the parameters of all layers to what fits into memory.
func (c *decoderConfig) checkExperts(key string, n int64) error {
	const most = 1 << 18
	if n < 1 || n > most/c.Layers {
		return fmt.Errorf("%s is %d, want 1 to %d in %d layers", key, n, most/c.Layers, c.Layers)
	}
	return nil
}

func mixtralExperts(b *shapes, layer string, c *decoderConfig) error {
	if err := c.checkExperts("num_local_experts", c.LocalExperts); err != nil {
		return err
	}
	b.linear(layer+"block_sparse_moe.gate", c.LocalExperts, c.HiddenSize, false)
	for i := range c.LocalExperts {
		expert := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", layer, i)
		b.linear(expert+"w1", c.IntermediateSize, c.HiddenSize, false)
		b.linear(expert+"w2", c.HiddenSize, c.IntermediateSize, false)
		b.linear(expert+"w3", c.IntermediateSize, c.HiddenSize, false)
	}
	return nil
}

func qwenExperts(b *shapes, layer string, c *decoderConfig) error {
	if step := or(c.SparseStep, 1); step != 1 || len(c.DenseLayers) > 0 {
		return fmt.Errorf("decoder_sparse_step is %d and mlp_only_layers has %d layers, want experts in every layer", step, len(c.DenseLayers))
	}
	if err := c.checkExperts("num_experts", c.Experts); err != nil {
		return err
	}
	if err := checkSizes(map[string]int64{"moe_intermediate_size": c.ExpertIntermediate}); err != nil {
		return err
	}
	b.linear(layer+"mlp.gate", c.Experts, c.HiddenSize, false)
	for i := range c.Experts {
		expert := fmt.Sprintf("%smlp.experts.%d.", layer, i)
		b.linear(expert+"gate_proj", c.ExpertIntermediate, c.HiddenSize, false)
		b.linear(expert+"up_proj", c.ExpertIntermediate, c.HiddenSize, false)
		b.linear(expert+"down_proj", c.HiddenSize, c.ExpertIntermediate, false)
	}
	return nil
}

// norm adds a layer norm, which has a bias.
func (b *shapes) norm(name string, size int64) {
	b.add(name+".weight", size)
	b.add(name+".bias", size)
}

// gpt2Params has matrices [in, out].
func gpt2Params(b *shapes, c *decoderConfig) error {
	width, inner := c.Embedding, or(c.Inner, 4*c.Embedding)
	err := checkSizes(map[string]int64{"vocab_size": c.VocabSize, "n_embd": width, "n_positions": c.Positions, "n_layer": c.GPT2Layers, "n_inner": inner})
	if err != nil {
		return err
	}
	conv1D := func(name string, in, out int64) {
		b.add(name+".weight", in, out)
		b.add(name+".bias", out)
	}
	b.add("transformer.wte.weight", c.VocabSize, width)
	b.add("transformer.wpe.weight", c.Positions, width)
	for i := range c.GPT2Layers {
		layer := fmt.Sprintf("transformer.h.%d.", i)
		b.norm(layer+"ln_1", width)
		conv1D(layer+"attn.c_attn", width, 3*width)
		conv1D(layer+"attn.c_proj", width, width)
		b.norm(layer+"ln_2", width)
		conv1D(layer+"mlp.c_fc", width, inner)
		conv1D(layer+"mlp.c_proj", inner, width)
	}
	b.norm("transformer.ln_f", width)
	if !or(c.Tied, true) {
		b.add("lm_head.weight", c.VocabSize, width)
	}
	return nil
}

func gptNeoXParams(b *shapes, c *decoderConfig) error {
	width, inner := c.HiddenSize, c.IntermediateSize
	err := checkSizes(map[string]int64{"vocab_size": c.VocabSize, "hidden_size": width, "num_hidden_layers": c.Layers, "intermediate_size": inner})
	if err != nil {
		return err
	}
	bias := or(c.AttentionBias, true)
	b.add("gpt_neox.embed_in.weight", c.VocabSize, width)
	for i := range c.Layers {
		layer := fmt.Sprintf("gpt_neox.layers.%d.", i)
		b.norm(layer+"input_layernorm", width)
		b.norm(layer+"post_attention_layernorm", width)
		b.linear(layer+"attention.query_key_value", 3*width, width, bias)
		b.linear(layer+"attention.dense", width, width, bias)
		b.linear(layer+"mlp.dense_h_to_4h", inner, width, true)
		b.linear(layer+"mlp.dense_4h_to_h", width, inner, true)
	}
	b.norm("gpt_neox.final_layer_norm", width)
	if !or(c.Tied, false) {
		b.add("embed_out.weight", c.VocabSize, width)
	}
	return nil
}
