package optim_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// convertible are configurations of which each one's state converts to each other's.
var convertible = map[string]string{
	"float32":        `{}`,
	"optax":          `{"variant": "optax", "nesterov": true}`,
	"bfloat16":       `{"moments_dtype": "bfloat16", "betas": [0.9, 0.99]}`,
	"stochastic":     `{"moments_dtype": "bfloat16", "moments_rounding": "stochastic", "seed": 7}`,
	"8-bit":          `{"adam_8bit": true}`,
	"8-bit of 16":    `{"adam_8bit": true, "quant_block_size": 16}`,
	"8-bit headroom": `{"adam_8bit": true, "headroom": true}`,
	"8-bit group":    `{"adam_8bit": true, "param_groups": [{"params": ["w"], "state_precision": "fp32"}]}`,
	"4-bit":          `{"adam_4bit": true}`,
	"4-bit of 32":    `{"adam_4bit": true, "quant_block_size": 32}`,
}

var convertibleMuon = map[string]string{
	"float32":  `{"type": "muon", "lr": 0.02}`,
	"torch":    `{"type": "muon", "variant": "torch"}`,
	"bfloat16": `{"type": "muon", "lr": 0.02, "momentum_dtype": "bfloat16"}`,
	"8-bit":    `{"type": "muon", "lr": 0.02, "momentum_dtype": "8bit", "quant_block_size": 64}`,
	"linear8":  `{"type": "muon", "lr": 0.02, "momentum_dtype": "linear8"}`,
}

func convert(t testing.TB, in, from string, config optim.Config) (path string, report []optim.Converted) {
	t.Helper()
	s, err := optim.OpenState(in, from)
	require.NoError(t, err)
	defer s.Close()
	path = filepath.Join(t.TempDir(), "converted")
	report, err = s.Convert(context.Background(), path, config, optim.ConvertOptions{})
	require.NoError(t, err)
	return path, report
}

// stored is a moment's storage, put together from the optimizer's state.
func stored(opt *optim.Optimizer, config optim.Config, p optim.Param, kind string) (m kernels.Moment) {
	for _, tensor := range opt.State(p.Name) {
		switch {
		case tensor.Kind == kind:
			m.F32, m.BF16, m.Codes = tensor.F32, tensor.BF16, tensor.U8
		case tensor.Kind == kind+"_absmax":
			m.Scales = tensor.F32
		case tensor.Kind == "row" && kind == "exp_avg_sq":
			total := 0.0
			for _, x := range tensor.F32 {
				total += float64(x)
			}
			mean := float32(total / float64(len(tensor.F32)))
			for _, x := range tensor.F32 {
				if mean != 0 {
					x /= mean
				}
				m.Row = append(m.Row, x)
			}
		case tensor.Kind == "col" && kind == "exp_avg_sq":
			m.Col = tensor.F32
		}
	}
	if m.Codes == nil {
		return m
	}
	first := kind == "exp_avg"
	switch c := config.(type) {
	case optim.AdamWConfig:
		m.Format = kernels.Format{Block: c.QuantBlockSize, Headroom: c.Headroom && first}
		switch {
		case c.Adam4bit && first:
			m.Format.Codebook = codebook.DE4()
		case c.Adam4bit:
			m.Format.Codebook = codebook.Linear4()
		case first:
			m.Format.Codebook = codebook.Dynamic8()
		default:
			m.Format.Codebook = codebook.Dynamic8Unsigned()
		}
	case optim.MuonConfig:
		m.Format = kernels.Format{Block: c.QuantBlockSize, Codebook: codebook.Dynamic8()}
		if c.MomentumDtype == "linear8" {
			m.Format.Codebook = codebook.Linear8()
		}
	}
	return m
}

func values(m kernels.Moment, n int) []float32 {
	x := make([]float32, n)
	if m.Factored() {
		m.Product(x, 0)
		return x
	}
	for i := range x {
		x[i] = m.At(i)
	}
	return x
}

