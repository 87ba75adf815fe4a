package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/float16"
	"github.com/lowbit-go/lowbit/internal/golden"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// stored writes values in a dtype.
func stored(dtype tensorfile.DType, values []float32) []byte {
	narrow := []uint16{}
	for _, x := range values {
		if dtype == "F16" {
			narrow = append(narrow, float16.FromFloat32(x))
		} else {
			narrow = append(narrow, uint16(bf16.FromFloat32(x)))
		}
	}
	if dtype == "F32" {
		return float32Bytes(values...)
	}
	return uint16Bytes(narrow...)
}

func valuesOf(x tensor) []float32 {
	wide := []float32{}
	switch x.dtype {
	case "F32":
		return float32s(x.data)
	case "F16":
		for _, bits := range uint16s(x.data) {
			wide = append(wide, float16.ToFloat32(bits))
		}
	default:
		for _, bits := range uint16s(x.data) {
			wide = append(wide, bf16.BF16(bits).Float32())
		}
	}
	return wide
}

// polarFactor is U·Vᵀ by a singular value decomposition in float64.
func polarFactor(t *testing.T, x []float32, rows, cols int) []float64 {
	dense := mat.NewDense(rows, cols, nil)
	for i, v := range x {
		dense.Set(i/cols, i%cols, float64(v))
	}
	var svd mat.SVD
	require.True(t, svd.Factorize(dense, mat.SVDThin))
	var u, v, polar mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	polar.Mul(&u, v.T())
	return polar.RawMatrix().Data
}

// TestOrthogonalize compares each matrix with its polar factor. Twelve steps of polar-express reach it.
func TestOrthogonalize(t *testing.T) {
	for name, c := range map[string]struct {
		dtype  tensorfile.DType
		shape  []int64
		flags  []string
		within float64
	}{
		"square":          {"F32", []int64{6, 6}, nil, 1e-4},
		"wide":            {"F32", []int64{3, 7}, nil, 1e-4},
		"tall":            {"F32", []int64{7, 3}, nil, 1e-4},
		"row":             {"F32", []int64{1, 9}, nil, 1e-4},
		"column":          {"F32", []int64{9, 1}, nil, 1e-4},
		"stack":           {"F32", []int64{2, 3, 4, 5}, nil, 1e-4},
		"gram":            {"F32", []int64{2, 4, 9}, []string{"--method", "gram", "--steps", "7"}, 2e-2},
		"bfloat16":        {"F32", []int64{4, 9}, []string{"--dtype", "bfloat16", "--steps", "8"}, 3e-2},
		"gram bfloat16":   {"F32", []int64{4, 9}, []string{"--dtype", "bfloat16", "--method", "gram", "--steps", "8"}, 1e-1},
		"stored bfloat16": {"BF16", []int64{3, 4, 5}, nil, 4e-3},
		"stored float16":  {"F16", []int64{3, 4, 5}, nil, 1e-3},
		"made":            {"F32", []int64{2, 4, 5}, []string{"--coeffs", "polar-express:1e-3x8", "--steps", "8"}, 1e-4},
		"triples":         {"F32", []int64{2, 4, 5}, []string{"--coeffs", "[[1.5,-0.5,0]]", "--steps", "60"}, 1e-4},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			in, out := filepath.Join(folder, "in"), filepath.Join(folder, "out")
			elements := 1
			for _, n := range c.shape {
				elements *= int(n)
			}
			x := tensor{"x", c.dtype, c.shape, stored(c.dtype, numbers(elements))}
			store(t, in, map[string]string{"note": "kept"}, x)
			args := append([]string{"orthogonalize", in, out, "--coeffs", "polar-express", "--steps", "14"}, c.flags...)
			require.Contains(t, succeeds(t, args...), "wrote "+out)
			metadata, tensors := load(t, out)
			require.Equal(t, map[string]string{"note": "kept"}, metadata)
			got := find(t, tensors, "x")
			require.Equal(t, c.dtype, got.dtype)
			require.Equal(t, c.shape, got.shape)
			values, source := valuesOf(got), valuesOf(x)
			rows, cols := int(c.shape[len(c.shape)-2]), int(c.shape[len(c.shape)-1])
			for at := 0; at < elements; at += rows * cols {
				for i, want := range polarFactor(t, source[at:at+rows*cols], rows, cols) {
					require.InDelta(t, want, values[at+i], c.within, "element %d", at+i)
				}
			}
		})
	}
}

