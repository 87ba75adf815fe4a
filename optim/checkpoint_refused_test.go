package optim_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// small makes an optimizer of two parameters that has taken some steps.
func small(t testing.TB, text string, steps int, edit func(params []optim.Param) []optim.Param) (*optim.Optimizer, []optim.Param) {
	t.Helper()
	params := []optim.Param{
		{Name: "emb", Shape: []int64{4, 3}, Role: "token_embedding", Weights: numbers(12, 1, false)},
		{Name: "w", Shape: []int64{5, 2}, Weights: numbers(10, 2, false)},
	}
	if edit != nil {
		params = edit(params)
	}
	opt, err := optim.New(parse(t, text), params)
	require.NoError(t, err)
	for step := range steps {
		for i := range params {
			params[i].Gradients = numbers(params[i].Weights.Len(), uint64(10*step+i), false)
		}
		_, err := opt.Step()
		require.NoError(t, err)
	}
	return opt, params
}

func saved(t testing.TB, opt *optim.Optimizer, options optim.SaveOptions) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
	require.NoError(t, opt.Save(path, options))
	return path
}

// TestOtherRepresentationsAreRefused loads every kind of checkpoint into every other kind
// of optimizer, which stays as it was.
func TestOtherRepresentationsAreRefused(t *testing.T) {
	names := map[string]string{
		`{}`:                            "adam float32",
		`{"moments_dtype": "bfloat16"}`: "adam bfloat16",
		`{"adam_8bit": true}`:           "adam 8-bit block 128",
		`{"adam_8bit": true, "quant_block_size": 256}`:                                   "adam 8-bit block 256",
		`{"adam_8bit": true, "quant_block_size": 2048}`:                                  "adam 8-bit block 2048",
		`{"adam_8bit": true, "headroom": true}`:                                          "adam 8-bit block 128 with headroom",
		`{"adam_4bit": true}`:                                                            "adam 4-bit block 128",
		`{"type": "muon", "lr": 1}`:                                                      "muon float32",
		`{"type": "muon", "lr": 1, "variant": "moonlight"}`:                              "muon float32 of summed gradients",
		`{"type": "muon", "lr": 1, "momentum_dtype": "bfloat16"}`:                        "muon bfloat16",
		`{"type": "muon", "lr": 1, "momentum_dtype": "8bit"}`:                            "muon 8bit block 128",
		`{"type": "muon", "lr": 1, "momentum_dtype": "linear8", "quant_block_size": 32}`: "muon linear8 block 32",
	}
	for text, name := range names {
		opt, _ := small(t, text, 2, nil)
		path := saved(t, opt, optim.SaveOptions{Weights: true})
		for otherText, otherName := range names {
			if otherText == text {
				continue
			}
			other, params := small(t, otherText, 1, nil)
			before := snapshot(other, params)
			_, err := other.Load(path)
			want := path + ": checkpoint holds " + name + ", the configuration asks for " + otherName
			if name[:4] == otherName[:4] {
				want += "; lowbit convert-state converts states"
			}
			require.EqualError(t, err, want)
			require.Equal(t, before, snapshot(other, params))
		}
	}
	wide, _ := small(t, `{"master": "split"}`, 1, narrowed)
	plain, _ := small(t, `{}`, 0, narrowed)
	path := saved(t, wide, optim.SaveOptions{})
	_, err := plain.Load(path)
	require.EqualError(t, err, path+": checkpoint holds adam float32 with a split master, the configuration asks for adam float32; lowbit convert-state converts states")
}

func narrowed(params []optim.Param) []optim.Param {
	for i := range params {
		params[i].Weights = rounded(params[i].Weights)
	}
	return params
}

