//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/float16"
	"github.com/lowbit-go/lowbit/internal/testmem"
)

const avx2 = cpufeature.AVX2 | cpufeature.FMA

// lengths surround every unrolled step.
var lengths = []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 39, 40, 47, 63, 64, 65, 95, 100, 127, 128, 129, 257}

// everyLength is 0 to 260.
func everyLength() []int {
	list := make([]int, 261)
	for n := range list {
		list[n] = n
	}
	return list
}

// everywhere calls f with slices of n elements at both guard pages and at every offset, at
// some offsets where they are long.
func everywhere[A, B testmem.Number](t *testing.T, a *testmem.Buffer[A], b *testmem.Buffer[B], n int, f func(a []A, b []B)) {
	t.Helper()
	check := func(x []A, y []B) {
		t.Helper()
		f(x, y)
		a.Check()
		b.Check()
	}
	check(a.AtEnd(n), b.AtEnd(n))
	check(a.AtStart(n), b.AtStart(n))
	step := 4
	if n > 300 {
		step = 28
	}
	for offset := 0; offset < 60; offset += step {
		check(a.AtOffset(n, offset), b.AtOffset(n, 56-offset))
	}
	check(a.AtOffset(n, 4), b.AtOffset(n, 8))
}

// patterns are float32s of every exponent and sign with both kinds of mantissa: special
// and random.
func patterns() []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	var x []float32
	for high := range uint32(512) {
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0x17fff, 0x18000, 0x18001, 0x400000, 0x7f7fff, 0x7f8000, 0x7fffff, rng.Uint32() >> 9} {
			x = append(x, math.Float32frombits(high<<23|low))
		}
	}
	return x
}

type narrowFunc = func(dst []uint16, src []float32)

var roundings = []struct {
	name     string
	needs    cpufeature.Set
	function narrowFunc
	want     func(float32) bf16.BF16
}{
	{"nearest/avx2", avx2, amd64.RoundAVX2, bf16.FromFloat32},
	{"nearest/avx512", cpufeature.AVX512, cached(amd64.RoundAVX512), bf16.FromFloat32},
	{"nearest/avx512-stream", cpufeature.AVX512, streamed(amd64.RoundAVX512), bf16.FromFloat32},
	{"truncate/avx2", avx2, amd64.TruncateAVX2, bf16.Truncate},
	{"truncate/avx512", cpufeature.AVX512, cached(amd64.TruncateAVX512), bf16.Truncate},
	{"truncate/avx512-stream", cpufeature.AVX512, streamed(amd64.TruncateAVX512), bf16.Truncate},
	{"float16/avx2", cpufeature.AVX2 | cpufeature.F16C, amd64.RoundFloat16AVX2, toFloat16},
	{"float16/avx512", cpufeature.AVX512, cached(amd64.RoundFloat16AVX512), toFloat16},
	{"float16/avx512-stream", cpufeature.AVX512, streamed(amd64.RoundFloat16AVX512), toFloat16},
}

func toFloat16(x float32) bf16.BF16 { return bf16.BF16(float16.FromFloat32(x)) }

