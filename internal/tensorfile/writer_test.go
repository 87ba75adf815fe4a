package tensorfile_test

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.safetensors")
	metadata := map[string]string{"z": "1", "a": "Ω \"<&>\n", "": ""}
	tensors := []tensorfile.Tensor{
		{Name: "model.layers.0/w é", DType: "F32", Shape: []int64{3, 40_000}},
		{Name: "scalar", DType: "F32"},
		{Name: "", DType: "U8", Shape: []int64{0, 7}},
		{Name: "half", DType: "F16", Shape: []int64{3}},
		{Name: "brain", DType: "BF16", Shape: []int64{70_001}},
		{Name: "later", DType: "Q7", Shape: []int64{9}, Bytes: 5},
		{Name: "nibbles", DType: "F4", Shape: []int64{6}, Bytes: 3},
	}
	w, err := tensorfile.Create(path, metadata, tensors, false)
	require.NoError(t, err)
	defer w.Abort()
	floats := make([]float32, 120_000)
	for i := range floats {
		floats[i] = math.Float32frombits(uint32(i) * 0x9e3779b1 & 0x7f7fffff)
	}
	patterns := make([]uint16, 70_001)
	for i := range patterns {
		patterns[i] = uint16(i)
	}
	require.NoError(t, w.WriteFloat32(0, floats[50_000:], 50_000))
	require.NoError(t, w.WriteFloat32(0, floats[:50_000], 0))
	require.NoError(t, w.WriteFloat32(1, []float32{-2}, 0))
	require.NoError(t, w.WriteUint16(3, []uint16{1, 2, 3}, 0))
	require.NoError(t, w.WriteUint16(4, patterns, 0))
	require.NoError(t, w.WriteAt(5, []byte("later"), 0))
	require.NoError(t, w.WriteAt(6, []byte("n"), 2))
	require.NoError(t, w.WriteAt(6, []byte("ni"), 0))
	require.NoError(t, w.Commit())
	require.NoError(t, w.Abort())
	require.Equal(t, []string{"out.safetensors"}, names(t, filepath.Dir(path)))

	f, err := tensorfile.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, metadata, f.Metadata)
	require.Len(t, f.Tensors, len(tensors))
	end := int64(0)
	for i, got := range f.Tensors {
		want := tensors[i]
		want.Offset, want.Shape = end, append([]int64{}, want.Shape...)
		if want.Bytes == 0 {
			want.Bytes = want.Elements() * want.DType.Bits() / 8
		}
		require.Equal(t, want, got)
		end += want.Bytes
	}
	gotFloats, gotPatterns := make([]float32, len(floats)), make([]uint16, len(patterns))
	require.NoError(t, f.ReadFloat32(f.Tensors[0], gotFloats, 0))
	require.Equal(t, floats, gotFloats)
	require.NoError(t, f.ReadFloat32(f.Tensors[1], gotFloats[:1], 0))
	require.Equal(t, float32(-2), gotFloats[0])
	require.NoError(t, f.ReadUint16(f.Tensors[3], gotPatterns[:3], 0))
	require.Equal(t, []uint16{1, 2, 3}, gotPatterns[:3])
	require.NoError(t, f.ReadUint16(f.Tensors[4], gotPatterns, 0))
	require.Equal(t, patterns, gotPatterns)
	text := make([]byte, 5)
	require.NoError(t, f.ReadAt(f.Tensors[5], text, 0))
	require.Equal(t, "later", string(text))
	require.NoError(t, f.ReadAt(f.Tensors[6], text[:3], 0))
	require.Equal(t, "nin", string(text[:3]))
}

