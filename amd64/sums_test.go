//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var absmaxes = []struct {
	name     string
	needs    cpufeature.Set
	function func(x []float32) float32
}{
	{"avx2", avx2, amd64.AbsmaxAVX2},
	{"avx512", cpufeature.AVX512, amd64.AbsmaxAVX512},
}

func TestAbsmax(t *testing.T) {
	for _, a := range absmaxes {
		t.Run(a.name, func(t *testing.T) {
			cputest.Need(t, a.needs)
			x, unused := testmem.New[float32](t, 300), testmem.New[float32](t, 300)
			rng := rand.New(rand.NewPCG(5, 6))
			for _, n := range everyLength() {
				everywhere(t, x, unused, n, func(x, _ []float32) {
					copy(x, noise(n))
					for _, special := range []uint32{0x3f800000, 0xc1200000, 0x7f7fffff, 0xff800000, 0xffc00001, 0x7f800001} {
						if n > 0 {
							x[rng.IntN(n)] = math.Float32frombits(special)
						}
						if got, want := a.function(x), reference.Absmax(x); got != want && (got == got || want == want) {
							t.Fatalf("of %d: %g, want %g", n, got, want)
						}
					}
				})
			}
		})
	}
}

var sums = []struct {
	name        string
	needs       cpufeature.Set
	squares     func(sums []float64, x []float32)
	squaresBF16 func(sums []float64, x []uint16)
	products    func(sums []float64, x, y []float32)
}{
	{"avx2", avx2, amd64.SumSquaresAVX2, amd64.SumSquaresBF16AVX2, amd64.SumProductsAVX2},
	{"avx512", cpufeature.AVX512, amd64.SumSquaresAVX512, amd64.SumSquaresBF16AVX512, amd64.SumProductsAVX512},
}

// manyChunks are lengths around those of chunks, and every small one.
func manyChunks() []int { return append(everyLength(), 4095, 4096, 4097, 8191, 8192, 8193, mostSummed) }

const mostSummed = 3*4096 + 100

// spread are numbers of very different sizes, so that every order of adding them has
// another sum.
func spread(n int) []float32 {
	values := noise(n)
	for i := range values {
		values[i] = float32(math.Ldexp(float64(values[i]), i*7%60-30))
	}
	return values
}

func compareSums(t *testing.T, n int, got, want []float64) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("sum %d of %d: %g, want %g", i, n, got[i], want[i])
		}
	}
}

func TestSumSquares(t *testing.T) {
	for _, s := range sums {
		t.Run(s.name, func(t *testing.T) {
			cputest.Need(t, s.needs)
			x, narrow := testmem.New[float32](t, mostSummed), testmem.New[uint16](t, mostSummed)
			values := spread(mostSummed)
			for _, n := range manyChunks() {
				everywhere(t, x, narrow, n, func(x []float32, narrow []uint16) {
					copy(x, values)
					reference.Round(numbers(narrow), x)
					got, want := make([]float64, (n+4095)/4096), make([]float64, (n+4095)/4096)
					check := func() {
						t.Helper()
						s.squares(got, x)
						reference.ChunkSums(want, reference.Floats{F32: x})
						compareSums(t, n, got, want)
						s.squaresBF16(got, narrow)
						reference.ChunkSums(want, reference.Floats{BF16: numbers(narrow)})
						compareSums(t, n, got, want)
					}
					check()
					if n > 0 {
						x[n/2], narrow[n/2] = float32(math.Inf(-1)), 0x7fc0
						check()
					}
				})
			}
		})
	}
}

func TestSumProducts(t *testing.T) {
	for _, s := range sums {
		t.Run(s.name, func(t *testing.T) {
			cputest.Need(t, s.needs)
			x, y := testmem.New[float32](t, mostSummed), testmem.New[float32](t, mostSummed)
			values := spread(mostSummed + 11)
			for _, n := range manyChunks() {
				everywhere(t, x, y, n, func(x, y []float32) {
					copy(x, values)
					copy(y, values[11:])
					got, want := make([]float64, (n+4095)/4096), make([]float64, (n+4095)/4096)
					for _, last := range []float64{1, math.Inf(1), math.NaN()} {
						if n > 0 {
							y[n-1] = float32(last)
						}
						s.products(got, x, y)
						reference.ChunkDots(want, x, y)
						compareSums(t, n, got, want)
					}
				})
			}
		})
	}
}

