//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var factors = []struct {
	name     string
	needs    cpufeature.Set
	band     func(totals []float64, lanes *[64][16]float64, sums *[1024]float64, g []float32, columns, stride int, scale float32, first, last bool)
	bandBF16 func(totals []float64, lanes *[64][16]float64, sums *[1024]float64, g []uint16, columns, stride int, scale float32, first, last bool)
}{
	{"avx2", avx2, amd64.FactorBandAVX2, amd64.FactorBandBF16AVX2},
	{"avx512", cpufeature.AVX512, amd64.FactorBandAVX512, amd64.FactorBandBF16AVX512},
}

// factorScales has one of which zero is no multiple of.
var factorScales = []float32{1, 0.3, float32(math.Inf(1))}

// band is what a call changes.
type band struct {
	totals []float64
	lanes  [64][16]float64
	sums   [1024]float64
}

func newBand(rows int) *band {
	b := &band{totals: make([]float64, rows)}
	for i := range b.totals {
		b.totals[i] = float64(i) / 3
		for j := range b.lanes[i] {
			b.lanes[i][j] = float64(i+j) / 7
		}
	}
	for j := range b.sums {
		b.sums[j] = float64(j) / 5
	}
	return b
}

// add is the assembly's contract, and its lanes only where they are kept.
func (b *band) add(at func(i int) float32, columns, stride int, scale float32, first, last bool) {
	for i := range b.totals {
		if first {
			b.lanes[i] = [16]float64{}
		}
		for j := range columns {
			x := float64(at(i*stride+j) * scale)
			b.lanes[i][j%16] += x * x
			b.sums[j] += x * x
		}
		if last {
			lanes := b.lanes[i]
			for width := 8; width > 0; width /= 2 {
				for j := range width {
					lanes[j] += lanes[j+width]
				}
			}
			b.totals[i] += lanes[0]
		}
	}
}

func (b *band) compare(t *testing.T, want *band, columns int, last bool) {
	t.Helper()
	compareSums(t, len(b.totals), b.totals, want.totals)
	compareSums(t, columns, b.sums[:columns], want.sums[:columns])
	for i := range b.totals {
		if !last {
			compareSums(t, columns, b.lanes[i][:], want.lanes[i][:])
		}
	}
}

func TestFactorBand(t *testing.T) {
	for _, f := range factors {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			const most = 64 * 1100
			g, narrow := testmem.New[float32](t, most), testmem.New[uint16](t, most)
			values := spread(most)
			for i, columns := range append(everyLength()[1:], 1000, 1023, 1024) {
				for k, rows := range []int{0, 1, 3, 64} {
					stride := columns + []int{0, 1, 10}[i%3]
					scale := factorScales[columns%len(factorScales)]
					first, last := (i+k)%2 == 0, (i+k)%4 < 2
					n := max(rows-1, 0)*stride + min(rows, 1)*columns // no further than the last column
					everywhere(t, g, narrow, n, func(g []float32, narrow []uint16) {
						copy(g, values)
						reference.Round(numbers(narrow), g)
						got, want := newBand(rows), newBand(rows)
						f.band(got.totals, &got.lanes, &got.sums, g, columns, stride, scale, first, last)
						want.add(func(i int) float32 { return g[i] }, columns, stride, scale, first, last)
						got.compare(t, want, columns, last)
						got, want = newBand(rows), newBand(rows)
						f.bandBF16(got.totals, &got.lanes, &got.sums, narrow, columns, stride, scale, first, last)
						want.add(func(i int) float32 { return bf16.BF16(narrow[i]).Float32() }, columns, stride, scale, first, last)
						got.compare(t, want, columns, last)
					})
				}
			}
		})
	}
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
		const cols = 512
		g, narrow, work := noise(n.elements), make([]uint16, n.elements), newBand(64)
		reference.Round(numbers(narrow), g)
		for _, f := range factors {
			n.runIf(b, f.needs, "means/"+f.name, func(lo, hi int) {
				f.band(work.totals[:(hi-lo)/cols], &work.lanes, &work.sums, g[lo:hi], cols, cols, 1, true, true)
			})
			n.runIf(b, f.needs, "means-bf16/"+f.name, func(lo, hi int) {
				f.bandBF16(work.totals[:(hi-lo)/cols], &work.lanes, &work.sums, narrow[lo:hi], cols, cols, 1, true, true)
			})
		}
		for _, a := range accumulations {
			sums := make([]float32, n.elements)
			n.runIf(b, a.needs, "accumulate/f32-f32/"+a.name, func(lo, hi int) { a.f32f32(sums[lo:hi], g[lo:hi]) })
			n.runIf(b, a.needs, "accumulate/bf16-f32/"+a.name, func(lo, hi int) { a.b16f32(narrow[lo:hi], g[lo:hi]) })
			n.runIf(b, a.needs, "accumulate/bf16-bf16/"+a.name, func(lo, hi int) { a.b16b16(narrow[lo:hi], narrow[lo:hi]) })
		}
	}
}