// The bytes are spelled out, so that a big-endian host that writes its own order fails.
func TestBytesOfAFile(t *testing.T) {
	const header = `{"__metadata__":{"a":"1","b":"2"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"h":{"dtype":"BF16","shape":[],"data_offsets":[4,6]}}    `
	want := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	want = append(append(want, header...), 0, 0, 0x80, 0x3f, 0x34, 0x12)
	require.Zero(t, (len(want)-6)%8)
	path := filepath.Join(t.TempDir(), "x")
	w, err := tensorfile.Create(path, map[string]string{"b": "2", "a": "1"},
		[]tensorfile.Tensor{{Name: "w", DType: "F32", Shape: []int64{1}}, {Name: "h", DType: "BF16"}}, false)
	require.NoError(t, err)
	require.NoError(t, w.WriteUint16(1, []uint16{0x1234}, 0))
	require.NoError(t, w.WriteFloat32(0, []float32{1}, 0))
	require.NoError(t, w.Commit())
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestCreateRefuses(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x")
	u8 := func(name string, bytes int64, shape ...int64) tensorfile.Tensor {
		return tensorfile.Tensor{Name: name, DType: "U8", Shape: shape, Bytes: bytes}
	}
	for name, c := range map[string]struct {
		metadata map[string]string
		tensors  []tensorfile.Tensor
		want     string
	}{
		"duplicate name":          {nil, []tensorfile.Tensor{u8("a", 1, 1), u8("b", 1, 1), u8("a", 1, 1)}, `tensor "a" comes twice`},
		"name is not UTF-8":       {nil, []tensorfile.Tensor{u8("a\xff", 1, 1)}, `tensor "a\xff": the name is not UTF-8`},
		"name of the metadata":    {nil, []tensorfile.Tensor{u8("__metadata__", 1, 1)}, `tensor "__metadata__": the name is the metadata's`},
		"bytes do not match":      {nil, []tensorfile.Tensor{u8("a", 5, 2, 3)}, `tensor "a": 5 bytes, shape [2 3] of U8 takes 6`},
		"bytes without elements":  {nil, []tensorfile.Tensor{u8("a", 5, 0)}, `tensor "a": 5 bytes, shape [0] of U8 takes 0`},
		"negative shape":          {nil, []tensorfile.Tensor{u8("a", 0, 2, -3)}, `tensor "a": shape [2 -3] has a negative dimension`},
		"product over 63 bits":    {nil, []tensorfile.Tensor{u8("a", 0, 1<<32, 1<<31)}, `tensor "a": shape [4294967296 2147483648] has more elements than 63 bits count`},
		"half a byte":             {nil, []tensorfile.Tensor{{Name: "a", DType: "F4", Shape: []int64{3}}}, `tensor "a": shape [3] of F4 is 12 bits, want whole bytes`},
		"no dtype":                {nil, []tensorfile.Tensor{{Name: "a"}}, `tensor "a": dtype "", want a name in UTF-8`},
		"unknown, negative bytes": {nil, []tensorfile.Tensor{{Name: "a", DType: "Q7", Bytes: -1}}, `tensor "a": -1 bytes, want at least 0`},
		"sum over 62 bits":        {nil, []tensorfile.Tensor{{Name: "a", DType: "Q7", Bytes: 1 << 61}, {Name: "b", DType: "Q7", Bytes: 1 << 61}}, `tensor "b": the file would be longer than 62 bits count`},
		"metadata is not UTF-8":   {map[string]string{"a": "\xff"}, nil, `__metadata__: "a": "\xff" is not UTF-8`},
		"header over the limit":   {map[string]string{"a": strings.Repeat("a", 100_000_000)}, nil, `the header takes 100000032 bytes, at most 100000000 are allowed`},
	} {
		_, err := tensorfile.Create(path, c.metadata, c.tensors, false)
		require.EqualError(t, err, path+": "+c.want, name)
		var format *tensorfile.FormatError
		require.ErrorAs(t, err, &format, name)
	}
	require.Empty(t, names(t, folder))
}

var pair = []tensorfile.Tensor{{Name: "a", DType: "F32", Shape: []int64{2}}, {Name: "b", DType: "I16", Shape: []int64{2}}}

func TestWritesRefuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	w, err := tensorfile.Create(path, nil, pair, false)
	require.NoError(t, err)
	defer w.Abort()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"past the end":     {w.WriteAt(0, make([]byte, 5), 4), `tensor "a": bytes 4 to 9, it has 8`},
		"before the start": {w.WriteAt(1, make([]byte, 1), -1), `tensor "b": bytes -1 to 0, it has 4`},
		"elements past":    {w.WriteFloat32(0, make([]float32, 2), 1), `tensor "a": elements 1 to 3, it has 2`},
		"elements before":  {w.WriteUint16(1, make([]uint16, 1), -1), `tensor "b": elements -1 to 0, it has 2`},
		"no float":         {w.WriteFloat32(1, make([]float32, 1), 0), `tensor "b" is I16, want F32`},
		"no patterns":      {w.WriteUint16(0, make([]uint16, 1), 0), `tensor "a" is F32, want F16, BF16, U16 or I16`},
		"number too large": {w.WriteAt(2, nil, 0), `tensor number 2, it has 2`},
		"number negative":  {w.WriteFloat32(-1, nil, 0), `tensor number -1, it has 2`},
		"and in patterns":  {w.WriteUint16(2, nil, 0), `tensor number 2, it has 2`},
	} {
		require.EqualError(t, c.err, path+": "+c.want, name)
	}
}

