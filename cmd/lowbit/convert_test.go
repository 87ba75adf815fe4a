package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/float16"
	"github.com/lowbit-go/lowbit/internal/golden"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

// TestRoundTrip holds every format, at sizes around its block and odd ones, against the kernels on the whole tensor,
// and every size of the pieces against one piece.
func TestRoundTrip(t *testing.T) {
	for _, book := range codebook.All() {
		t.Run(book.Name(), func(t *testing.T) {
			for _, block := range []int{3, 64} {
				folder := t.TempDir()
				at := func(name string) string { return filepath.Join(folder, name) }
				tensors := []tensor{f32("scalar", []float32{-2.5})}
				for _, n := range []int{0, 1, 2, 3, 63, 64, 65, 299, 300, 301} {
					tensors = append(tensors, f32(fmt.Sprint(n), numbers(n), int64(n)))
				}
				store(t, at("in"), nil, tensors...)
				quantize := []string{"quantize", at("in"), at("whole"), "--format", book.Name(), "--block", fmt.Sprint(block)}
				require.Zero(t, lowbit(quantize...).code) // with a warning of negative values where it has none
				succeeds(t, "dequantize", at("whole"), at("out"))
				_, quantised := load(t, at("whole"))
				_, decoded := load(t, at("out"))
				require.Len(t, decoded, len(tensors))
				f := kernels.Format{Codebook: book, Block: block}
				for _, x := range tensors {
					values := float32s(x.data)
					codes, scales := make([]uint8, f.CodeBytes(len(values))), make([]float32, f.Scales(len(values)))
					_, err := kernels.Quantize(codes, scales, values, f)
					require.NoError(t, err)
					require.Equal(t, codes, find(t, quantised, x.name).data)
					require.Equal(t, []int64{int64(len(codes))}, find(t, quantised, x.name).shape)
					require.Equal(t, scales, float32s(find(t, quantised, x.name+".absmax").data))
					require.NoError(t, kernels.Dequantize(values, codes, scales, f))
					require.Equal(t, tensor{x.name, "F32", append([]int64{}, x.shape...), float32Bytes(values...)}, find(t, decoded, x.name))
				}
				for _, piece := range []int{1, 64, 100} {
					pieces := filepath.Join(folder, fmt.Sprint(piece))
					quantize[2] = pieces
					require.Zero(t, lowbitWith(context.Background(), piece, quantize...).code)
					requireSameFile(t, at("whole"), pieces)
					require.Zero(t, lowbitWith(context.Background(), piece, "dequantize", pieces, pieces+".out").code)
					requireSameFile(t, at("out"), pieces+".out")
				}
			}
		})
	}
}

func requireSameFile(t *testing.T, want, got string) {
	t.Helper()
	a, err := os.ReadFile(want)
	require.NoError(t, err)
	b, err := os.ReadFile(got)
	require.NoError(t, err)
	require.Equal(t, a, b)
}

// TestPieces holds the other conversions in small pieces, by several threads, against whole tensors.
func TestPieces(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	n := 3*32*256 + 33
	store(t, at("in"), nil, f32("w", numbers(n), int64(n)), tensor{"h", "F16", []int64{3}, uint16Bytes(0x3c00, 0x0001, 0x7bff)})
	for name, command := range map[string][]string{
		"bitsandbytes": {"quantize", "--format", "fp4", "--layout", "bitsandbytes"},
		"double":       {"quantize", "--format", "nf4", "--layout", "bitsandbytes", "--double-quant", "--block", "32"},
		"nearest":      {"round", "--to", "bfloat16"},
		"stochastic":   {"round", "--to", "bfloat16", "--mode", "stochastic", "--seed", "7", "--step", "3"},
	} {
		whole := succeeds(t, append(append([]string{}, command...), at("in"), at(name), "--json")...)
		for _, piece := range []int{100, 8192, 10000} {
			out := at(fmt.Sprint(name, piece))
			r := lowbitWith(context.Background(), piece, append(append([]string{}, command...), at("in"), out, "--json", "--threads", "2")...)
			require.Equal(t, result{exitDone, whole, ""}, r, name)
			requireSameFile(t, at(name), out)
		}
	}
	succeeds(t, "dequantize", at("double"), at("decoded"))
	require.Zero(t, lowbitWith(context.Background(), 100, "dequantize", at("double"), at("decoded100")).code)
	requireSameFile(t, at("decoded"), at("decoded100"))
}

