package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/stretchr/testify/require"
)

// headed is a file with this header and so many bytes of data.
func headed(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestBrokenFiles(t *testing.T) {
	whole := headed(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)
	for name, content := range map[string][]byte{
		"empty":                {},
		"seven bytes":          whole[:7],
		"cut in the header":    whole[:20],
		"cut in the data":      whole[:len(whole)-1],
		"a byte too many":      append(append([]byte{}, whole...), 0),
		"header past the end":  headed(`{}`, 0)[:9],
		"header of 2^63 bytes": {0, 0, 0, 0, 0, 0, 0, 128, '{', '}'},
		"header over 100 MB":   {1, 0xe1, 0xf5, 5, 0, 0, 0, 0, '{', '}'},
		"no JSON":              headed(`{"a":`, 0),
		"an array":             headed(`[]`, 0),
		"overlap":              headed(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6),
		"hole":                 headed(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6),
		"reversed":             headed(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}`, 4),
		"beyond the data":      headed(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, 4),
		"wrong size":           headed(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8),
		"huge shape":           headed(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0),
		"negative shape":       headed(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}`, 0),
		"name twice":           headed(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0),
		"name not UTF-8":       headed("{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
		"metadata a number":    headed(`{"__metadata__":{"a":1}}`, 0),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "in")
			require.NoError(t, os.WriteFile(path, content, 0o666))
			requireRefused(t, path)
			require.Equal(t, []string{"in"}, names(t, folder))
		})
	}
	t.Run("a directory", func(t *testing.T) { requireRefused(t, t.TempDir()) })
	t.Run("absent", func(t *testing.T) { requireRefused(t, filepath.Join(t.TempDir(), "absent")) })
}

// requireRefused checks that every command that reads a file calls this one bad input.
func requireRefused(t *testing.T, path string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	_, good := small(t)
	fails(t, exitBadInput, path, "inspect", path)
	fails(t, exitBadInput, path, "inspect", good, "--against", path)
	for _, command := range conversions {
		fails(t, exitBadInput, path, append(append([]string{}, command...), path, out)...)
	}
	require.NoFileExists(t, out)
}

// edit writes path anew with its metadata and tensors changed. A tensor without a name is left out.
func edit(t *testing.T, path string, change func(metadata map[string]string, tensors map[string]*tensor)) {
	t.Helper()
	metadata, tensors := load(t, path)
	byName := map[string]*tensor{}
	for i := range tensors {
		byName[tensors[i].name] = &tensors[i]
	}
	change(metadata, byName)
	kept := []tensor{}
	for _, x := range tensors {
		if x.name != "" {
			kept = append(kept, x)
		}
	}
	require.NoError(t, os.Remove(path))
	store(t, path, metadata, kept...)
}