func TestCommitWantsEveryByte(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x")
	for name, c := range map[string]struct {
		writes [][2]int64 // start and end in tensor a
		want   string     // the first gap
	}{
		"nothing":          {nil, `bytes 0 to 8 were never written`},
		"no start":         {[][2]int64{{1, 8}}, `bytes 0 to 1 were never written`},
		"no end":           {[][2]int64{{0, 7}}, `bytes 7 to 8 were never written`},
		"a hole":           {[][2]int64{{6, 8}, {0, 3}}, `bytes 3 to 6 were never written`},
		"the same twice":   {[][2]int64{{0, 4}, {0, 4}}, `bytes 4 to 8 were never written`},
		"one over another": {[][2]int64{{2, 4}, {1, 6}, {0, 3}}, `bytes 6 to 8 were never written`},
		"bridged":          {[][2]int64{{0, 1}, {2, 3}, {4, 5}, {1, 4}, {6, 8}}, `bytes 5 to 6 were never written`},
		"empty writes":     {[][2]int64{{0, 0}, {3, 3}, {8, 8}}, `bytes 0 to 8 were never written`},
		"backwards":        {[][2]int64{{7, 8}, {5, 7}, {2, 5}, {0, 2}}, ``},
	} {
		w, err := tensorfile.Create(path, nil, pair, false)
		require.NoError(t, err)
		require.NoError(t, w.WriteUint16(1, []uint16{1, 2}, 0))
		for _, s := range c.writes {
			require.NoError(t, w.WriteAt(0, make([]byte, s[1]-s[0]), s[0]))
		}
		err = w.Commit()
		if c.want == "" {
			require.NoError(t, err, name)
			require.NoError(t, os.Remove(path))
			continue
		}
		require.EqualError(t, err, path+`: tensor "a": `+c.want, name)
		require.Empty(t, names(t, folder), name)
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	w, err := tensorfile.Create(filepath.Join(folder, "x"), nil, pair, false)
	require.NoError(t, err)
	require.NoError(t, w.WriteFloat32(0, []float32{1, 2}, 0))
	require.Len(t, names(t, folder), 1)
	require.NoError(t, w.Abort())
	require.Empty(t, names(t, folder))
	require.NoError(t, w.Abort())
	require.ErrorIs(t, w.WriteFloat32(0, []float32{1, 2}, 0), os.ErrClosed)
	require.ErrorIs(t, w.Commit(), os.ErrClosed)
	require.Empty(t, names(t, folder))
}

func TestExistingOutput(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x")
	write := func(value uint16, overwrite bool) error {
		w, err := tensorfile.Create(path, nil, pair[1:], overwrite)
		if err != nil {
			return err
		}
		require.NoError(t, w.WriteUint16(0, []uint16{value, value}, 0))
		return w.Commit()
	}
	value := func() uint16 {
		f, err := tensorfile.Open(path)
		require.NoError(t, err)
		defer f.Close()
		var v [1]uint16
		require.NoError(t, f.ReadUint16(f.Tensors[0], v[:], 1))
		return v[0]
	}
	require.NoError(t, write(1, false))
	err := write(2, false)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, path)
	require.Equal(t, uint16(1), value())
	require.NoError(t, write(3, true))
	require.Equal(t, uint16(3), value())

	require.NoError(t, os.Remove(path))
	late, err := tensorfile.Create(path, nil, nil, false)
	require.NoError(t, err)
	require.NoError(t, write(4, false))
	require.ErrorIs(t, late.Commit(), fs.ErrExist)
	require.Equal(t, uint16(4), value())
	require.Equal(t, []string{"x"}, names(t, folder))

	_, err = tensorfile.Create(folder, nil, nil, true)
	require.EqualError(t, err, folder+": a directory, want a file to replace or a new name")
	_, err = tensorfile.Create(filepath.Join(path, "y"), nil, nil, true)
	require.Error(t, err) // no file can be made below a file
	_, err = tensorfile.Create(filepath.Join(folder, "absent", "y"), nil, nil, false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []string{"x"}, names(t, folder))
}