// TestConvertEveryPair: every element of the converted state is that of the source, stored
// as the target stores it.
func TestConvertEveryPair(t *testing.T) {
	for _, kind := range []map[string]string{convertible, convertibleMuon} {
		for fromName, fromText := range kind {
			for toName, toText := range kind {
				from, to := parse(t, fromText), parse(t, toText)
				opt, params := newOptimizer(t, fromText, model(true)...)
				train(t, opt, params, 0, 3, true)
				params[4].Gradients = kernels.Floats{}
				in := filepath.Join(t.TempDir(), "checkpoint")
				require.NoError(t, opt.Save(in, optim.SaveOptions{Weights: true, Metadata: map[string]string{"mine": "1"}}))
				path, report := convert(t, in, "", to)
				again, againParams := newOptimizer(t, toText, model(true)...)
				metadata, err := again.Load(path)
				require.NoError(t, err)
				require.Equal(t, map[string]string{"mine": "1"}, metadata)
				require.Equal(t, opt.Steps(), again.Steps())
				for i, p := range params {
					name := fmt.Sprint(fromName, " to ", toName, " ", p.Name)
					require.Equal(t, p.Weights, againParams[i].Weights, name)
					require.Equal(t, p.Name, report[i].Name)
					require.Zero(t, report[i].NonFinite)
					for kind, kept := range map[string]bool{"exp_avg": report[i].KeptM, "exp_avg_sq": report[i].KeptV} {
						requireConverted(t, name, p, stored(opt, from, p, kind), stored(again, to, p, kind), kept)
					}
				}
				train(t, again, againParams, 3, 5, true)
			}
		}
	}
}

func requireConverted(t *testing.T, name string, p optim.Param, from, to kernels.Moment, kept bool) {
	t.Helper()
	n := p.Weights.Len()
	if from.F32 == nil && from.BF16 == nil && from.Codes == nil && !from.Factored() {
		require.Empty(t, to.F32, name)
		return
	}
	want := values(from, n)
	switch {
	case kept && to.Factored():
		require.Equal(t, from, to, name)
	case kept:
		require.Equal(t, [...]any{from.F32, from.BF16, from.Codes, from.Scales}, [...]any{to.F32, to.BF16, to.Codes, to.Scales}, name)
	case to.F32 != nil:
		require.Equal(t, want, to.F32, name)
	case to.BF16 != nil:
		for i, x := range want {
			require.Equal(t, bf16.FromFloat32(x), to.BF16[i], name)
		}
	case to.Codes != nil:
		codes, scales := make([]uint8, to.Format.CodeBytes(n)), make([]float32, to.Format.Scales(n))
		_, err := kernels.Quantize(codes, scales, want, to.Format)
		require.NoError(t, err)
		require.Equal(t, codes, to.Codes, name)
		require.Equal(t, scales, to.Scales, name)
	default:
		rows, cols := len(to.Row), len(to.Col)
		for j := range cols {
			sum := 0.0
			for i := range rows {
				sum += float64(want[i*cols+j])
			}
			require.InEpsilon(t, sum/float64(rows), to.Col[j], 1e-6, name)
		}
		total := 0.0
		for _, x := range want {
			total += float64(x)
		}
		for i := range rows {
			sum := 0.0
			for _, x := range want[i*cols : (i+1)*cols] {
				sum += float64(x)
			}
			require.InEpsilon(t, sum*float64(rows)/total, to.Row[i], 1e-6, name)
		}
	}
}

// TestConvertKeepsCodes of the same block, and nothing else of codes.
func TestConvertKeepsCodes(t *testing.T) {
	for _, test := range []struct {
		from, to string
		m, v     bool
		fromM    string
		toV      string
	}{
		{`{"adam_8bit": true}`, `{"adam_8bit": true, "headroom": true}`, true, true, "dynamic8 block 128", "dynamic8u block 128"},
		{`{"adam_8bit": true}`, `{"adam_8bit": true, "quant_block_size": 64}`, false, false, "dynamic8 block 128", "dynamic8u block 64"},
		{`{"adam_4bit": true}`, `{"adam_4bit": true}`, true, true, "de4 block 128", "linear4 block 128"},
		{`{}`, `{"nesterov": true}`, true, true, "float32", "float32"},
		{`{}`, `{"adam_8bit": true}`, false, false, "float32", "dynamic8u block 128"},
		{`{"moments_dtype": "bfloat16"}`, `{"moments_dtype": "bfloat16", "moments_rounding": "stochastic"}`, true, true, "bfloat16", "bfloat16"},
		{`{"type": "muon", "lr": 1, "momentum_dtype": "8bit"}`, `{"type": "muon", "lr": 1, "momentum_dtype": "linear8"}`, true, true, "float32", "float32"}, // of a vector
	} {
		opt, params := newOptimizer(t, test.from, optim.Param{Name: "gain", Shape: []int64{500}, Weights: f32(500)})
		train(t, opt, params, 0, 2, false)
		_, report := convert(t, saved(t, opt, optim.SaveOptions{}), "", parse(t, test.to))
		require.Equal(t, test.m, report[0].KeptM, test.to)
		require.Equal(t, test.v, report[0].KeptV, test.to)
		require.Equal(t, test.fromM, report[0].FromM)
		require.Equal(t, test.toV, report[0].ToV)
	}
}