func TestBrokenLowbitLayout(t *testing.T) {
	const entry = `{"w":{"format":"nf4","block":64,"nibble":"low","shape":[50,10],"dtype":"F32"}}`
	described := func(old, new string) func(map[string]string, map[string]*tensor) {
		require.Contains(t, entry, old)
		return func(metadata map[string]string, _ map[string]*tensor) {
			metadata["lowbit.tensors"] = strings.Replace(entry, old, new, 1)
		}
	}
	tensorOf := func(name string, change func(x *tensor)) func(map[string]string, map[string]*tensor) {
		return func(_ map[string]string, tensors map[string]*tensor) { change(tensors[name]) }
	}
	book := "lowbit.codebook.nf4"
	for words, change := range map[string]func(map[string]string, map[string]*tensor){
		"metadata lowbit.tensors: unexpected EOF":   described(entry, entry[:20]),
		"metadata lowbit.tensors: null":             described(entry, "null"),
		"metadata lowbit.tensors: more than one":    described(entry, entry+"{}"),
		"cannot unmarshal array":                    described(entry, "[]"),
		`unknown field "blocks"`:                    described(`"block"`, `"blocks"`),
		"its block is 0, want 1":                    described("64", "0"),
		"its block is 1048577":                      described("64", "1048577"),
		"cannot unmarshal number 64.5":              described("64", "64.5"),
		`its nibble is "up", want`:                  described("low", "up"),
		`its nibble is "", want low`:                described(`"low"`, `""`),
		"it has no shape":                           described("[50,10]", "null"),
		"its shape is [-1,10], want":                described("50", "-1"),
		"its shape is [9223372036854775807,10]":     described("50", "9223372036854775807"),
		`its dtype is "I8", want F32`:               described("F32", "I8"),
		`but there is no tensor "lowbit.codebook.x`: described("nf4", "x"),
		`tensor "v": it is quantised, but`:          described(`"w"`, `"v"`),
		"it has 8 elements, want 16 for":            described("64", "32"),
		"it has 250 elements, want 255":             described("50", "51"),
		`but there is no tensor "w.absmax"`:         tensorOf("w.absmax", func(x *tensor) { x.name = "" }),
		`but there is no tensor "w"`:                tensorOf("w", func(x *tensor) { x.name = "" }),
		`tensor "w": it is I8, want U8`:             tensorOf("w", func(x *tensor) { x.dtype = "I8" }),
		`tensor "w.absmax": it is U32, want F32`:    tensorOf("w.absmax", func(x *tensor) { x.dtype = "U32" }),
		`nf4": it is U32 with 16 elements, want F3`: tensorOf(book, func(x *tensor) { x.dtype = "U32" }),
		`nf4": it is F32 with 1 elements, want F32`: tensorOf(book, func(x *tensor) { x.shape, x.data = []int64{1}, x.data[:4] }),
		"value 0 is NaN, want finite values":        tensorOf(book, func(x *tensor) { x.data[2], x.data[3] = 0xff, 0xff }),
		"both have the value":                       tensorOf(book, func(x *tensor) { copy(x.data[:4], x.data[4:]) }),
		"element 0 has code 15, want less than 15": func(_ map[string]string, tensors map[string]*tensor) {
			tensors[book].shape, tensors[book].data = []int64{15}, tensors[book].data[:60]
			tensors["w"].data[0] = 0xff
		},
	} {
		t.Run(words, func(t *testing.T) {
			_, path := quantisedFile(t, "nf4")
			edit(t, path, change)
			out := filepath.Join(t.TempDir(), "out")
			fails(t, exitBadInput, words, "dequantize", path, out)
			require.NoFileExists(t, out)
			if !strings.HasPrefix(words, "element") { // a code is seen when it is read
				fails(t, exitBadInput, words, "inspect", path)
			}
		})
	}
	t.Run("nibble of 8 bits", func(t *testing.T) {
		_, path := quantisedFile(t, "dynamic8")
		edit(t, path, func(metadata map[string]string, _ map[string]*tensor) {
			metadata["lowbit.tensors"] = strings.Replace(metadata["lowbit.tensors"], `"nibble":""`, `"nibble":"low"`, 1)
		})
		fails(t, exitBadInput, `its nibble is "low", want none for 8-bit codes`, "inspect", path)
	})
}

// quantisedFile quantises a tensor "w" of 50x10 elements.
func quantisedFile(t *testing.T, flags ...string) (source, path string) {
	t.Helper()
	folder := t.TempDir()
	source, path = filepath.Join(folder, "source"), filepath.Join(folder, "quantised")
	store(t, source, map[string]string{"format": "pt"}, f32("w", numbers(500), 50, 10))
	succeeds(t, append([]string{"quantize", source, path, "--format"}, flags...)...)
	return source, path
}

