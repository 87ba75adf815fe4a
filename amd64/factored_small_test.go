//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// TestFactorSmall steps three matrices of each shape, the second of which is at guard pages
// and has at times a new factor that is not finite.
func TestFactorSmall(t *testing.T) {
	cputest.Need(t, cpufeature.AVX512)
	for _, narrow := range []bool{false, true} {
		g, row, col := newFloats(t, narrow, 1024), newFloats(t, false, 64), newFloats(t, false, 16)
		products := testmem.New[float32](t, 3*1024+15)
		rng := rand.New(rand.NewPCG(6, 7))
		for rows := 1; rows <= 64; rows++ {
			for cols := 1; cols <= 16; cols++ {
				for trial := range 6 {
					place, n := rng.IntN(places), rows*cols
					what := fmt.Sprintf("%dx%d, trial %d, place %d", rows, cols, trial, place)
					matrices, want := make([]smallMatrix, 3), make([]smallMatrix, 3)
					guarded := smallMatrix{g.place(n, place), row.place(rows, place).F32, col.place(cols, (place+5)%places).F32}
					for i := range matrices {
						m := smallMatrix{clone(guarded.g), make([]float32, rows), make([]float32, cols)}
						if i == 1 {
							m = guarded
						}
						m.fill(rng, math.Ldexp(1, rng.IntN(100)-70), trial == 5)
						matrices[i], want[i] = m, smallMatrix{m.g, slices.Clone(m.row), slices.Clone(m.col)}
					}
					if trial%3 == 1 {
						set(matrices[1].g, rng.IntN(n), float32(math.Inf(1)))
					}
					s := reference.AdamWScalars{GradScale: []float32{1, 0.3}[trial%2], Beta2: 0.99, OneMinusBeta2: 0.01}
					if trial == 2 {
						s.GradScale = float32(math.Inf(1))
					}
					got := products.AtOffset(3*n+15, 4*rng.IntN(15))
					wantDone, wantProducts := stepSmall(want, &s)
					if done := factorSmall(got, matrices, narrow, &s); done != wantDone {
						t.Fatalf("%s: stepped %d matrices, want %d", what, done, wantDone)
					}
					for i := range want {
						sameFloats(t, what+", row", reference.Floats{F32: matrices[i].row}, reference.Floats{F32: want[i].row})
						sameFloats(t, what+", column", reference.Floats{F32: matrices[i].col}, reference.Floats{F32: want[i].col})
					}
					sameFloats(t, what+", products", reference.Floats{F32: got[:len(wantProducts)]}, reference.Floats{F32: wantProducts})
					g.check()
					row.check()
					col.check()
					products.Check()
				}
			}
		}
	}
}

type smallMatrix struct {
	g        reference.Floats
	row, col []float32
}

func (m *smallMatrix) fill(rng *rand.Rand, scale float64, zero bool) {
	if zero {
		scale = 0
	}
	for i := range m.g.Len() {
		set(m.g, i, float32(rng.NormFloat64()*scale))
	}
	for _, factors := range [][]float32{m.row, m.col} {
		for i := range factors {
			factors[i] = float32(rng.Float64() * scale * scale)
		}
	}
}

func factorSmall(products []float32, matrices []smallMatrix, narrow bool, s *reference.AdamWScalars) int {
	words := make([][11]unsafe.Pointer, len(matrices))
	for i, m := range matrices {
		words[i][2], words[i][4], words[i][6] = unsafe.Pointer(unsafe.SliceData(m.g.F32)), unsafe.Pointer(&m.row[0]), unsafe.Pointer(&m.col[0])
		if narrow {
			words[i][2] = unsafe.Pointer(&m.g.BF16[0])
		}
	}
	step := amd64.FactorSmallAVX512
	if narrow {
		step = amd64.FactorSmallBF16AVX512
	}
	at := unsafe.Slice((*[11]uintptr)(unsafe.Pointer(&words[0])), len(words))
	return step(products, at, len(matrices[0].row), len(matrices[0].col), s.GradScale, s.Beta2, s.OneMinusBeta2, new([2688]float32))
}

// stepSmall is factorSmall by the reference.
func stepSmall(matrices []smallMatrix, s *reference.AdamWScalars) (done int, products []float32) {
	for i, m := range matrices {
		rows, cols := len(m.row), len(m.col)
		row, col, normalized, product := make([]float32, rows), make([]float32, cols), make([]float32, rows), make([]float32, rows*cols)
		squares := make([]float64, cols)
		reference.FactorMeans(row, squares, m.g, s.GradScale)
		for j, sum := range squares {
			col[j] = float32(sum / float64(rows))
		}
		finite := reference.AverageFactors(row, m.row, s)
		if !(reference.AverageFactors(col, m.col, s) && finite) {
			return i, products
		}
		reference.NormalizeRow(normalized, row)
		reference.Moment{Row: normalized, Col: col}.Product(product, 0)
		products = append(products, product...)
		copy(m.row, row)
		copy(m.col, col)
	}
	return len(matrices), products
}
