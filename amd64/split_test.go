//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

func TestSplitAndJoin(t *testing.T) {
	cputest.Need(t, avx2)
	x := patterns()
	n := len(x)
	src, weights, low := testmem.New[float32](t, n), testmem.New[uint16](t, n), testmem.New[uint16](t, n)
	for place := range places {
		for _, n := range append(lengths, n) {
			src, weights, low := placed(src, n, place, 4), placed(weights, n, (place+5)%places, 2), placed(low, n, (place+9)%places, 2)
			copy(src, x[len(x)-n:])
			amd64.SplitAVX2(weights, low, src)
			for i, v := range src {
				if weight, rest := reference.Split(v); weights[i] != uint16(weight) || low[i] != rest {
					t.Fatalf("split of %08x: %04x %04x, want %04x %04x", math.Float32bits(v), weights[i], low[i], weight, rest)
				}
			}
			amd64.JoinAVX2(src, weights, low)
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
