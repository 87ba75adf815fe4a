//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var splits = []struct {
	name  string
	needs cpufeature.Set
	split func(weights, low []uint16, src []float32)
	join  func(dst []float32, weights, low []uint16)
}{
	{"avx2", avx2, amd64.SplitAVX2, amd64.JoinAVX2},
	{"avx512", cpufeature.AVX512, amd64.SplitAVX512, amd64.JoinAVX512},
}

func TestSplitAndJoin(t *testing.T) {
	for _, s := range splits {
		t.Run(s.name, func(t *testing.T) {
			cputest.Need(t, s.needs)
			testSplitAndJoin(t, s.split, s.join)
		})
	}
}

func testSplitAndJoin(t *testing.T, split func(weights, low []uint16, src []float32), join func(dst []float32, weights, low []uint16)) {
	x := patterns()
	n := len(x)
	src, weights, low := testmem.New[float32](t, n), testmem.New[uint16](t, n), testmem.New[uint16](t, n)
	for place := range places {
		for _, n := range append(everyLength(), n) {
			src, weights, low := placed(src, n, place, 4), placed(weights, n, (place+5)%places, 2), placed(low, n, (place+9)%places, 2)
			copy(src, x[len(x)-n:])
			split(weights, low, src)
			for i, v := range src {
				if weight, rest := reference.Split(v); weights[i] != uint16(weight) || low[i] != rest {
					t.Fatalf("split of %08x: %04x %04x, want %04x %04x", math.Float32bits(v), weights[i], low[i], weight, rest)
				}
			}
			join(src, weights, low)
			for i, v := range src {
				if want := reference.Join(bf16.BF16(weights[i]), low[i]); math.Float32bits(v) != math.Float32bits(want) {
					t.Fatalf("join of %04x and %04x: %08x, want %08x", weights[i], low[i], math.Float32bits(v), math.Float32bits(want))
				}
			}
		}
		src.Check()
		weights.Check()
		low.Check()
	}
}

func BenchmarkSplit(b *testing.B) {
	for _, n := range sizes {
		src, weights, low := noise(n.elements), make([]uint16, n.elements), make([]uint16, n.elements)
		for _, s := range splits {
			n.runIf(b, s.needs, "split/"+s.name, func(lo, hi int) { s.split(weights[lo:hi], low[lo:hi], src[lo:hi]) })
			n.runIf(b, s.needs, "join/"+s.name, func(lo, hi int) { s.join(src[lo:hi], weights[lo:hi], low[lo:hi]) })
		}
	}
}
