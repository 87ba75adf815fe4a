package tensorfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// file is a safetensors file with the given header and as many bytes of data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// x is the member of a header that describes a tensor x.
func x(dtype, shape, offsets string) string {
	return `"x":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}`
}

var broken = map[string]struct {
	content []byte
	want    string
}{
	"empty file":                {nil, "0 bytes, want at least 8 for the length of a header"},
	"shorter than the length":   {make([]byte, 7), "7 bytes, want at least 8 for the length of a header"},
	"no header":                 {make([]byte, 8), `the header starts with "", want '{'`},
	"length past the end":       {append([]byte{200, 0, 0, 0, 0, 0, 0, 0}, "{}"...), "no safetensors file, or cut off: its first 8 bytes stand for a header of 200 bytes, the file has 2 after its length"},
	"length over the limit":     {append([]byte{1, 0xe1, 0xf5, 5, 0, 0, 0, 0}, "{}"...), "no safetensors file: its first 8 bytes stand for a header of 100000001 bytes, at most 100000000 are allowed"},
	"length over 63 bits":       {append(bytes.Repeat([]byte{255}, 8), "{}"...), "no safetensors file: its first 8 bytes stand for a header of 18446744073709551615 bytes, at most 100000000 are allowed"},
	"space before the header":   {file(` {}`, 0), `the header starts with " ", want '{'`},
	"header is an array":        {file(`[]`, 0), `the header starts with "[", want '{'`},
	"header ends early":         {file(`{"x":{"dtype":"F32",`, 0), "the header ends in the middle of its JSON"},
	"header ends in a string":   {file(`{"x`, 0), "the header ends in the middle of its JSON"},
	"trailing text":             {file(`{}  {}`, 0), `the header goes on with "{}" after its closing brace, want only spaces`},
	"trailing zero":             {file("{}\x00", 0), `the header goes on with "\x00" after its closing brace, want only spaces`},
	"name is not UTF-8":         {file("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "the header is not UTF-8"},
	"name is half a surrogate":  {file(`{"a\ud83d":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `the header's escape \ud83d is half a surrogate pair`},
	"surrogates in wrong order": {file(`{"\ude00\ud83d":{}}`, 0), `the header's escape \ude00 is half a surrogate pair`},
	"metadata half a surrogate": {file(`{"__metadata__":{"a":"\\\ud83d\\"}}`, 0), `the header's escape \ud83d is half a surrogate pair`},
	"duplicate name":            {file(`{`+x("U8", "[1]", "[0,1]")+`,`+x("U8", "[1]", "[0,1]")+`}`, 1), `the header has the key "x" twice`},
	"duplicate escaped name":    {file(`{`+x("U8", "[1]", "[0,1]")+`,"\u0078":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `the header has the key "x" twice`},
	"duplicate metadata":        {file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `__metadata__ has the key "a" twice`},
	"duplicate dtype":           {file(`{"x":{"dtype":"U8","dtype":"I8","shape":[1]}}`, 1), `tensor "x" has the key "dtype" twice`},
	"metadata twice":            {file(`{"__metadata__":{},"__metadata__":{}}`, 0), `the header has the key "__metadata__" twice`},
	"metadata is null":          {file(`{"__metadata__":null}`, 0), "__metadata__ is null, want an object"},
	"metadata holds a number":   {file(`{"__metadata__":{"step":7}}`, 0), `__metadata__: "step" is 7, want a string`},
	"metadata holds an object":  {file(`{"__metadata__":{"step":{}}}`, 0), `__metadata__: "step" is an object, want a string`},
	"tensor is a list":          {file(`{"x":[]}`, 0), `tensor "x" is an array, want an object`},
	"tensor is a string":        {file(`{"x":"y"}`, 0), `tensor "x" is "y", want an object`},
	"no offsets":                {file(`{"x":{"dtype":"U8","shape":[1]}}`, 1), `tensor "x": 2 of the keys dtype, shape and data_offsets, want all three`},
	"an unknown key":            {file(`{"x":{"dtype":"U8","shape":[1],"scale":[0,1]}}`, 1), `tensor "x": key "scale" is unknown, want dtype, shape and data_offsets`},
	"dtype is empty":            {file(`{`+x("", "[1]", "[0,1]")+`}`, 1), `tensor "x": dtype is empty`},
	"dtype is a number":         {file(`{"x":{"dtype":32}}`, 1), `tensor "x": dtype is 32, want a string`},
	"shape is a number":         {file(`{`+x("U8", "1", "[0,1]")+`}`, 1), `tensor "x": shape is 1, want an array`},
	"shape is null":             {file(`{`+x("U8", "null", "[0,1]")+`}`, 1), `tensor "x": shape is null, want an array`},
	"shape has a fraction":      {file(`{`+x("U8", "[1.0]", "[0,1]")+`}`, 1), `tensor "x": shape holds 1.0, want whole numbers from 0 to 2^63-1`},
	"shape has an exponent":     {file(`{`+x("U8", "[1e0]", "[0,1]")+`}`, 1), `tensor "x": shape holds 1e0, want whole numbers from 0 to 2^63-1`},
	"shape is negative":         {file(`{`+x("U8", "[-1]", "[0,1]")+`}`, 1), `tensor "x": shape holds -1, want whole numbers from 0 to 2^63-1`},
	"shape has a list":          {file(`{`+x("U8", "[[1]]", "[0,1]")+`}`, 1), `tensor "x": shape holds an array, want whole numbers from 0 to 2^63-1`},
	"shape over 63 bits":        {file(`{`+x("U8", "[9223372036854775808]", "[0,1]")+`}`, 1), `tensor "x": shape holds 9223372036854775808, want whole numbers from 0 to 2^63-1`},
	"product over 63 bits":      {file(`{`+x("U8", "[4294967296,4294967296]", "[0,0]")+`}`, 0), `tensor "x": shape [4294967296 4294967296] has more elements than 63 bits count`},
	"product but for a zero":    {file(`{`+x("U8", "[4294967296,0,4294967296]", "[0,0]")+`}`, 0), `tensor "x": shape [4294967296 0 4294967296] has more elements than 63 bits count`},
	"unknown dtype, same":       {file(`{`+x("Q7", "[4294967296,4294967296]", "[0,0]")+`}`, 0), `tensor "x": shape [4294967296 4294967296] has more elements than 63 bits count`},
	"bytes over 63 bits":        {file(`{`+x("F64", "[2305843009213693952]", "[0,0]")+`}`, 0), `tensor "x": shape [2305843009213693952] of F64 has more bits than 63 bits count`},
	"bytes do not match":        {file(`{`+x("F32", "[2,3]", "[0,20]")+`}`, 20), `tensor "x": data_offsets span 20 bytes, shape [2 3] of F32 takes 24`},
	"scalar without bytes":      {file(`{`+x("F32", "[]", "[0,0]")+`}`, 0), `tensor "x": data_offsets span 0 bytes, shape [] of F32 takes 4`},
	"half a byte":               {file(`{`+x("F4", "[3]", "[0,2]")+`}`, 2), `tensor "x": shape [3] of F4 is 12 bits, want whole bytes`},
	"many dimensions":           {file(`{`+x("U8", "[2"+strings.Repeat(",1", 5000)+"]", "[0,1]")+`}`, 1), `tensor "x": data_offsets span 1 bytes, shape [2 1 1 1 1 1 1 1]… (5001 dimensions) of U8 takes 2`},
	"one offset":                {file(`{`+x("U8", "[1]", "[0]")+`}`, 1), `tensor "x": 1 data_offsets, want 2`},
	"three offsets":             {file(`{`+x("U8", "[1]", "[0,1,2]")+`}`, 1), `tensor "x": 3 data_offsets, want 2`},
	"negative offset":           {file(`{`+x("U8", "[2]", "[-1,1]")+`}`, 1), `tensor "x": data_offsets holds -1, want whole numbers from 0 to 2^63-1`},
	"reversed offsets":          {file(`{`+x("U8", "[1]", "[1,0]")+`}`, 1), `tensor "x": data_offsets [1 0] are reversed`},
	"offsets past the end":      {file(`{`+x("U8", "[8]", "[0,8]")+`}`, 7), `tensor "x" ends at byte 8 of the data, the file holds 7`},
	"offsets far past the end":  {file(`{`+x("Q7", "[8]", "[9223372036854775806,9223372036854775807]")+`}`, 7), `tensor "x" ends at byte 9223372036854775807 of the data, the file holds 7`},
	"an overlap":                {file(`{"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},`+x("U8", "[2]", "[0,2]")+`}`, 3), `tensors "x" and "y" overlap: one ends at byte 2 of the data, the other starts at 1`},
	"an empty tensor inside":    {file(`{"y":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},`+x("U8", "[2]", "[0,2]")+`}`, 2), `tensors "x" and "y" overlap: one ends at byte 2 of the data, the other starts at 1`},
	"a hole":                    {file(`{"y":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},`+x("U8", "[2]", "[0,2]")+`}`, 4), `bytes 2 to 3 of the data, before tensor "y", belong to no tensor`},
	"a hole at the start":       {file(`{`+x("U8", "[1]", "[1,2]")+`}`, 2), `bytes 0 to 1 of the data, before tensor "x", belong to no tensor`},
	"data after the last":       {file(`{`+x("U8", "[1]", "[0,1]")+`}`, 2), `the tensors end at byte 1 of the data, the file holds 2`},
	"data without tensors":      {file(`{}`, 2), `the tensors end at byte 0 of the data, the file holds 2`},
	"a long name":               {file(`{"`+strings.Repeat("n", 1000)+`":1}`, 0), `tensor "` + strings.Repeat("n", 100) + `" is 1, want an object`},
}

func TestBrokenFiles(t *testing.T) {
	folder := t.TempDir()
	for name, c := range broken {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, c.content, 0o666))
		_, err := tensorfile.Open(path)
		require.EqualError(t, err, path+": "+c.want, name)
		var format *tensorfile.FormatError
		require.ErrorAs(t, err, &format, name)
	}
}

func TestNoJSON(t *testing.T) {
	for _, header := range []string{
		`{x}`, `{"x"}`, `{"x":{"dtype":F32}}`, `{` + x("U8", "[1]", "[0,1]") + `,}`, `{` + x("U8", "[1,]", "[0,1]") + `}`,
		`{` + x("U8", "[01]", "[0,1]") + `}`, "{\"a\nb\":{}}", `{"\x":{}}`, `{"\u12g4":{}}`,
	} {
		_, err := decode(file(header, 1))
		require.ErrorContains(t, err, "memory: the header is not JSON: ", header)
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	whole := file(`{`+x("F32", "[2]", "[0,8]")+`}`, 8)
	for n := range whole {
		_, err := decode(whole[:n])
		var format *tensorfile.FormatError
		require.ErrorAs(t, err, &format, "%d bytes", n)
	}
}

func TestOpenWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	_, err := tensorfile.Open(folder)
	require.EqualError(t, err, folder+": a directory, want a safetensors file")
	_, err = tensorfile.Open(filepath.Join(folder, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		want    []tensorfile.Tensor
	}{
		"no tensors":      {file(`{}`, 0), nil},
		"padded":          {file(`{}      `, 0), nil},
		"scalar":          {file(`{`+x("F32", "[]", "[0,4]")+`}`, 4), []tensorfile.Tensor{{"x", "F32", []int64{}, 0, 4}}},
		"no elements":     {file(`{`+x("F32", "[3,0]", "[0,0]")+`}`, 0), []tensorfile.Tensor{{"x", "F32", []int64{3, 0}, 0, 0}}},
		"unknown dtype":   {file(`{`+x("Q7", "[5]", "[0,3]")+`}`, 3), []tensorfile.Tensor{{"x", "Q7", []int64{5}, 0, 3}}},
		"half bytes":      {file(`{`+x("F4", "[3,2]", "[0,3]")+`}`, 3), []tensorfile.Tensor{{"x", "F4", []int64{3, 2}, 0, 3}}},
		"six bits":        {file(`{`+x("F6_E2M3", "[4]", "[0,3]")+`}`, 3), []tensorfile.Tensor{{"x", "F6_E2M3", []int64{4}, 0, 3}}},
		"other key order": {file(`{"x":{"data_offsets":[0,1],"shape":[1],"dtype":"BOOL"}}`, 1), []tensorfile.Tensor{{"x", "BOOL", []int64{1}, 0, 1}}},
		"a pair of surrogates": {file(`{"\ud83d\ude00 \\ud83d/.":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			[]tensorfile.Tensor{{"😀 \\ud83d/.", "U8", []int64{1}, 0, 1}}},
		"data in another order": {file(`{"b":{"dtype":"I64","shape":[1],"data_offsets":[1,9]},"e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}`, 9),
			[]tensorfile.Tensor{{"", "F8_E4M3", []int64{1}, 0, 1}, {"e", "U8", []int64{0}, 1, 0}, {"b", "I64", []int64{1}, 1, 8}}},
	} {
		f, err := decode(c.content)
		require.NoError(t, err, name)
		require.Equal(t, c.want, f.Tensors, name)
		for _, want := range c.want {
			got, ok := f.Tensor(want.Name)
			require.True(t, ok, name)
			require.Equal(t, want, got, name)
		}
		_, ok := f.Tensor("absent")
		require.False(t, ok)
		require.NoError(t, f.Close())
	}
}

func decode(content []byte) (*tensorfile.File, error) {
	return tensorfile.Decode(bytes.NewReader(content), int64(len(content)), "memory")
}

// sparse is a file of one tensor too large for any memory: a header, then bytes that are their own address.
type sparse []byte

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := off + int64(i)
		p[i] = byte(at) ^ byte(at>>32)
		if at < int64(len(s)) {
			p[i] = s[at]
		}
	}
	return len(p), nil
}

func TestAddressesOf64Bits(t *testing.T) {
	header := sparse(file(`{`+x("U8", "[4,1125899906842624]", "[0,4503599627370496]")+`}`, 0))
	data := int64(len(header))
	f, err := tensorfile.Decode(header, data+1<<52, "memory")
	require.NoError(t, err)
	for _, off := range []int64{0, 1<<31 - 1, 1<<31 + 5, 1 << 32, 1<<52 - 3} {
		got, want := make([]byte, 3), make([]byte, 3)
		require.NoError(t, f.ReadAt(f.Tensors[0], got, off))
		header.ReadAt(want, data+off)
		require.Equal(t, want, got)
	}
}

func TestWidening(t *testing.T) {
	for dtype, c := range map[string]struct {
		data []byte
		want []float32
	}{
		"F32":  {[]byte{0, 0, 0x80, 0x3f, 1, 0, 0, 0x80}, []float32{1, -math.SmallestNonzeroFloat32}},
		"F16":  {[]byte{0x00, 0x3c, 0x01, 0x80}, []float32{1, -0x1p-24}},
		"BF16": {[]byte{0x80, 0x3f, 0x00, 0xff}, []float32{1, -0x1p127}},
	} {
		content := append(file(`{`+x(dtype, "[2]", map[bool]string{true: "[0,8]", false: "[0,4]"}[dtype == "F32"])+`}`, 0), c.data...)
		f, err := decode(content)
		require.NoError(t, err)
		got := make([]float32, 2)
		require.NoError(t, f.ReadFloat32(f.Tensors[0], got, 0))
		require.Equal(t, c.want, got, dtype)
		require.NoError(t, f.ReadFloat32(f.Tensors[0], got[:1], 1))
		require.Equal(t, c.want[1], got[0], dtype)
	}
}

func TestReadsOutsideTheTensor(t *testing.T) {
	f, err := decode(file(`{`+x("BF16", "[4]", "[0,8]")+`,"y":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}}`, 16))
	require.NoError(t, err)
	bf16, i64 := f.Tensors[0], f.Tensors[1]
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"past the end":       {f.ReadAt(bf16, make([]byte, 5), 4), `memory: tensor "x": bytes 4 to 9, it has 8`},
		"before the start":   {f.ReadAt(bf16, make([]byte, 5), -1), `memory: tensor "x": bytes -1 to 4, it has 8`},
		"elements past":      {f.ReadFloat32(bf16, make([]float32, 2), 3), `memory: tensor "x": elements 3 to 5, it has 4`},
		"elements before":    {f.ReadUint16(bf16, make([]uint16, 2), -1), `memory: tensor "x": elements -1 to 1, it has 4`},
		"far past":           {f.ReadUint16(bf16, nil, math.MaxInt64), `memory: tensor "x": elements 9223372036854775807 to 9223372036854775807, it has 4`},
		"no float":           {f.ReadFloat32(i64, make([]float32, 1), 0), `memory: tensor "y" is I64, want F32, F16 or BF16`},
		"no 16-bit patterns": {f.ReadUint16(i64, make([]uint16, 1), 0), `memory: tensor "y" is I64, want F16, BF16, U16 or I16`},
	} {
		require.EqualError(t, c.err, c.want, name)
	}
	require.NoError(t, f.ReadAt(bf16, nil, 8))
}

func TestTruncatedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	content := file(`{`+x("F32", "[65536]", "[0,262144]")+`}`, 262144)
	require.NoError(t, os.WriteFile(path, content, 0o666))
	f, err := tensorfile.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, 100_000))
	err = f.ReadFloat32(f.Tensors[0], make([]float32, 65536), 0)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualError(t, err, path+`: tensor "x": the file ends at byte 100000, want 131143: unexpected EOF`)
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

var errDisk = errors.New("input/output error")

func TestFailureOfTheDiskIsNoFormatError(t *testing.T) {
	_, err := tensorfile.Decode(failing{}, 100, "memory")
	require.ErrorIs(t, err, errDisk)
	var format *tensorfile.FormatError
	require.False(t, errors.As(err, &format))
}