// TestConvertedFactors: those of float32 moments are the ones that a run with factors has,
// given the same gradients.
func TestConvertedFactors(t *testing.T) {
	shape := optim.Param{Name: "w", Shape: []int64{40, 70}, Weights: f32(2800)}
	exact, params := newOptimizer(t, `{}`, shape)
	train(t, exact, params, 0, 20, false)
	shape.Weights = f32(2800)
	factored, params := newOptimizer(t, `{"adam_4bit": true}`, shape)
	train(t, factored, params, 0, 20, false)
	path, _ := convert(t, saved(t, exact, optim.SaveOptions{}), "", parse(t, `{"adam_4bit": true}`))
	converted, _ := newOptimizer(t, `{"adam_4bit": true}`, shape)
	_, err := converted.Load(path)
	require.NoError(t, err)
	for i, tensor := range converted.State("w") {
		if tensor.Kind == "row" || tensor.Kind == "col" {
			require.Less(t, relative(tensor.F32, factored.State("w")[i].F32, 1e-30), 1e-5)
		}
	}
}

// TestConvertGivenPrecision: one given for a parameter stays where the target knows it.
func TestConvertGivenPrecision(t *testing.T) {
	given := func() []optim.Param {
		return []optim.Param{
			{Name: "emb", Shape: []int64{19, 8}, Role: "token_embedding", StatePrecision: "8bit", Weights: f32(152)},
			{Name: "w", Shape: []int64{19, 8}, StatePrecision: "fp32", Weights: f32(152)},
		}
	}
	opt, params := newOptimizer(t, `{"adam_8bit": true}`, given()...)
	train(t, opt, params, 0, 2, false)
	in := saved(t, opt, optim.SaveOptions{})
	path, report := convert(t, in, "", parse(t, `{"adam_8bit": true, "quant_block_size": 16}`))
	require.Equal(t, "dynamic8 block 16", report[0].ToM)
	require.Equal(t, "float32", report[1].ToM)
	again, _ := newOptimizer(t, `{"adam_8bit": true, "quant_block_size": 16}`, given()...)
	_, err := again.Load(path)
	require.NoError(t, err)
	_, report = convert(t, in, "", parse(t, `{"adam_4bit": true}`))
	require.Equal(t, "de4 block 128", report[1].ToM)
}

// TestConvertInPieces: what is larger than a piece, and blocks that do not fit into one.
func TestConvertInPieces(t *testing.T) {
	const cols = 270_001
	for _, config := range []string{`{"adam_8bit": true, "quant_block_size": 7}`, `{"adam_8bit": true, "quant_block_size": 4096}`, `{"adam_4bit": true}`, `{"moments_dtype": "bfloat16"}`} {
		params := []optim.Param{{Name: "w", Shape: []int64{2, cols}, Weights: f32(2 * cols)}, {Name: "thin", Shape: []int64{cols, 1}, Weights: f32(cols)}}
		opt, params := newOptimizer(t, `{}`, params...)
		train(t, opt, params, 0, 1, false)
		in := saved(t, opt, optim.SaveOptions{})
		to := parse(t, config)
		path, report := convert(t, in, "", to)
		again, _ := newOptimizer(t, config, params...)
		_, err := again.Load(path)
		require.NoError(t, err)
		for i, p := range params {
			for kind, kept := range map[string]bool{"exp_avg": report[i].KeptM, "exp_avg_sq": report[i].KeptV} {
				requireConverted(t, config, p, stored(opt, parse(t, `{}`), p, kind), stored(again, to, p, kind), kept)
			}
		}
		back, _ := convert(t, path, "", parse(t, `{}`))
		_, err = opt.Load(back)
		require.NoError(t, err)
		for _, p := range params {
			for _, kind := range []string{"exp_avg", "exp_avg_sq"} {
				require.Equal(t, values(stored(again, to, p, kind), p.Weights.Len()), stored(opt, parse(t, `{}`), p, kind).F32, config)
			}
		}
	}
}