// TestOtherParametersAreRefused loads a checkpoint of emb [4 3] and w [5 2].
func TestOtherParametersAreRefused(t *testing.T) {
	const text = `{"adam_8bit": true}`
	opt, _ := small(t, text, 2, nil)
	path := saved(t, opt, optim.SaveOptions{Weights: true})
	b := optim.Param{Name: "b", Weights: f32(1)}
	for _, test := range []struct {
		config string
		edit   func(params []optim.Param) []optim.Param
		want   string
	}{
		{text, func(p []optim.Param) []optim.Param { return append(p, b) }, `checkpoint lacks parameter "b"`},
		{text, func(p []optim.Param) []optim.Param { return append([]optim.Param{b}, p...) }, `checkpoint lacks parameter "b"`},
		{text, func(p []optim.Param) []optim.Param { return p[1:] }, `checkpoint holds parameter "emb", which the model lacks`},
		{text, func(p []optim.Param) []optim.Param { return nil }, `checkpoint holds parameter "emb", which the model lacks`},
		{text, func(p []optim.Param) []optim.Param { p[1].Name = "v"; return p }, `checkpoint holds parameter "w", which the model lacks`},
		{text, func(p []optim.Param) []optim.Param { p[1].Shape = []int64{2, 5}; return p }, `parameter "w": checkpoint holds shape [5 2], the model has [2 5]`},
		{text, func(p []optim.Param) []optim.Param { p[1].Shape = []int64{10}; return p }, `parameter "w": checkpoint holds shape [5 2], the model has [10]`},
		{text, func(p []optim.Param) []optim.Param { p[1].Role = "vector"; return p }, `parameter "w": checkpoint holds matrix adamw 8-bit, the configuration asks for vector adamw 8-bit`},
		{text, func(p []optim.Param) []optim.Param { p[1].StatePrecision = "fp32"; return p }, `parameter "w": checkpoint holds matrix adamw 8-bit, the configuration asks for matrix adamw float32`},
		{text, func(p []optim.Param) []optim.Param { p[0].Role = ""; return p }, `parameter "emb": checkpoint holds token_embedding adamw float32, the configuration asks for matrix adamw 8-bit`},
		{text, narrowed, `tensor "weight/emb" is F32 [4 3], want BF16 [4 3]`},
	} {
		other, params := small(t, test.config, 1, test.edit)
		before := snapshot(other, params)
		_, err := other.Load(path)
		require.EqualError(t, err, path+": "+test.want)
		require.Equal(t, before, snapshot(other, params))
	}

	muon, _ := small(t, `{"type": "muon", "lr": 1}`, 1, nil)
	path = saved(t, muon, optim.SaveOptions{})
	other, _ := small(t, `{"type": "muon", "lr": 1, "param_groups": [{"params": ["emb"], "optimizer": "adamw"}]}`, 0, nil)
	_, err := other.Load(path)
	require.EqualError(t, err, path+`: parameter "emb": checkpoint holds token_embedding muon float32, the configuration asks for token_embedding adamw float32`)

	seven, _ := small(t, `{"weight_rounding": "stochastic", "seed": 7}`, 1, nil)
	path = saved(t, seven, optim.SaveOptions{})
	other, _ = small(t, `{"weight_rounding": "stochastic", "seed": 8}`, 0, nil)
	_, err = other.Load(path)
	require.EqualError(t, err, path+`: checkpoint holds seed 7, the configuration asks for seed 8`)
}

// TestParametersInAnotherOrder resumes as in the old one.
func TestParametersInAnotherOrder(t *testing.T) {
	const text = `{"adam_8bit": true}`
	opt, params := small(t, text, 2, nil)
	path := saved(t, opt, optim.SaveOptions{Weights: true})
	turned, turnedParams := small(t, text, 0, func(p []optim.Param) []optim.Param { p[0], p[1] = p[1], p[0]; return p })
	_, err := turned.Load(path)
	require.NoError(t, err)
	require.Equal(t, snapshot(opt, params), snapshot(turned, []optim.Param{turnedParams[1], turnedParams[0]}))
}

// rewritten copies a file with other metadata or tensors.
func rewritten(t *testing.T, path string, edit func(metadata map[string]string, tensors []tensorfile.Tensor)) string {
	t.Helper()
	f, err := tensorfile.Open(path)
	require.NoError(t, err)
	defer f.Close()
	tensors := append([]tensorfile.Tensor{}, f.Tensors...)
	edit(f.Metadata, tensors)
	out := filepath.Join(t.TempDir(), "rewritten.safetensors")
	w, err := tensorfile.Create(out, f.Metadata, tensors, false)
	require.NoError(t, err)
	for i, tensor := range f.Tensors {
		data := make([]byte, tensor.Bytes)
		require.NoError(t, f.ReadAt(tensor, data, 0))
		require.NoError(t, w.WriteAt(i, data, 0))
	}
	require.NoError(t, w.Commit())
	return out
}