func TestDTypes(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	x := numbers(70)
	half, brain := make([]uint16, 70), make([]uint16, 70)
	for i, v := range x {
		half[i], brain[i] = float16.FromFloat32(v), uint16(bf16.FromFloat32(v))
	}
	store(t, at("in"), nil, f32("f", x, 70), tensor{"h", "F16", []int64{7, 10}, uint16Bytes(half...)}, tensor{"b", "BF16", []int64{70}, uint16Bytes(brain...)})
	for _, layout := range []string{"lowbit", "bitsandbytes"} {
		succeeds(t, "quantize", at("in"), at(layout), "--format", "nf4", "--layout", layout)
		succeeds(t, "dequantize", at(layout), at("f"), "--dtype", "float32")
		_, exact := load(t, at("f"))
		for flag, narrow := range map[string]func(name string) (tensorfile.DType, func(float32) uint16){
			"source": func(name string) (tensorfile.DType, func(float32) uint16) {
				if name == "h" {
					return "F16", float16.FromFloat32
				}
				return "BF16", func(v float32) uint16 { return uint16(bf16.FromFloat32(v)) }
			},
			"float16": func(string) (tensorfile.DType, func(float32) uint16) { return "F16", float16.FromFloat32 },
			"bfloat16": func(string) (tensorfile.DType, func(float32) uint16) {
				return "BF16", func(v float32) uint16 { return uint16(bf16.FromFloat32(v)) }
			},
		} {
			out := at(layout + flag)
			succeeds(t, "dequantize", at(layout), out, "--dtype", flag)
			_, tensors := load(t, out)
			require.Len(t, tensors, 3)
			for _, name := range []string{"h", "b"} {
				dtype, round := narrow(name)
				want := []uint16{}
				for _, v := range float32s(find(t, exact, name).data) {
					want = append(want, round(v))
				}
				require.Equal(t, dtype, find(t, tensors, name).dtype)
				require.Equal(t, want, uint16s(find(t, tensors, name).data))
			}
		}
		for _, name := range []string{"f", "h", "b"} {
			require.Equal(t, tensorfile.DType("F32"), find(t, exact, name).dtype)
		}
		require.Equal(t, []int64{7, 10}, find(t, exact, "h").shape)
		require.NoError(t, os.Remove(at("f")))
	}
}

// TestOthersPassThrough has every other dtype, and names and metadata that need care.
func TestOthersPassThrough(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	others := []tensor{
		{"a b/../c.d\n\"é\" <&>", "F64", []int64{1}, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"i", "I64", []int64{}, []byte{8, 7, 6, 5, 4, 3, 2, 1}},
		{"", "BOOL", []int64{2, 1}, []byte{1, 0}},
		{"f8", "F8_E4M3", []int64{3}, []byte{9, 8, 7}},
		{"u", "NEW_9", []int64{5}, []byte{1, 2, 3}},
		{"e", "I8", []int64{0, 3}, []byte{}},
	}
	metadata := map[string]string{"format": "pt", "note": "a\n\"b\""}
	store(t, at("in"), metadata, append(others, f32("w x", numbers(9), 3, 3))...)
	requireOthers := func(path string) {
		t.Helper()
		_, tensors := load(t, path)
		for _, x := range others {
			require.Equal(t, x, find(t, tensors, x.name))
		}
	}
	want := []string{}
	for _, x := range others {
		want = append(want, x.name)
	}
	var r report
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "quantize", at("in"), at("q"), "--format", "linear8", "--json")), &r))
	require.ElementsMatch(t, want, r.Copied)
	require.Len(t, r.Tensors, 1)
	requireOthers(at("q"))
	quantised, _ := load(t, at("q"))
	require.JSONEq(t, `{"w x":{"format":"linear8","block":128,"nibble":"","shape":[3,3],"dtype":"F32"}}`, quantised["lowbit.tensors"])
	delete(quantised, "lowbit.tensors")
	require.Equal(t, metadata, quantised)

	for name, command := range map[string][]string{
		"d": {"dequantize", at("q")}, "r": {"round", at("in"), "--to", "bfloat16"},
		"x": {"quantize", at("in"), "--format", "nf4", "--exclude", "*"},
	} {
		text := succeeds(t, append(command, at(name))...)
		require.Regexp(t, `(?m)^"a b/../c.d\\n\\"é\\" <&>" +F64 +\[1\] +copied +- +8 +8 `, text)
		requireOthers(at(name))
		got, _ := load(t, at(name))
		delete(got, "lowbit.tensors")
		require.Equal(t, metadata, got)
	}
}