// TestOrthogonalizeGolden has several tensors in one file: the polar factors that LAPACK gives, and with the default
// polynomials the same directions with singular values around 1.
func TestOrthogonalizeGolden(t *testing.T) {
	g := golden.Open(t, "polar_float64")
	folder := t.TempDir()
	in := filepath.Join(folder, "in")
	tensors := []tensor{}
	for _, name := range []string{"gauss_sq", "gauss_tall", "gauss_wide", "orth", "tiny"} {
		tensors = append(tensors, f32(name, g.F32("x."+name), g.Shape("x."+name)...))
	}
	store(t, in, nil, tensors...)
	succeeds(t, "orthogonalize", in, filepath.Join(folder, "out"), "--coeffs", "polar-express", "--steps", "14")
	_, exact := load(t, filepath.Join(folder, "out"))
	for _, x := range exact {
		for i, want := range g.F64("polar." + x.name) {
			require.InDelta(t, want, float32s(x.data)[i], 1e-4, "%s %d", x.name, i)
		}
	}
	succeeds(t, "orthogonalize", in, filepath.Join(folder, "jordan"))
	_, jordan := load(t, filepath.Join(folder, "jordan"))
	for _, name := range []string{"gauss_tall", "gauss_wide", "orth"} {
		x := find(t, jordan, name)
		dense := mat.NewDense(int(x.shape[0]), int(x.shape[1]), nil)
		for i, v := range float32s(x.data) {
			dense.Set(i/int(x.shape[1]), i%int(x.shape[1]), float64(v))
		}
		var svd mat.SVD
		require.True(t, svd.Factorize(dense, mat.SVDNone))
		for _, sigma := range svd.Values(nil) {
			require.InDelta(t, 0.95, sigma, 0.3, name)
		}
	}
}

func TestOrthogonalizeRefuses(t *testing.T) {
	folder, in := small(t)
	out := filepath.Join(folder, "out")
	for words, flags := range map[string][]string{
		`--coeffs and --steps: polynomial "jordn" is not known, want one of classic-cubic, `: {"--coeffs", "jordn"},
		"such as polar-express:1e-3x5":                        {"--coeffs", "polar-express:1e-3"},
		"lower bound 0, want":                                 {"--coeffs", "polar-express:0x5"},
		"--steps: polynomial cubic5: 4 steps, want exactly 5": {"--coeffs", "cubic5", "--steps", "4"},
		"-1 steps, want 0 to 99":                              {"--steps=-1"},
		"100 steps, want 0 to 99":                             {"--steps", "100"},
		"got 2 elements, want 3":                              {"--coeffs", "[[1,2]]"},
		"3 steps, want 0 to 2":                                {"--coeffs", "[[1,2,3],[1,2,3]]", "--steps", "3"},
		"unexpected end of JSON input":                        {"--coeffs", "[[1,2,3]"},
		"got an array, want a preset":                         {"--coeffs", "[]"},
		"--dtype must be one of":                              {"--dtype", "float64"},
		"--method must be one of":                             {"--method", "cubic"},
	} {
		t.Run(words, func(t *testing.T) {
			fails(t, exitBadInput, words, append([]string{"orthogonalize", in, out}, flags...)...)
		})
	}
	require.Equal(t, []string{"in"}, names(t, folder))
}

// TestOrthogonalizeOddMatrices has matrices without a polar factor between others, and tensors that are no matrices.
func TestOrthogonalizeOddMatrices(t *testing.T) {
	folder := t.TempDir()
	in, out, alone := filepath.Join(folder, "in"), filepath.Join(folder, "out"), filepath.Join(folder, "alone")
	x := numbers(5 * 6)
	clear(x[6:12])
	x[13], x[20] = float32(math.NaN()), float32(math.Inf(1))
	vector, integers := f32("vector", numbers(3), 3), tensor{"integers", "I32", []int64{1, 2}, make([]byte, 8)}
	store(t, in, nil, f32("x", x, 5, 2, 3), vector, integers, f32("scalar", numbers(1)), f32("empty", nil, 1<<40, 0, 3))
	r := lowbit("orthogonalize", in, out, "--json")
	require.Zero(t, r.code)
	require.Equal(t, `lowbit: warning: tensor "x": 1 of 5 matrices are zero, and stay so`+"\n"+
		`lowbit: warning: tensor "x": 2 of 5 matrices hold NaN or Inf, and become NaN`+"\n", r.stderr)
	var report struct {
		Tensors []struct {
			Name      string
			Matrices  int64
			Zero      int64 `json:"zero_matrices"`
			NonFinite int64 `json:"nonfinite_matrices"`
			BytesIn   int64 `json:"bytes_in"`
			BytesOut  int64 `json:"bytes_out"`
		}
		Copied []string
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Len(t, report.Tensors, 2)
	require.Equal(t, "x", report.Tensors[0].Name)
	require.Equal(t, []int64{5, 1, 2, 120, 120}, []int64{report.Tensors[0].Matrices, report.Tensors[0].Zero, report.Tensors[0].NonFinite, report.Tensors[0].BytesIn, report.Tensors[0].BytesOut})
	require.Equal(t, []string{"vector", "integers", "scalar"}, report.Copied)

	_, tensors := load(t, out)
	require.Equal(t, vector, find(t, tensors, "vector"))
	require.Equal(t, integers, find(t, tensors, "integers"))
	got := float32s(find(t, tensors, "x").data)
	require.Equal(t, make([]float32, 6), got[6:12])
	for _, v := range got[12:24] {
		require.True(t, v != v)
	}
	for _, k := range []int{0, 4} {
		store(t, alone, nil, f32("x", x[6*k:6*k+6], 2, 3))
		succeeds(t, "orthogonalize", alone, out, "--force", "--threads", "1")
		_, tensors := load(t, out)
		require.Equal(t, float32s(find(t, tensors, "x").data), got[6*k:6*k+6])
		require.NoError(t, os.Remove(alone))
	}
}
