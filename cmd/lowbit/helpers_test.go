package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/stretchr/testify/require"
)

// TestMain makes the test binary the command itself where a test starts it so.
func TestMain(m *testing.M) {
	if os.Getenv("LOWBIT_TEST_COMMAND") == "" {
		os.Exit(m.Run())
	}
	main()
}

// result is what a command line gave.
type result struct {
	code           int
	stdout, stderr string
}

func lowbit(args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// lowbitWith runs a command line with pieces of that many elements.
func lowbitWith(ctx context.Context, piece int, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := (&env{ctx: ctx, stdout: &stdout, stderr: &stderr, piece: piece}).run(args)
	return result{code, stdout.String(), stderr.String()}
}

// succeeds runs a command line that has to work, and returns what it printed.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	r := lowbit(args...)
	require.Zero(t, r.code, "%v: %s", args, r.stderr)
	require.Empty(t, r.stderr)
	return r.stdout
}

// fails runs a command line that has to end with code and one line of error with those words in it.
func fails(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	requireFailure(t, lowbit(args...), code, words)
}

func requireFailure(t *testing.T, r result, code int, words string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s", r.stderr)
	require.Empty(t, r.stdout)
	require.Regexp(t, `\Alowbit: .*\n\z`, r.stderr)
	require.Equal(t, 1, strings.Count(r.stderr, "\n"))
	require.Contains(t, r.stderr, words)
}

// tensor is a tensor with its data.
type tensor struct {
	name  string
	dtype tensorfile.DType
	shape []int64
	data  []byte
}

// store writes a file of tensors.
func store(t *testing.T, path string, metadata map[string]string, tensors ...tensor) {
	t.Helper()
	described := make([]tensorfile.Tensor, len(tensors))
	for i, x := range tensors {
		described[i] = tensorfile.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape, Bytes: int64(len(x.data))}
	}
	w, err := tensorfile.Create(path, metadata, described, false)
	require.NoError(t, err)
	for i, x := range tensors {
		require.NoError(t, w.WriteAt(i, x.data, 0))
	}
	require.NoError(t, w.Commit())
}

// load reads a whole file.
func load(t *testing.T, path string) (map[string]string, []tensor) {
	t.Helper()
	f, err := tensorfile.Open(path)
	require.NoError(t, err)
	defer f.Close()
	tensors := make([]tensor, len(f.Tensors))
	for i, x := range f.Tensors {
		tensors[i] = tensor{x.Name, x.DType, x.Shape, make([]byte, x.Bytes)}
		require.NoError(t, f.ReadAt(x, tensors[i].data, 0))
	}
	return f.Metadata, tensors
}

func find(t *testing.T, tensors []tensor, name string) tensor {
	t.Helper()
	for _, x := range tensors {
		if x.name == name {
			return x
		}
	}
	require.Fail(t, "no tensor "+name)
	return tensor{}
}

func float32Bytes(values ...float32) []byte {
	b := []byte{}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func float32s(b []byte) []float32 {
	values := make([]float32, len(b)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values
}

func uint16s(b []byte) []uint16 {
	values := make([]uint16, len(b)/2)
	for i := range values {
		values[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return values
}

func uint16Bytes(values ...uint16) []byte {
	b := []byte{}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

// numbers are n values of every size and both signs.
func numbers(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*i))) * float32(math.Exp(5*math.Sin(float64(i))))
	}
	return x
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func f32(name string, values []float32, shape ...int64) tensor {
	return tensor{name, "F32", shape, float32Bytes(values...)}
}

// small writes a file with one small tensor "w" into a folder of its own.
func small(t *testing.T) (folder, path string) {
	t.Helper()
	folder = t.TempDir()
	path = filepath.Join(folder, "in")
	store(t, path, nil, f32("w", numbers(500), 500))
	return folder, path
}