func TestWritesFromManyGoroutines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	const parts, size = 64, 1000
	w, err := tensorfile.Create(path, nil, []tensorfile.Tensor{{Name: "a", DType: "F32", Shape: []int64{parts, size}}}, false)
	require.NoError(t, err)
	defer w.Abort()
	var group sync.WaitGroup
	for part := range parts {
		group.Go(func() {
			values := make([]float32, size)
			for i := range values {
				values[i] = float32(part*size + i)
			}
			if err := w.WriteFloat32(0, values, int64(part*size)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.NoError(t, w.Commit())
	f, err := tensorfile.Open(path)
	require.NoError(t, err)
	defer f.Close()
	values := make([]float32, parts*size)
	for part := range parts {
		group.Go(func() {
			if err := f.ReadFloat32(f.Tensors[0], values[part*size:(part+1)*size], int64(part*size)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i, v := range values {
		require.Equal(t, float32(i), v)
	}
}

func TestElementsAllocateNothing(t *testing.T) {
	const n = 100_000
	floats, patterns := make([]float32, n), make([]uint16, n)
	w, err := tensorfile.Create(filepath.Join(t.TempDir(), "x"), nil,
		[]tensorfile.Tensor{{Name: "a", DType: "F32", Shape: []int64{n}}, {Name: "b", DType: "F16", Shape: []int64{n}}}, false)
	require.NoError(t, err)
	defer w.Abort()
	content := file(`{`+x("F16", "[100000]", "[0,200000]")+`}`, 2*n)
	f, err := tensorfile.Decode(bytes.NewReader(content), int64(len(content)), "memory")
	require.NoError(t, err)
	for name, call := range map[string]func() error{
		"ReadFloat32":  func() error { return f.ReadFloat32(f.Tensors[0], floats, 0) },
		"ReadUint16":   func() error { return f.ReadUint16(f.Tensors[0], patterns, 0) },
		"WriteFloat32": func() error { return w.WriteFloat32(0, floats, 0) },
		"WriteUint16":  func() error { return w.WriteUint16(1, patterns, 0) },
	} {
		require.NoError(t, call(), name)
		require.Less(t, testing.AllocsPerRun(50, func() { call() }), 1.0, name)
	}
}

func names(t *testing.T, folder string) (list []string) {
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