func TestOtherFilesAreRefused(t *testing.T) {
	const key = "lowbit.optimizer"
	opt, params := small(t, `{}`, 2, nil)
	path := saved(t, opt, optim.SaveOptions{Metadata: map[string]string{"run": "9"}})
	replace := func(old, new string) func(map[string]string, []tensorfile.Tensor) {
		return func(m map[string]string, _ []tensorfile.Tensor) {
			require.Contains(t, m[key], old)
			m[key] = strings.ReplaceAll(m[key], old, new)
		}
	}
	before := snapshot(opt, params)
	for _, test := range []struct {
		edit func(metadata map[string]string, tensors []tensorfile.Tensor)
		want string
	}{
		{func(m map[string]string, _ []tensorfile.Tensor) { delete(m, key) }, `no optimizer checkpoint: the metadata has no lowbit.optimizer`},
		{replace(`"format_version":1`, `"format_version":2`), `checkpoint format 2, want 1`},
		{replace(`"format_version":1`, `"format_version":-1`), `checkpoint format -1, want 1`},
		{replace(`"step":2`, `"step":-1`), `the checkpoint's step is -1, want 0 to 2^62`},
		{replace(`"step":2`, `"step":9223372036854775807`), `the checkpoint's step is 9223372036854775807, want 0 to 2^62`},
		{replace(`"optimizer":"adamw","precision":"float32","step":2`, `"optimizer":"adamw","precision":"float32","step":3`), `parameter "emb": step 3, want 0 to 2`},
		{replace(`"seed":0`, `"seed":1`), `the checksum does not match: the checkpoint was altered`},
		{replace(`"seed":0`, `"sead":0`), `lowbit.optimizer: json: unknown field "sead"`},
		{func(m map[string]string, _ []tensorfile.Tensor) { m[key] = "[]" }, `lowbit.optimizer: json: cannot unmarshal array into Go value of type struct { FormatVersion int "json:\"format_version\"" }`},
		{func(m map[string]string, _ []tensorfile.Tensor) { m["run"] = "8" }, `the checksum does not match: the checkpoint was altered`},
		{func(m map[string]string, _ []tensorfile.Tensor) { delete(m, "run") }, `the checksum does not match: the checkpoint was altered`},
		{func(_ map[string]string, tensors []tensorfile.Tensor) { tensors[0].Name = "mine" }, `checkpoint lacks tensor "exp_avg/emb"`},
		{func(_ map[string]string, tensors []tensorfile.Tensor) { tensors[0].DType = "I32" }, `tensor "exp_avg/emb" is I32 [12], want F32 [12]`},
		{func(_ map[string]string, tensors []tensorfile.Tensor) { tensors[0].Shape = []int64{3, 4} }, `tensor "exp_avg/emb" is F32 [3 4], want F32 [12]`},
		{func(_ map[string]string, tensors []tensorfile.Tensor) {
			tensors[0].Name, tensors[1].Name = tensors[1].Name, tensors[0].Name
		}, `the checksum does not match: the checkpoint was altered`},
	} {
		altered := rewritten(t, path, test.edit)
		_, err := opt.Load(altered)
		require.EqualError(t, err, altered+": "+test.want)
		require.Equal(t, before, snapshot(opt, params))
	}

	folder := t.TempDir()
	_, err := opt.Load(folder)
	require.EqualError(t, err, folder+": a directory, want a safetensors file")
	_, err = opt.Load(filepath.Join(folder, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	text := filepath.Join(folder, "text")
	require.NoError(t, os.WriteFile(text, []byte("a text, not tensors"), 0o666))
	_, err = opt.Load(text)
	require.ErrorContains(t, err, "a header of")

	plain := rewritten(t, path, func(m map[string]string, _ []tensorfile.Tensor) { clear(m) })
	_, err = opt.Load(plain)
	require.EqualError(t, err, plain+": no optimizer checkpoint: the metadata has no lowbit.optimizer")
	require.Equal(t, before, snapshot(opt, params))
}

// TestOtherCodebookValuesAreRefused alters the table and leaves the codes.
func TestOtherCodebookValuesAreRefused(t *testing.T) {
	opt, _ := small(t, `{"adam_8bit": true}`, 1, nil)
	content, err := os.ReadFile(saved(t, opt, optim.SaveOptions{}))
	require.NoError(t, err)
	content[8+binary.LittleEndian.Uint64(content)] ^= 1 // the first of the data
	_, err = opt.LoadBytes(content)
	require.EqualError(t, err, `memory: tensor "codebook/dynamic8": the codebook has other values than this version's`)
}

// TestEveryAlteredByteIsNoticed flips a bit of each byte of the header and of the data, and
// truncates and extends the file everywhere.
func TestEveryAlteredByteIsNoticed(t *testing.T) {
	const text = `{"adam_4bit": true, "quant_block_size": 32}`
	opt, params := small(t, text, 2, nil)
	want := snapshot(opt, params)
	good, err := os.ReadFile(saved(t, opt, optim.SaveOptions{Weights: true, Metadata: map[string]string{"a": "b c"}}))
	require.NoError(t, err)

	other, otherParams := small(t, text, 3, nil)
	before := snapshot(other, otherParams)
	back, err := os.ReadFile(saved(t, other, optim.SaveOptions{Weights: true}))
	require.NoError(t, err)
	try := func(content []byte) {
		if _, err := other.LoadBytes(content); err != nil {
			require.Equal(t, before, snapshot(other, otherParams))
			return
		}
		require.Equal(t, want, snapshot(other, otherParams))
		_, err := other.LoadBytes(back)
		require.NoError(t, err)
	}
	_, err = other.LoadBytes(good)
	require.NoError(t, err)
	_, err = other.LoadBytes(back)
	require.NoError(t, err)
	for i := range good {
		flip := byte(1) << (i * 5 % 8) // of neighbours, other bits
		good[i] ^= flip
		try(good)
		good[i] ^= flip
		_, err := other.LoadBytes(good[:i])
		require.Error(t, err, "%d bytes", i)
	}
	_, err = other.LoadBytes(append(good, 0))
	require.Error(t, err)
	require.Equal(t, before, snapshot(other, otherParams))
}

func TestSaveIsRefused(t *testing.T) {
	opt, params := small(t, `{}`, 1, nil)
	folder := t.TempDir()
	path := filepath.Join(folder, "checkpoint")
	require.EqualError(t, opt.Save(path, optim.SaveOptions{Metadata: map[string]string{"lowbit.optimizer": "x"}}),
		"optim: metadata key lowbit.optimizer is the checkpoint's own, want another")
	require.EqualError(t, opt.Save(path, optim.SaveOptions{Metadata: map[string]string{"a": "\xff"}}), path+`: __metadata__: "a": "\xff" is not UTF-8`)
	require.ErrorIs(t, opt.Save(filepath.Join(folder, "none", "checkpoint"), optim.SaveOptions{}), os.ErrNotExist)
	require.EqualError(t, opt.Save(folder, optim.SaveOptions{}), folder+": a directory, want a file to replace or a new name")
	require.NoError(t, opt.Accumulate())
	require.EqualError(t, opt.Save(path, optim.SaveOptions{}), `optim: parameter "emb": gradients of micro-batches are accumulated, want a Step before a checkpoint`)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)

	params[0].Weights = f32(11)
	_, err = opt.Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	params[0].Weights = f32(12)
	params[0].Gradients = kernels.Floats{}
	_, err = opt.Step()
	require.NoError(t, err)
	require.NoError(t, opt.Save(path, optim.SaveOptions{}))
	params[0].Weights = f32(11)
	_, err = opt.Load(path)
	require.EqualError(t, err, `optim: parameter "emb": the weights were replaced by others of another length or format`)
}