// TestConvertCountsNonFinite blocks and factors.
func TestConvertCountsNonFinite(t *testing.T) {
	opt, params := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{4, 128}, Weights: f32(512)})
	params[0].Gradients = numbers(512, 1, false)
	params[0].Gradients.F32[200] = float32(math.NaN())
	_, err := opt.Step()
	require.NoError(t, err)
	in := saved(t, opt, optim.SaveOptions{})
	_, report := convert(t, in, "", parse(t, `{"adam_8bit": true}`))
	require.Equal(t, int64(2), report[0].NonFinite)
	_, report = convert(t, in, "", parse(t, `{"adam_4bit": true}`))
	require.Equal(t, int64(3), report[0].NonFinite)
	_, report = convert(t, in, "", parse(t, `{}`))
	require.Zero(t, report[0].NonFinite)
}

func TestConvertRefuses(t *testing.T) {
	adam, _ := small(t, `{"adam_8bit": true}`, 2, nil)
	in := saved(t, adam, optim.SaveOptions{})
	muon, _ := small(t, `{"type": "muon", "lr": 1, "variant": "moonlight"}`, 2, nil)
	muonIn := saved(t, muon, optim.SaveOptions{})
	split, _ := small(t, `{"master": "split"}`, 2, narrowed)
	splitIn := saved(t, split, optim.SaveOptions{})
	for _, test := range []struct{ in, to, want string }{
		{in, `{"type": "muon", "lr": 1}`, "the state is adamw's, the configuration asks for muon"},
		{in, `{"master": "split"}`, "the state has master none, the configuration asks for split"},
		{splitIn, `{}`, "the state has master split, the configuration asks for none"},
		{muonIn, `{"adam_8bit": true}`, "the state is muon's, the configuration asks for adamw"},
		{muonIn, `{"type": "muon", "lr": 1}`, "the momentum is of variant moonlight, the configuration asks for optax, of which one sums gradients and the other averages them"},
		{muonIn, `{"type": "muon", "lr": 1, "variant": "dion", "param_groups": [{"params": ["emb"], "optimizer": "adamw"}]}`, `parameter "emb": the state is muon's, the configuration asks for adamw`},
		{in, `{"param_groups": [{"params": ["x"]}]}`, `optim: param_groups[0].params[0]: "x" matches none of 2 parameters`},
	} {
		s, err := optim.OpenState(test.in, "")
		require.NoError(t, err)
		out := filepath.Join(t.TempDir(), "out")
		_, err = s.Convert(context.Background(), out, parse(t, test.to), optim.ConvertOptions{})
		require.EqualError(t, err, test.in+": "+test.want)
		_, err = os.Stat(out)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.NoError(t, s.Close())
	}
	s, err := optim.OpenState(in, "")
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Convert(context.Background(), filepath.Join(t.TempDir(), "out"), nil, optim.ConvertOptions{})
	require.Error(t, err)
	_, err = s.Convert(context.Background(), muonIn, parse(t, `{}`), optim.ConvertOptions{})
	require.ErrorIs(t, err, os.ErrExist)
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Convert(ctx, filepath.Join(folder, "out"), parse(t, `{}`), optim.ConvertOptions{})
	require.ErrorIs(t, err, context.Canceled)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries)
	var progress []int64
	_, err = s.Convert(context.Background(), muonIn, parse(t, `{}`), optim.ConvertOptions{Overwrite: true, Progress: func(written, total int64) {
		require.Equal(t, int64(2*4*22), total)
		progress = append(progress, written)
	}})
	require.NoError(t, err)
	require.Equal(t, []int64{4 * 12, 8 * 12, 8*12 + 4*10, 8*12 + 8*10}, progress)
}