// numbers views bit patterns as numbers.
func numbers(x []uint16) []bf16.BF16 {
	return unsafe.Slice((*bf16.BF16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

var scalings = []struct {
	name   string
	needs  cpufeature.Set
	scale  func(x []float32, factor float32)
	narrow func(x []uint16, factor float32)
}{
	{"avx2", avx2, amd64.ScaleAVX2, amd64.ScaleBF16AVX2},
	{"avx512", cpufeature.AVX512, amd64.ScaleAVX512, amd64.ScaleBF16AVX512},
}

func TestScale(t *testing.T) {
	for _, s := range scalings {
		t.Run(s.name, func(t *testing.T) {
			cputest.Need(t, s.needs)
			testScale(t, s.scale, s.narrow)
		})
	}
}

func testScale(t *testing.T, scale func(x []float32, factor float32), scaleBF16 func(x []uint16, factor float32)) {
	x, narrow := testmem.New[float32](t, 7000), testmem.New[uint16](t, 7000)
	values := patterns()
	for _, n := range append(everyLength(), len(values)) {
		for _, factor := range []float32{0.3, 1, 0, 1e-38, float32(math.Inf(1))} {
			everywhere(t, x, narrow, n, func(x []float32, narrow []uint16) {
				copy(x, values[len(values)-n:])
				reference.Truncate(numbers(narrow), x)
				wantNarrow := append([]bf16.BF16(nil), numbers(narrow)...)
				scale(x, factor)
				scaleBF16(narrow, factor)
				reference.Scale(reference.Floats{BF16: wantNarrow}, factor)
				for i := range x {
					old := values[len(values)-n+i]
					if want := old * factor; !same(x[i], want) {
						t.Fatalf("%g times %g: %g, want %g", old, factor, x[i], want)
					}
					if !same(bf16.BF16(narrow[i]).Float32(), wantNarrow[i].Float32()) {
						t.Fatalf("%g times %g in bf16: %04x, want %04x", old, factor, narrow[i], wantNarrow[i])
					}
				}
			})
		}
	}
}

// same compares bits, any NaN being any NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func BenchmarkSums(b *testing.B) {
	for _, n := range sizes {
		x, y, narrow, chunks := noise(n.elements), noise(n.elements), make([]uint16, n.elements), make([]float64, 8)
		reference.Round(numbers(narrow), x) // or its pages would share one of zeros
		n.run(b, "limit-of-reading", func(lo, hi int) { move(nil, words(x[lo:hi])) })
		n.run(b, "limit-of-reading-bf16", func(lo, hi int) { move(nil, words(narrow[lo:hi])) })
		for _, a := range absmaxes {
			n.runIf(b, a.needs, "absmax/"+a.name, func(lo, hi int) { a.function(x[lo:hi]) })
		}
		for _, s := range sums {
			n.runIf(b, s.needs, "squares/"+s.name, func(lo, hi int) { s.squares(chunks[:(hi-lo)/4096], x[lo:hi]) })
			n.runIf(b, s.needs, "squares-bf16/"+s.name, func(lo, hi int) { s.squaresBF16(chunks[:(hi-lo)/4096], narrow[lo:hi]) })
			n.runIf(b, s.needs, "products/"+s.name, func(lo, hi int) { s.products(chunks[:(hi-lo)/4096], x[lo:hi], y[lo:hi]) })
		}
		n.run(b, "limit-of-scaling", func(lo, hi int) { move(words(x[lo:hi]), words(x[lo:hi])) })
		for _, s := range scalings {
			n.runIf(b, s.needs, "scale/"+s.name, func(lo, hi int) { s.scale(x[lo:hi], 1) })
			n.runIf(b, s.needs, "scale-bf16/"+s.name, func(lo, hi int) { s.narrow(narrow[lo:hi], 1) })
		}
	}
}
