//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var factors = []struct {
	name        string
	needs       cpufeature.Set
	rows        func(means []float32, g []float32, cols int, scale float32)
	rowsBF16    func(means []float32, g []uint16, cols int, scale float32)
	sums        func(sums []float64, g []float32, scale float32)
	sumsBF16    func(sums []float64, g []uint16, scale float32)
	columns     func(totals []float64, g []float32, rows, stride int, scale float32)
	columnsBF16 func(totals []float64, g []uint16, rows, stride int, scale float32)
}{
	{"avx2", avx2, amd64.FactorRowsAVX2, amd64.FactorRowsBF16AVX2, amd64.FactorSumsAVX2, amd64.FactorSumsBF16AVX2, amd64.ColumnSquaresAVX2, amd64.ColumnSquaresBF16AVX2},
	{"avx512", cpufeature.AVX512, amd64.FactorRowsAVX512, amd64.FactorRowsBF16AVX512, amd64.FactorSumsAVX512, amd64.FactorSumsBF16AVX512, amd64.ColumnSquaresAVX512, amd64.ColumnSquaresBF16AVX512},
}

// factorScales has one of which zero is no multiple of.
var factorScales = []float32{1, 0.3, float32(math.Inf(1))}

func TestFactorSums(t *testing.T) {
	for _, f := range factors {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			const most = 3 * 8200
			g, narrow := testmem.New[float32](t, most), testmem.New[uint16](t, most)
			values := spread(most)
			for i, n := range append(everyLength(), 4095, 4096, 4097, 8191, 8192, 8193, 8200, 3*4096, most) {
				scale := factorScales[i%2]
				everywhere(t, g, narrow, n, func(g []float32, narrow []uint16) {
					copy(g, values)
					reference.Round(numbers(narrow), g)
					scaled := make([]float32, n)
					got, want := make([]float64, (n+4095)/4096), make([]float64, (n+4095)/4096)
					check := func(of reference.Floats) {
						t.Helper()
						for i := range scaled {
							scaled[i] = of.At(i) * scale
						}
						reference.ChunkSums(want, reference.Floats{F32: scaled})
						if !slices.Equal(got, want) {
							t.Fatalf("%d elements times %g: %g, want %g", n, scale, got, want)
						}
					}
					f.sums(got, g, scale)
					check(reference.Floats{F32: g})
					f.sumsBF16(got, narrow, scale)
					check(reference.Floats{BF16: numbers(narrow)})
				})
			}
		})
	}
}

func TestFactorRows(t *testing.T) {
	for _, f := range factors {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			const most = 3 * 8200
			g, narrow := testmem.New[float32](t, most), testmem.New[uint16](t, most)
			values := spread(most)
			for _, cols := range append(everyLength()[1:], 4095, 4096, 4097, 8200) {
				for rows := range 4 {
					scale := factorScales[rows%len(factorScales)]
					everywhere(t, g, narrow, rows*cols, func(g []float32, narrow []uint16) {
						copy(g, values)
						reference.Round(numbers(narrow), g)
						got, want := make([]float32, rows), make([]float32, rows)
						check := func(of reference.Floats) {
							t.Helper()
							reference.FactorRows(want, of, cols, scale)
							for i := range want {
								if !same(got[i], want[i]) {
									t.Fatalf("row %d of %dx%d times %g: %g, want %g", i, rows, cols, scale, got[i], want[i])
								}
							}
						}
						f.rows(got, g, cols, scale)
						check(reference.Floats{F32: g})
						f.rowsBF16(got, narrow, cols, scale)
						check(reference.Floats{BF16: numbers(narrow)})
					})
				}
			}
		})
	}
}

func TestColumnSquares(t *testing.T) {
	for _, f := range factors {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			const most = 200 * 150
			g, narrow := testmem.New[float32](t, most), testmem.New[uint16](t, most)
			values := spread(most)
			for columns := range 140 {
				for i, rows := range []int{0, 1, 3, 64, 65, 200} {
					stride := columns + []int{0, 1, 10}[i%3]
					scale := factorScales[columns%len(factorScales)]
					n := max(rows-1, 0)*stride + min(rows, 1)*columns // no further than the last column
					for place := range places {
						g, narrow := placed(g, n, place, 4), placed(narrow, n, (place+3)%places, 2)
						copy(g, values)
						reference.Round(numbers(narrow), g)
						check := func(got []float64, at func(i int) float32) {
							t.Helper()
							compareSums(t, columns, got, columnSquares(columns, rows, stride, scale, at))
						}
						got := startSums(columns)
						f.columns(got, g, rows, stride, scale)
						check(got, func(i int) float32 { return g[i] })
						got = startSums(columns)
						f.columnsBF16(got, narrow, rows, stride, scale)
						check(got, func(i int) float32 { return bf16.BF16(narrow[i]).Float32() })
					}
				}
			}
		})
	}
}

func startSums(n int) []float64 {
	sums := make([]float64, n, n+8)
	for i := range sums {
		sums[i] = float64(i) / 3
	}
	return sums
}