func TestBrokenBitsandbytesLayout(t *testing.T) {
	const state = "w.quant_state.bitsandbytes__nf4"
	text := func(old, new string) func(map[string]*tensor) {
		return func(tensors map[string]*tensor) {
			x := tensors[state]
			require.Contains(t, string(x.data), old)
			x.data = []byte(strings.Replace(string(x.data), old, new, 1))
			x.shape = []int64{int64(len(x.data))}
		}
	}
	tensorOf := func(name string, change func(x *tensor)) func(map[string]*tensor) {
		return func(tensors map[string]*tensor) { change(tensors[name]) }
	}
	drop := func(x *tensor) { x.name = "" }
	for words, change := range map[string]func(map[string]*tensor){
		"unexpected end of JSON":                   text("}", ""),
		`its quant_type is "fp4", want nf4 or fp4`: text(`"nf4"`, `"fp4"`),
		"its blocksize is 0":                       text(`"blocksize":64`, `"blocksize":0`),
		"its blocksize is 1048577":                 text(`"blocksize":64`, `"blocksize":1048577`),
		`its dtype is "int8", want float32`:        text(`"dtype":"float32"`, `"dtype":"int8"`),
		"it has no shape":                          text(`"shape":[50,10],`, ""),
		"its shape is [50,-10], want":              text("10", "-10"),
		"its nested_blocksize is 0":                text(`"nested_blocksize":256`, `"nested_blocksize":0`),
		"its nested_blocksize is 16385, want 1 to": text(`"nested_blocksize":256`, `"nested_blocksize":16385`),
		`its nested_dtype is "float16"`:            text(`"nested_dtype":"float32"`, `"nested_dtype":"float16"`),
		`its nested_offset is "1e39", want`:        text(`"nested_offset":`, `"nested_offset":1e39,"x":`),
		`"w.absmax": it is U8, want F32`:           text(`,"nested_blocksize":256,"nested_dtype":"float32","nested_offset"`, `,"x"`),
		`: it is I8 with `:                         tensorOf(state, func(x *tensor) { x.dtype = "I8" }),
		"bytes, want U8 with at most 65536":        tensorOf(state, func(x *tensor) { x.data, x.shape = make([]byte, 1<<16+1), []int64{1<<16 + 1} }),
		"its quant_type is":                        tensorOf(state, func(x *tensor) { x.name = "w.quant_state.bitsandbytes__nf5" }),
		`no tensor "w.quant_map"`:                  tensorOf("w.quant_map", drop),
		`no tensor "w.absmax"`:                     tensorOf("w.absmax", drop),
		`no tensor "w.nested_absmax"`:              tensorOf("w.nested_absmax", drop),
		`no tensor "w.nested_quant_map"`:           tensorOf("w.nested_quant_map", drop),
		`no tensor "w"`:                            tensorOf("w", drop),
		`"w.quant_map": it has 15 elements, want`:  tensorOf("w.quant_map", func(x *tensor) { x.data, x.shape = x.data[:60], []int64{15} }),
		`"w": it has 250 elements, want 255`:       text("50", "51"),
		"both have the value":                      tensorOf("w.nested_quant_map", func(x *tensor) { copy(x.data[:4], x.data[4:]) }),
	} {
		t.Run(words, func(t *testing.T) {
			_, path := quantisedFile(t, "nf4", "--layout", "bitsandbytes", "--double-quant")
			edit(t, path, func(_ map[string]string, tensors map[string]*tensor) { change(tensors) })
			out := filepath.Join(t.TempDir(), "out")
			fails(t, exitBadInput, words, "dequantize", path, out)
			require.NoFileExists(t, out)
			fails(t, exitBadInput, words, "inspect", path)
		})
	}
	t.Run("both layouts", func(t *testing.T) {
		_, path := quantisedFile(t, "nf4", "--layout", "bitsandbytes")
		_, tensors := load(t, path)
		both := path + ".both"
		store(t, both, map[string]string{
			"lowbit.tensors": `{"w":{"format":"nf4","block":64,"nibble":"high","shape":[500],"dtype":"F32"}}`,
		}, append(tensors, f32("lowbit.codebook.nf4", codebook.NF4().Values(), 16))...)
		fails(t, exitBadInput, `tensor "w": it is quantised in the lowbit and in the bitsandbytes layout`, "inspect", both)
	})
}

func TestQuantisedInputsAreRefused(t *testing.T) {
	_, lowbitFile := quantisedFile(t, "linear8")
	_, other := quantisedFile(t, "fp4", "--layout", "bitsandbytes")
	half := filepath.Join(t.TempDir(), "half")
	store(t, half, nil, f32("w", numbers(4), 4), f32("w.absmax", numbers(1), 1))
	out := filepath.Join(t.TempDir(), "out")
	for path, words := range map[string]string{
		lowbitFile: "it has the metadata lowbit.tensors, so it is quantised already",
		other:      `it has a tensor "w.absmax", so "w" is quantised already; lowbit dequantize turns it back`,
		half:       `it has a tensor "w.absmax", so "w" is quantised already; lowbit dequantize turns it back`,
	} {
		fails(t, exitBadInput, words, "quantize", path, out, "--format", "nf4")
		fails(t, exitBadInput, words, "round", path, out, "--to", "bfloat16")
		fails(t, exitBadInput, words, "inspect", half, "--against", path)
	}
	taken := filepath.Join(t.TempDir(), "taken")
	for _, name := range []string{"w.quant_map", "w.nested_quant_map", "w.nested_absmax", "lowbit.codebook.nf4"} {
		store(t, taken, nil, f32("w", numbers(4), 4), tensor{name, "I64", []int64{1}, make([]byte, 8)})
		command := []string{"quantize", taken, out, "--format", "nf4"}
		if !strings.HasPrefix(name, "lowbit") {
			command = append(command, "--layout", "bitsandbytes", "--double-quant")
		}
		fails(t, exitBadInput, fmt.Sprintf("it has a tensor %q, a name that the output needs", name), command...)
		require.NoError(t, os.Remove(taken))
	}
	require.NoFileExists(t, out)
}