// TestOpenStateRefuses what Load refuses of a file by itself: each byte that changes.
func TestOpenStateRefuses(t *testing.T) {
	opt, _ := small(t, `{"adam_8bit": true, "quant_block_size": 4}`, 2, nil)
	path := saved(t, opt, optim.SaveOptions{Weights: true})
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range content {
		changed := append([]byte{}, content...)
		changed[i] ^= 1
		_, err := optim.OpenStateBytes(changed, "")
		require.Error(t, err, i)
	}
	for _, from := range []string{"torch", "bitsandbytes"} {
		_, err = optim.OpenState(path, from)
		require.EqualError(t, err, path+": it is a checkpoint of lowbit, want a state of "+from)
	}
	ours, err := optim.OpenState(path, "lowbit")
	require.NoError(t, err)
	require.NoError(t, ours.Close())
	_, err = optim.OpenState(path, "jax")
	require.EqualError(t, err, `optim: state from "jax", want lowbit, torch or bitsandbytes`)
	_, err = optim.OpenState(filepath.Join(t.TempDir(), "missing"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzOpenState: no file makes reading or converting it panic.
func FuzzOpenState(f *testing.F) {
	for _, text := range []string{`{}`, `{"adam_8bit": true, "quant_block_size": 4}`, `{"adam_4bit": true}`, `{"type": "muon", "lr": 1}`} {
		opt, _ := small(f, text, 1, nil)
		content, err := os.ReadFile(saved(f, opt, optim.SaveOptions{Weights: true}))
		require.NoError(f, err)
		f.Add(content)
	}
	for _, export := range []string{exportedTorch(f, 1), exportedBitsandbytes(f, 1)} {
		content, err := os.ReadFile(export)
		require.NoError(f, err)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, from := range []string{"", "torch", "bitsandbytes"} {
			s, err := optim.OpenStateBytes(content, from)
			if err != nil {
				require.Nil(t, s)
				require.Less(t, len(err.Error()), 2000)
				continue
			}
			for _, config := range []string{`{}`, `{"adam_8bit": true}`, `{"adam_4bit": true}`} {
				path := filepath.Join(t.TempDir(), "out")
				if _, err := s.Convert(context.Background(), path, parse(t, config), optim.ConvertOptions{}); err == nil {
					_, err := optim.OpenState(path, "")
					require.NoError(t, err)
				}
			}
		}
	})
}

// TestTrainingContinuesAfterConversion trains on, converted halfway, and compares with the
// uninterrupted run: the distance of the weights, relative to the way that they went. The
// bounds are those of docs/convert.md.
func TestTrainingContinuesAfterConversion(t *testing.T) {
	const half = 200
	gradient := problems["logistic"]()
	trainHalf := func(opt *optim.Optimizer, params []optim.Param, first int) (weights []float64) {
		for step := range half {
			params[0].Gradients = kernels.Float32s(gradient(first+step, params[0].Weights.F32))
			_, err := opt.Step()
			require.NoError(t, err)
		}
		for _, x := range params[0].Weights.F32 {
			weights = append(weights, float64(x))
		}
		return weights
	}
	training := func(name string) string {
		return strings.Replace(`{"lr": 0.001, `+convertible[name][1:], ", }", "}", 1)
	}
	param := optim.Param{Name: "w", Shape: []int64{16, problemSize / 16}}
	within := map[string]float64{"float32": 0.0025, "stochastic": 0.0025, "8-bit": 0.05, "8-bit headroom": 0.05, "4-bit": 0.35}
	for from := range within {
		param.Weights = f32(problemSize)
		opt, params := newOptimizer(t, training(from), param)
		trainHalf(opt, params, 0)
		state, halfway := saved(t, opt, optim.SaveOptions{}), slices.Clone(params[0].Weights.F32)
		exact := trainHalf(opt, params, half)
		for to := range within {
			path := state
			if from != to {
				path, _ = convert(t, state, "", parse(t, training(to)))
			}
			param.Weights = kernels.Float32s(slices.Clone(halfway))
			other, params := newOptimizer(t, training(to), param)
			_, err := other.Load(path)
			require.NoError(t, err)
			off := norm(difference(trainHalf(other, params, half), exact)) / norm(exact)
			t.Logf("%s to %s: %.4f", from, to, off)
			require.LessOrEqual(t, off, max(within[to], within[from]), "%s to %s", from, to)
			if from == to {
				require.Zero(t, off)
			}
		}
	}
}