func TestPatterns(t *testing.T) {
	folder := t.TempDir()
	in := filepath.Join(folder, "in")
	store(t, in, nil, f32("h.0.w", numbers(2), 2), f32("h.0.b", numbers(2), 2), f32("h,1.w", numbers(2), 2), tensor{"ids", "I64", []int64{1}, make([]byte, 8)})
	for i, c := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{"h.0.w", "h.0.b", "h,1.w"}},
		{[]string{"--include", "*.w"}, []string{"h.0.w", "h,1.w"}},
		{[]string{"--include", "h,1.?"}, []string{"h,1.w"}},
		{[]string{"--include", "*.b", "--include", "h,*"}, []string{"h.0.b", "h,1.w"}},
		{[]string{"--exclude", "*.b", "--exclude", "ids"}, []string{"h.0.w", "h,1.w"}},
		{[]string{"--include", "h*", "--exclude", "h.[0-9].w"}, []string{"h.0.b", "h,1.w"}},
		{[]string{"--include", "ids"}, []string{}},
	} {
		out := filepath.Join(folder, fmt.Sprint(i))
		var r report
		require.NoError(t, json.Unmarshal([]byte(succeeds(t, append([]string{"quantize", in, out, "--format", "nf4", "--json"}, c.flags...)...)), &r))
		got := []string{}
		for _, x := range r.Tensors {
			got = append(got, x.Name)
		}
		require.ElementsMatch(t, c.want, got, c.flags)
		require.Len(t, r.Copied, 4-len(c.want))
		decoded := out + ".decoded"
		if len(c.want) > 0 {
			succeeds(t, "dequantize", out, decoded)
		}
	}
}

// TestGolden holds the command against bitsandbytes' own codes, scales and decoded values.
func TestGolden(t *testing.T) {
	set := golden.Open(t, "bitsandbytes_quant")
	const n = 4098
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	for _, format := range []string{"nf4", "fp4"} {
		for _, block := range []int{64, 128, 256} {
			key := fmt.Sprintf("%s.%d.", format, block)
			absmax, packed, dequant := set.F32(key+"absmax"), set.U8(key+"packed"), set.F32(key+"dequant")
			in, out, back := at(key+"in"), at(key+"out"), at(key+"back")
			store(t, in, nil, f32("w", set.F32("x")[:n], n))
			succeeds(t, "quantize", in, out, "--format", format, "--block", fmt.Sprint(block), "--layout", "bitsandbytes")
			_, tensors := load(t, out)
			require.Equal(t, absmax, float32s(find(t, tensors, "w.absmax").data))
			require.Equal(t, set.F32("map."+format), float32s(find(t, tensors, "w.quant_map").data))
			require.Equal(t, []int64{int64(len(packed)), 1}, find(t, tensors, "w").shape)
			codes := find(t, tensors, "w").data
			for i := range n {
				got, want := codebook.HighFirst.Get(codes, i), codebook.HighFirst.Get(packed, i)
				if absmax[i/block] != 0 && got != want && (format != "fp4" || got|want != 8) {
					require.Fail(t, "codes differ", "%s%d: %d, want %d", key, i, got, want)
				}
			}
			succeeds(t, "dequantize", out, back)
			_, decoded := load(t, back)
			require.Equal(t, dequant, float32s(find(t, decoded, "w").data))
		}
	}
}

