//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

func TestAbsmax(t *testing.T) {
	cputest.Need(t, avx2)
	x, unused := testmem.New[float32](t, 300), testmem.New[float32](t, 300)
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range lengths {
		everywhere(t, x, unused, n, func(x, _ []float32) {
			copy(x, noise(n))
			for _, special := range []uint32{0x3f800000, 0xc1200000, 0x7f7fffff, 0xff800000, 0xffc00001, 0x7f800001} {
				if n > 0 {
					x[rng.IntN(n)] = math.Float32frombits(special)
				}
				if got, want := amd64.AbsmaxAVX2(x), reference.Absmax(x); got != want && (got == got || want == want) {
					t.Fatalf("of %d: %g, want %g", n, got, want)
				}
			}
		})
	}
}

func TestSumSquares(t *testing.T) {
	cputest.Need(t, avx2)
	const most = 3*4096 + 100
	x, narrow := testmem.New[float32](t, most), testmem.New[uint16](t, most)
	values := noise(most)
	for i := range values {
		values[i] = float32(math.Ldexp(float64(values[i]), i%200-100))
	}
	check := func(n int, got []float64, x reference.Floats) {
		t.Helper()
		want := make([]float64, len(got))
		reference.ChunkSums(want, x)
		for i := range want {
			if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) {
				t.Fatalf("chunk %d of %d: %g, want %g", i, n, got[i], want[i])
			}
		}
	}
	for _, n := range append([]int{4095, 4096, 4097, 8191, 8192, 8193, most}, lengths...) {
		everywhere(t, x, narrow, n, func(x []float32, narrow []uint16) {
			got := make([]float64, (n+4095)/4096)
			copy(x, values)
			amd64.RoundAVX2(narrow, x)
			amd64.SumSquaresAVX2(got, x)
			check(n, got, reference.Floats{F32: x})
			amd64.SumSquaresBF16AVX2(got, narrow)
			check(n, got, reference.Floats{BF16: numbers(narrow)})
			if n > 0 {
				x[n/2] = float32(math.Inf(-1))
				amd64.SumSquaresAVX2(got, x)
				check(n, got, reference.Floats{F32: x})
				narrow[n/2] = 0x7fc0
				amd64.SumSquaresBF16AVX2(got, narrow)
				check(n, got, reference.Floats{BF16: numbers(narrow)})
			}
		})
	}
}

// numbers views bit patterns as numbers.
func numbers(x []uint16) []bf16.BF16 {
	return unsafe.Slice((*bf16.BF16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func TestScale(t *testing.T) {
	cputest.Need(t, avx2)
	x, narrow := testmem.New[float32](t, 7000), testmem.New[uint16](t, 7000)
	values := patterns()
	for _, n := range append(lengths, len(values)) {
		for _, factor := range []float32{0.3, 1, 0, 1e-38, float32(math.Inf(1))} {
			everywhere(t, x, narrow, n, func(x []float32, narrow []uint16) {
				copy(x, values)
				amd64.TruncateAVX2(narrow, x)
				wantNarrow := append([]bf16.BF16(nil), numbers(narrow)...)
				amd64.ScaleAVX2(x, factor)
				amd64.ScaleBF16AVX2(narrow, factor)
				reference.Scale(reference.Floats{BF16: wantNarrow}, factor)
				for i := range x {
					if want := values[i] * factor; !same(x[i], want) {
						t.Fatalf("%g times %g: %g, want %g", values[i], factor, x[i], want)
					}
					if !same(bf16.BF16(narrow[i]).Float32(), wantNarrow[i].Float32()) {
						t.Fatalf("%g times %g in bf16: %04x, want %04x", values[i], factor, narrow[i], wantNarrow[i])
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
		x, narrow, sums := noise(n.elements), make([]uint16, n.elements), make([]float64, 8)
		n.run(b, "absmax", func(lo, hi int) { amd64.AbsmaxAVX2(x[lo:hi]) })
		n.run(b, "squares", func(lo, hi int) { amd64.SumSquaresAVX2(sums[:(hi-lo)/4096], x[lo:hi]) })
		n.run(b, "squares-bf16", func(lo, hi int) { amd64.SumSquaresBF16AVX2(sums[:(hi-lo)/4096], narrow[lo:hi]) })
		n.run(b, "scale", func(lo, hi int) { amd64.ScaleAVX2(x[lo:hi], 1) })
		n.run(b, "scale-bf16", func(lo, hi int) { amd64.ScaleBF16AVX2(narrow[lo:hi], 1) })
	}
}