func columnSquares(columns, rows, stride int, scale float32, at func(i int) float32) []float64 {
	totals := startSums(columns)
	for lo := 0; lo < rows; lo += 64 {
		for j := range totals {
			sum := 0.0
			for i := lo; i < min(lo+64, rows); i++ {
				x := float64(at(i*stride+j) * scale)
				sum += x * x
			}
			totals[j] += sum
		}
	}
	return totals
}

var accumulations = []struct {
	name  string
	needs cpufeature.Set
	// to sums in float32 and bf16, of gradients in float32 and bf16
	f32f32 func(sums, g []float32)
	f32b16 func(sums []float32, g []uint16)
	b16f32 func(sums []uint16, g []float32)
	b16b16 func(sums, g []uint16)
}{
	{"avx2", avx2, amd64.AccumulateF32GF32AVX2, amd64.AccumulateF32GBF16AVX2, amd64.AccumulateBF16GF32AVX2, amd64.AccumulateBF16GBF16AVX2},
	{"avx512", cpufeature.AVX512, amd64.AccumulateF32GF32AVX512, amd64.AccumulateF32GBF16AVX512, amd64.AccumulateBF16GF32AVX512, amd64.AccumulateBF16GBF16AVX512},
}

func TestAccumulate(t *testing.T) {
	for _, a := range accumulations {
		t.Run(a.name, func(t *testing.T) {
			cputest.Need(t, a.needs)
			x := patterns()
			testAccumulate(t, x, a.f32f32)
			testAccumulate(t, x, a.f32b16)
			testAccumulate(t, x, a.b16f32)
			testAccumulate(t, x, a.b16b16)
		})
	}
}

func testAccumulate[S, G number](t *testing.T, x []float32, accumulate func(sums []S, g []G)) {
	t.Helper()
	bufS, bufG := testmem.New[S](t, len(x)), testmem.New[G](t, len(x))
	for _, n := range append(everyLength(), len(x)) {
		everywhere(t, bufS, bufG, n, func(sums []S, g []G) {
			fill(sums, x[len(x)-n:])
			fill(g, x[(len(x)-n)/3:])
			want := floatsOf(append([]S(nil), sums...))
			reference.Accumulate(want, floatsOf(g))
			accumulate(sums, g)
			compareFloats(t, fmt.Sprintf("sums of %T of %d", g, n), floatsOf(sums), want)
		})
	}
}

// number is a float32 or the bits of a bf16.
type number interface{ float32 | uint16 }

// fill stores x, cut to bf16 where that is what dst holds.
func fill[T number](dst []T, x []float32) {
	switch dst := any(dst).(type) {
	case []float32:
		copy(dst, x)
	case []uint16:
		reference.Truncate(numbers(dst), x[:len(dst)])
	}
}

func floatsOf[T number](x []T) reference.Floats {
	switch x := any(x).(type) {
	case []float32:
		return reference.Floats{F32: x}
	case []uint16:
		return reference.Floats{BF16: numbers(x)}
	}
	return reference.Floats{}
}

func compareFloats(t *testing.T, name string, got, want reference.Floats) {
	t.Helper()
	for i := range want.Len() {
		if !same(got.At(i), want.At(i)) {
			t.Fatalf("%s, element %d: %g, want %g", name, i, got.At(i), want.At(i))
		}
	}
}

func BenchmarkFactors(b *testing.B) {
	for _, n := range sizes {
		const cols = 1024
		g, narrow, means, totals := noise(n.elements), make([]uint16, n.elements), make([]float32, 32), make([]float64, 512)
		reference.Round(numbers(narrow), g)
		for _, f := range factors {
			n.runIf(b, f.needs, "rows/"+f.name, func(lo, hi int) { f.rows(means[:(hi-lo)/cols], g[lo:hi], cols, 1) })
			n.runIf(b, f.needs, "rows-bf16/"+f.name, func(lo, hi int) { f.rowsBF16(means[:(hi-lo)/cols], narrow[lo:hi], cols, 1) })
			n.runIf(b, f.needs, "columns/"+f.name, func(lo, hi int) { f.columns(totals, g[lo:hi], (hi-lo)/512, 512, 1) })
			n.runIf(b, f.needs, "columns-bf16/"+f.name, func(lo, hi int) { f.columnsBF16(totals, narrow[lo:hi], (hi-lo)/512, 512, 1) })
		}
		for _, a := range accumulations {
			sums := make([]float32, n.elements)
			n.runIf(b, a.needs, "accumulate/f32-f32/"+a.name, func(lo, hi int) { a.f32f32(sums[lo:hi], g[lo:hi]) })
			n.runIf(b, a.needs, "accumulate/bf16-f32/"+a.name, func(lo, hi int) { a.b16f32(narrow[lo:hi], g[lo:hi]) })
			n.runIf(b, a.needs, "accumulate/bf16-bf16/"+a.name, func(lo, hi int) { a.b16b16(narrow[lo:hi], narrow[lo:hi]) })
		}
	}
}