// TestGoldenNested reads scales that bitsandbytes quantised, and compares the offset it chose with ours.
func TestGoldenNested(t *testing.T) {
	set := golden.Open(t, "bitsandbytes_quant")
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	offset := set.F32("nf4.nested.offset")
	packed, absmax, dequant := set.U8("nf4.nested.packed"), set.U8("nf4.nested.absmax8"), set.F32("nf4.nested.dequant")
	state := fmt.Sprintf(`{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [64, 64], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": %v}`, float64(offset[0]))
	store(t, at("in"), nil,
		tensor{"w", "U8", []int64{2048, 1}, packed},
		tensor{"w.absmax", "U8", []int64{64}, absmax},
		f32("w.nested_absmax", set.F32("nf4.nested.absmax2"), 1),
		f32("w.nested_quant_map", set.F32("nf4.nested.map"), 256),
		f32("w.quant_map", set.F32("map.nf4"), 16),
		tensor{"w.quant_state.bitsandbytes__nf4", "U8", []int64{int64(len(state))}, []byte(state)})
	succeeds(t, "dequantize", at("in"), at("out"))
	_, tensors := load(t, at("out"))
	require.Equal(t, []tensor{f32("w", dequant, 64, 64)}, tensors)

	store(t, at("source"), nil, f32("w", set.F32("x")[:4096], 64, 64))
	succeeds(t, "quantize", at("source"), at("ours"), "--format", "nf4", "--layout", "bitsandbytes", "--double-quant")
	_, tensors = load(t, at("ours"))
	var s quantState
	require.NoError(t, json.Unmarshal(find(t, tensors, "w.quant_state.bitsandbytes__nf4").data, &s))
	got, err := s.NestedOffset.Float64()
	require.NoError(t, err)
	require.InEpsilon(t, float64(offset[0]), got, 1e-6)
	s.NestedOffset = ""
	require.Equal(t, quantState{"nf4", 64, "float32", []int64{64, 64}, 256, "float32", ""}, s)
	require.Equal(t, set.F32("nf4.nested.absmax2"), float32s(find(t, tensors, "w.nested_absmax").data))
	require.Equal(t, len(absmax), len(find(t, tensors, "w.absmax").data))
	succeeds(t, "dequantize", at("ours"), at("back"))
	_, tensors = load(t, at("back"))
	for i, v := range float32s(tensors[0].data) {
		require.InDelta(t, dequant[i], v, 0.02*math.Abs(float64(dequant[i]))+1e-3)
	}
}

// TestCodebooksFromFiles decodes with the table in the file, not with ours.
func TestCodebooksFromFiles(t *testing.T) {
	_, path := quantisedFile(t, "de4")
	edit(t, path, func(_ map[string]string, tensors map[string]*tensor) {
		values := float32s(tensors["lowbit.codebook.de4"].data)
		for i := range values {
			values[i] *= 2
		}
		tensors["lowbit.codebook.de4"].data = float32Bytes(values...)
	})
	out := filepath.Join(t.TempDir(), "out")
	succeeds(t, "dequantize", path, out)
	_, quantised := load(t, path)
	_, decoded := load(t, out)
	codes, scales := find(t, quantised, "w").data, float32s(find(t, quantised, "w.absmax").data)
	for i, v := range float32s(decoded[0].data) {
		require.Equal(t, 2*codebook.DE4().Values()[codebook.LowFirst.Get(codes, i)]*scales[i/64], v)
	}
}

