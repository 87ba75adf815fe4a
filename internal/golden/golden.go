// Package golden gives tests the reference vectors in testdata/golden, the outputs of published systems. What each
// file holds and how closely to match it stands in the README there.
package golden

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// A Set is one file of reference vectors. What it lacks fails the test that asks for it.
type Set struct {
	t testing.TB
	f *tensorfile.File
}

// Open opens testdata/golden/NAME.safetensors of this repository, from the test of any package in it. It is closed
// when the test ends.
func Open(t testing.TB, name string) *Set {
	t.Helper()
	f, err := tensorfile.Open(filepath.Join(folder(t), name+".safetensors"))
	if err != nil {
		t.Fatalf("golden vectors: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return &Set{t, f}
}

// Has reports whether there is a tensor of that name.
func (s *Set) Has(name string) bool {
	_, ok := s.f.Tensor(name)
	return ok
}

// Shape returns a tensor's shape.
func (s *Set) Shape(name string) []int64 {
	s.t.Helper()
	return s.tensor(name).Shape
}

// DType returns a tensor's dtype.
func (s *Set) DType(name string) string {
	s.t.Helper()
	return string(s.tensor(name).DType)
}

// Meta returns the value of a key of the file's metadata.
func (s *Set) Meta(key string) string {
	s.t.Helper()
	value, ok := s.f.Metadata[key]
	if !ok {
		s.t.Fatalf("%s has no metadata %q", s.f.Path, key)
	}
	return value
}

// F32 returns an F32, F16 or BF16 tensor, widened exactly.
func (s *Set) F32(name string) []float32 {
	s.t.Helper()
	t := s.tensor(name)
	values := make([]float32, t.Elements())
	if err := s.f.ReadFloat32(t, values, 0); err != nil {
		s.t.Fatal(err)
	}
	return values
}

// BF16 returns the patterns of a BF16 tensor, or of an I16 tensor that holds such patterns.
func (s *Set) BF16(name string) []uint16 {
	s.t.Helper()
	t := s.tensor(name)
	s.want(t, "BF16", "I16")
	patterns := make([]uint16, t.Elements())
	if err := s.f.ReadUint16(t, patterns, 0); err != nil {
		s.t.Fatal(err)
	}
	return patterns
}

// F64 returns an F64 tensor.
func (s *Set) F64(name string) []float64 {
	s.t.Helper()
	b := s.bytes(name, "F64")
	values := make([]float64, len(b)/8)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

// I32 returns an I32 tensor.
func (s *Set) I32(name string) []int32 {
	s.t.Helper()
	b := s.bytes(name, "I32")
	values := make([]int32, len(b)/4)
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values
}

// U8 returns a U8 tensor.
func (s *Set) U8(name string) []byte {
	s.t.Helper()
	return s.bytes(name, "U8")
}

func (s *Set) tensor(name string) tensorfile.Tensor {
	s.t.Helper()
	t, ok := s.f.Tensor(name)
	if !ok {
		s.t.Fatalf("%s has no tensor %q", s.f.Path, name)
	}
	return t
}

func (s *Set) bytes(name string, dtype tensorfile.DType) []byte {
	s.t.Helper()
	t := s.tensor(name)
	s.want(t, dtype)
	b := make([]byte, t.Bytes)
	if err := s.f.ReadAt(t, b, 0); err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *Set) want(t tensorfile.Tensor, dtypes ...tensorfile.DType) {
	s.t.Helper()
	if !slices.Contains(dtypes, t.DType) {
		s.t.Fatalf("%s: tensor %q is %s, want %v", s.f.Path, t.Name, t.DType, dtypes)
	}
}

// folder finds testdata/golden in the working directory, which is the tested package's, or above it.
func folder(t testing.TB) string {
	t.Helper()
	start, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for at := start; ; at = filepath.Dir(at) {
		golden := filepath.Join(at, "testdata", "golden")
		if info, err := os.Stat(golden); err == nil && info.IsDir() {
			return golden
		}
		if at == filepath.Dir(at) {
			t.Fatalf("golden vectors: no folder testdata/golden in %s or above it", start)
		}
	}
}
