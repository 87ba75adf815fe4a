//go:build amd64 && !purego

package amd64_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

// sizes are those of the benchmarks: in the second-level cache, and far beyond the last.
var sizes = []size{{"cache", 1 << 14}, {"stream", 1 << 24}}

type size struct {
	name     string
	elements int
}

// run measures a function over all elements, in pieces of 32768, and reports the rate of
// the best pass, which other work on the machine disturbs least, in elements a second and
// in clock cycles.
func (s size) run(b *testing.B, name string, f func(lo, hi int)) {
	b.Run(name+"/"+s.name, func(b *testing.B) {
		hz := clock()
		best := time.Duration(1 << 62)
		for b.Loop() {
			start := time.Now()
			for lo := 0; lo < s.elements; lo += 1 << 15 {
				f(lo, min(lo+1<<15, s.elements))
			}
			best = min(best, time.Since(start))
		}
		rate := float64(s.elements) / best.Seconds()
		b.ReportMetric(rate/1e9, "Gelem/s")
		b.ReportMetric(hz/rate, "cycles/elem")
	})
}

// runIf is run where the processor has the features.
func (s size) runIf(b *testing.B, needs cpufeature.Set, name string, f func(lo, hi int)) {
	if cpufeature.Available.Has(needs) {
		s.run(b, name, f)
	}
}

// words views a slice as words of 64 bits.
func words[T any](x []T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0]))/8)
}

// move reads all of src and writes all of dst, with arithmetic that is nearly none: what
// no function that moves as much can beat by its arithmetic. One may be empty; else one is
// twice as long as the other, or they have one length.
func move(dst, src []uint64) {
	switch {
	case len(dst) == 0:
		for ; len(src) >= 8; src = src[8:] {
			sink |= src[0] | src[1] | src[2] | src[3] | src[4] | src[5] | src[6] | src[7]
		}
	case len(dst) < len(src):
		for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
			dst[0], dst[1], dst[2], dst[3] = src[0]|src[1], src[2]|src[3], src[4]|src[5], src[6]|src[7]
		}
	case len(dst) > len(src):
		for ; len(dst) >= 8 && len(src) >= 4; dst, src = dst[8:], src[4:] {
			dst[0], dst[1], dst[2], dst[3] = src[0], src[0], src[1], src[1]
			dst[4], dst[5], dst[6], dst[7] = src[2], src[2], src[3], src[3]
		}
	default:
		for ; len(dst) >= 4 && len(src) >= 4; dst, src = dst[4:], src[4:] {
			dst[0], dst[1], dst[2], dst[3] = src[0]|1, src[1]|1, src[2]|1, src[3]|1
		}
	}
}

// clock is the processor's rate in cycles a second, from a chain of dependent operations.
var clock = sync.OnceValue(func() float64 {
	const n = 1_000_000
	best := time.Duration(1 << 62)
	for range 50 {
		start := time.Now()
		x := uint64(1)
		for range n / 4 {
			x += x >> 1 & 1 // with the next line, four operations
			x ^= 1
		}
		best = min(best, time.Since(start))
		sink = x
	}
	return n / best.Seconds()
})

var sink uint64

func noise(n int) []float32 {
	rng := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, n)
	for i := range x {
		if i < 1<<20 {
			x[i] = float32(rng.NormFloat64())
		} else {
			x[i] = x[i-1<<20]
		}
	}
	return x
}