func TestRound(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	x := numbers(1000)
	half := make([]uint16, len(x))
	for i, v := range x {
		half[i] = float16.FromFloat32(v)
	}
	brain := tensor{"b", "BF16", []int64{2}, uint16Bytes(0x7f81, 0x3f80)}
	store(t, at("in"), nil, f32("v", x, 1000), f32("w", x, 10, 100), tensor{"h", "F16", []int64{1000}, uint16Bytes(half...)}, f32("s", []float32{1.00390625}), brain)
	rounded := func(flags ...string) map[string][]uint16 {
		require.NoError(t, os.RemoveAll(at("out")))
		succeeds(t, append([]string{"round", at("in"), at("out"), "--to", "bfloat16"}, flags...)...)
		_, tensors := load(t, at("out"))
		require.Equal(t, brain, find(t, tensors, "b"))
		require.Equal(t, []int64{10, 100}, find(t, tensors, "w").shape)
		result := map[string][]uint16{}
		for _, y := range tensors {
			require.Equal(t, tensorfile.DType("BF16"), y.dtype)
			result[y.name] = uint16s(y.data)
		}
		return result
	}
	nearest, truncated := rounded(), rounded("--mode", "truncate")
	stochastic := rounded("--mode", "stochastic", "--seed", "18446744073709551615", "--step", "9")
	for i, v := range x {
		require.Equal(t, uint16(bf16.FromFloat32(v)), nearest["w"][i])
		require.Equal(t, uint16(bf16.Truncate(v)), truncated["w"][i])
		require.Equal(t, uint16(bf16.FromFloat32(float16.ToFloat32(half[i]))), nearest["h"][i])
		for _, name := range []string{"v", "w"} {
			random := bf16.RandomBits(bf16.StreamSeed(1<<64-1, 'w', name), 9, uint64(i))
			require.Equal(t, uint16(bf16.Stochastic(v, random)), stochastic[name][i])
		}
	}
	require.Equal(t, []uint16{0x3f80}, nearest["s"])
	require.NotEqual(t, stochastic["v"], stochastic["w"])
	require.Equal(t, rounded("--mode", "stochastic"), rounded("--mode", "stochastic", "--seed", "0", "--step", "0"))
	require.NotEqual(t, rounded("--mode", "stochastic", "--step", "1"), rounded("--mode", "stochastic"))
}

func TestNonFinite(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	x := numbers(300)
	x[130] = float32(math.NaN())
	x[299] = float32(math.Inf(-1))
	store(t, at("in"), nil, f32("w", x, 300), f32("ok", numbers(300), 300))
	for _, layout := range []string{"lowbit", "bitsandbytes"} {
		text := succeeds(t, "quantize", at("in"), at(layout), "--format", "nf4", "--layout", layout, "--json")
		var r report
		require.NoError(t, json.Unmarshal([]byte(text), &r))
		require.Equal(t, int64(2), r.Tensors[0].NonFiniteBlocks)
		require.Equal(t, int64(0), r.Tensors[1].NonFiniteBlocks)
		require.Contains(t, text, `"max_abs_error": null`)
		succeeds(t, "dequantize", at(layout), at(layout+".out"))
		_, tensors := load(t, at(layout+".out"))
		for i, v := range float32s(find(t, tensors, "w").data) {
			require.Equal(t, i >= 128 && i < 192 || i >= 256, v != v, i)
		}
		text = succeeds(t, "inspect", at(layout), "--against", at("in"))
		require.Regexp(t, `(?m)^w .* NaN +NaN +NaN$`, text)
		require.Regexp(t, `(?m)^total .* NaN +NaN +NaN$`, text)
		require.NotRegexp(t, `(?m)^ok .*NaN`, text)
	}
	require.Contains(t, succeeds(t, "quantize", at("in"), at("text"), "--format", "nf4"), "\nw: blocks that hold NaN or Inf and decode to NaN: 2\nwrote ")
	fails(t, exitBadInput, `tensor "w": elements 128 to 191 hold NaN or Inf`,
		"quantize", at("in"), at("double"), "--format", "nf4", "--layout", "bitsandbytes", "--double-quant")
	require.NoFileExists(t, at("double"))
	succeeds(t, "round", at("in"), at("rounded"), "--to", "bfloat16")
	require.Regexp(t, `(?m)^w .* 0\.\d+ `, succeeds(t, "inspect", at("rounded"), "--against", at("in")))
}

// TestDequantizeCountsWhatIsLost warns of numbers that float16 cannot hold, and counts blocks of NaN.
func TestDequantizeCountsWhatIsLost(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	values := make([]float32, 3*64)
	values[0], values[64], values[128] = 1e6, 65504, float32(math.NaN())
	store(t, at("in"), nil, f32("w", values, 3*64))
	require.Zero(t, lowbit("quantize", at("in"), at("q"), "--format", "nf4").code)
	for dtype, warning := range map[string]string{
		"float16":  "lowbit: warning: tensor \"w\": 1 values are too large for float16, and become Inf\n",
		"bfloat16": "",
		"source":   "",
	} {
		r := lowbit("dequantize", at("q"), at(dtype), "--dtype", dtype)
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, warning, r.stderr)
		require.Contains(t, r.stdout, "w: blocks that hold NaN or Inf and decode to NaN: 1\n")
	}
}