var widenings = []struct {
	name     string
	needs    cpufeature.Set
	function func(dst []float32, src []uint16)
	want     func(uint16) float32
}{
	{"avx2", avx2, amd64.WidenAVX2, fromBF16},
	{"avx512", cpufeature.AVX512, cached(amd64.WidenAVX512), fromBF16},
	{"avx512-stream", cpufeature.AVX512, streamed(amd64.WidenAVX512), fromBF16},
	{"float16/avx2", cpufeature.AVX2 | cpufeature.F16C, amd64.WidenFloat16AVX2, float16.ToFloat32},
	{"float16/avx512", cpufeature.AVX512, cached(amd64.WidenFloat16AVX512), float16.ToFloat32},
	{"float16/avx512-stream", cpufeature.AVX512, streamed(amd64.WidenFloat16AVX512), float16.ToFloat32},
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

var stochastics = []struct {
	name     string
	needs    cpufeature.Set
	function func(dst []uint16, src []float32, seed, step, first uint64)
}{
	{"avx2", avx2, amd64.StochasticAVX2},
	{"avx512", cpufeature.AVX512, stochastic512(false)},
	{"avx512-stream", cpufeature.AVX512, stochastic512(true)},
}

func stochastic512(stream bool) func(dst []uint16, src []float32, seed, step, first uint64) {
	return func(dst []uint16, src []float32, seed, step, first uint64) {
		amd64.StochasticAVX512(dst, src, seed, step, first, stream)
	}
}

// cached and streamed are a function with stores through the caches and past them.
func cached[D, S any](f func(dst []D, src []S, stream bool)) func(dst []D, src []S) {
	return func(dst []D, src []S) { f(dst, src, false) }
}

func streamed[D, S any](f func(dst []D, src []S, stream bool)) func(dst []D, src []S) {
	return func(dst []D, src []S) { f(dst, src, true) }
}

func TestRound(t *testing.T) {
	for _, r := range roundings {
		t.Run(r.name, func(t *testing.T) {
			cputest.Need(t, r.needs)
			testRound(t, r.function, r.want)
		})
	}
}

func testRound(t *testing.T, round narrowFunc, want func(float32) bf16.BF16) {
	dst, src := testmem.New[uint16](t, 8192), testmem.New[float32](t, 8192)
	x := patterns()
	for i, n := range append(everyLength(), len(x)) {
		everywhere(t, dst, src, n, func(dst []uint16, src []float32) {
			copy(src, x[(i*997)%(len(x)-n+1):])
			round(dst, src)
			for i, v := range src {
				if dst[i] != uint16(want(v)) {
					t.Fatalf("%08x at %d of %d: %04x, want %04x", math.Float32bits(v), i, n, dst[i], want(v))
				}
			}
		})
	}
}

// trials is a number of random trials, or a larger one where LOWBIT_ALL_PATTERNS is set.
func trials(some, many int) int {
	if stride() == 1 {
		return many
	}
	return some
}

// stride is the distance of the bit patterns that a test over all of them takes: 1 where
// LOWBIT_ALL_PATTERNS is set.
func stride() uint64 {
	if os.Getenv("LOWBIT_ALL_PATTERNS") != "" {
		return 1
	}
	return 9973
}

func TestRoundEveryPattern(t *testing.T) {
	for _, r := range roundings {
		t.Run(r.name, func(t *testing.T) {
			cputest.Need(t, r.needs)
			comparePatterns(t, func(dst []uint16, src []float32, _ uint64) { r.function(dst, src) },
				func(v float32, _ uint64) bf16.BF16 { return r.want(v) })
		})
	}
	for _, s := range stochastics {
		t.Run("stochastic/"+s.name, func(t *testing.T) {
			cputest.Need(t, s.needs)
			group, draws := uint64(math.MaxUint64), bf16.Draws{}
			comparePatterns(t, func(dst []uint16, src []float32, first uint64) { s.function(dst, src, 1, 2, first) },
				func(v float32, index uint64) bf16.BF16 {
					if index/8 != group {
						group, draws = index/8, bf16.DrawsAt(1, 2, index/8)
					}
					return bf16.Stochastic(v, draws[index%8])
				})
		})
	}
}

// comparePatterns compares the results of a function on all of the bit patterns, whose
// positions start at multiples of 8, with those of the scalar one.
func comparePatterns(t *testing.T, function func(dst []uint16, src []float32, first uint64), want func(v float32, index uint64) bf16.BF16) {
	dst, src := make([]uint16, 4096), make([]float32, 4096)
	for bits := uint64(0); bits < 1<<32; {
		first := 8 * bits
		for i := range src {
			src[i] = math.Float32frombits(uint32(bits))
			bits += stride()
		}
		function(dst, src, first)
		for i, v := range src {
			if want := want(v, first+uint64(i)); dst[i] != uint16(want) {
				t.Fatalf("%08x, element %d: %04x, want %04x", math.Float32bits(v), first+uint64(i), dst[i], want)
			}
		}
	}
}

func TestWiden(t *testing.T) {
	for _, w := range widenings {
		t.Run(w.name, func(t *testing.T) {
			cputest.Need(t, w.needs)
			dst, src := testmem.New[float32](t, 1<<16), testmem.New[uint16](t, 1<<16)
			for _, n := range append(everyLength(), 1<<16) {
				everywhere(t, dst, src, n, func(dst []float32, src []uint16) {
					for i := range src {
						src[i] = uint16(i * 40503)
					}
					w.function(dst, src)
					for i, v := range src {
						if math.Float32bits(dst[i]) != math.Float32bits(w.want(v)) {
							t.Fatalf("widen of %04x at %d of %d: %08x", v, i, n, math.Float32bits(dst[i]))
						}
					}
				})
			}
		})
	}
}

func TestStochastic(t *testing.T) {
	for _, s := range stochastics {
		t.Run(s.name, func(t *testing.T) {
			cputest.Need(t, s.needs)
			testStochastic(t, s.function)
		})
	}
}

func testStochastic(t *testing.T, round func(dst []uint16, src []float32, seed, step, first uint64)) {
	dst, src := testmem.New[uint16](t, 8192), testmem.New[float32](t, 8192)
	x := patterns()
	streams := []struct{ seed, step, first uint64 }{
		{0, 0, 0}, {1, 2, 3}, {0x123456789abcdef0, 0xfedcba9876543210, 1<<35 - 20}, {math.MaxUint64, math.MaxUint64, math.MaxInt64 - 8192},
	}
	for i, n := range append(everyLength(), len(x)) {
		for shift := range uint64(8) {
			s := streams[(i+int(shift))%len(streams)]
			s.first += shift
			check := func(dst []uint16, src []float32) {
				copy(src, x[(i*997)%(len(x)-n+1):])
				round(dst, src, s.seed, s.step, s.first)
				for i, v := range src {
					if want := bf16.Stochastic(v, bf16.RandomBits(s.seed, s.step, s.first+uint64(i))); dst[i] != uint16(want) {
						t.Fatalf("%08x, element %d of %d of %v: %04x, want %04x", math.Float32bits(v), i, n, s, dst[i], want)
					}
				}
			}
			if shift == 5 && n < 200 {
				everywhere(t, dst, src, n, check)
			} else {
				check(dst.AtEnd(n), src.AtEnd(n))
				dst.Check()
			}
		}
	}
}

func BenchmarkRound(b *testing.B) {
	for _, n := range sizes {
		dst, src := make([]uint16, n.elements), noise(n.elements)
		wide := make([]float32, n.elements)
		n.run(b, "limit-of-rounding", func(lo, hi int) { move(words(dst[lo:hi]), words(src[lo:hi])) })
		for _, r := range roundings {
			n.runIf(b, r.needs, r.name, func(lo, hi int) { r.function(dst[lo:hi], src[lo:hi]) })
		}
		for _, s := range stochastics {
			n.runIf(b, s.needs, "stochastic/"+s.name, func(lo, hi int) { s.function(dst[lo:hi], src[lo:hi], 1, 2, uint64(lo)) })
		}
		n.run(b, "limit-of-widening", func(lo, hi int) { move(words(wide[lo:hi]), words(dst[lo:hi])) })
		for _, w := range widenings {
			n.runIf(b, w.needs, "widen/"+w.name, func(lo, hi int) { w.function(wide[lo:hi], dst[lo:hi]) })
		}
	}
}
