package fuzz

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

func (r *roundInput) properties(t *testing.T, _ *input) {
	rounded, cut := make([]bf16.BF16, len(r.x)), make([]bf16.BF16, len(r.x))
	require.NoError(t, kernels.Round(rounded, r.x))
	require.NoError(t, kernels.Truncate(cut, r.x))
	for i, x := range r.x {
		bits := math.Float32bits(x)
		equal(t, nearest(x), rounded[i], "%08x", bits)
		if x != x {
			equal(t, rounded[i], cut[i], "%08x", bits)
			continue
		}
		v := cut[i].Float32()
		towardsZero := abs(v) <= abs(x) && (!isFinite(x) || float64(abs(x)) < math.Abs(bf16Magnitude(cut[i]+1, x)))
		equal(t, true, towardsZero, "%08x", bits)
	}
}

// Whether an element rounds away from zero follows from how far it is from the next bf16
// number and from its position.
func (s *stochasticInput) properties(t *testing.T, in *input) {
	got := make([]bf16.BF16, len(s.x))
	require.NoError(t, kernels.Stochastic(got, s.x, s.stream))
	for i, x := range s.x {
		if !isFinite(x) {
			equal(t, nearest(x), got[i], "%v", x)
			continue
		}
		down := bf16.BF16(math.Float32bits(x) >> 16)
		low, high := bf16Magnitude(down, x), bf16Magnitude(down+1, x)
		draw := bf16.RandomBits(s.stream.Seed, s.stream.Step, uint64(s.stream.First)+uint64(i))
		want := down
		if (float64(x)-low)/(high-low)+float64(draw)/0x1p16 >= 1 && !math.IsInf(float64((down+1).Float32()), 0) {
			want++
		}
		equal(t, want, got[i], "%v with %04x", x, draw)
	}
	at, later := in.cut(len(s.x), 1), s.stream
	later.First += int64(at)
	pieces := make([]bf16.BF16, len(s.x))
	require.NoError(t, kernels.Stochastic(pieces[:at], s.x[:at], s.stream))
	require.NoError(t, kernels.Stochastic(pieces[at:], s.x[at:], later))
	require.Equal(t, got, pieces, "split at %d", at)
}

func (w *widenInput) properties(t *testing.T, _ *input) {
	got := make([]float32, len(w.x))
	require.NoError(t, kernels.Widen(got, w.x))
	for i, b := range w.x {
		sign := math.Float32frombits(uint32(b) << 16 & (1 << 31))
		want := bf16Magnitude(b, sign)
		if b&0x7f80 == 0x7f80 {
			want = math.Inf(1 - int(b>>15)*2)
		}
		if b&0x7fff > 0x7f80 {
			equal(t, true, got[i] != got[i], "%04x", b)
		} else {
			equal(t, math.Float64bits(want), math.Float64bits(float64(got[i])), "%04x", b)
		}
	}
}

func (r *roundFloat16Input) properties(t *testing.T, _ *input) {
	got := make([]uint16, len(r.x))
	require.NoError(t, kernels.RoundFloat16(got, r.x))
	for i, x := range r.x {
		bits, sign, size := math.Float32bits(x), got[i]&0x8000, got[i]&0x7fff
		equal(t, uint16(bits>>16&0x8000), sign, "%08x", bits)
		if x != x {
			equal(t, 0x7e00|uint16(bits>>13&0x3ff), size, "%08x", bits)
			continue
		}
		// nothing is nearer, and of two that are as near it is the even one
		distance := math.Abs(math.Abs(float64(x)) - float16Magnitude(size))
		if math.IsInf(float64(x), 0) {
			distance = 0
		}
		for _, other := range []uint16{size - 1, size + 1} {
			if other > 0x7c00 {
				continue
			}
			farther := math.Abs(math.Abs(float64(x)) - float16Magnitude(other))
			equal(t, true, distance < farther || distance == farther && size%2 == 0, "%08x is %04x", bits, got[i])
		}
	}
}

// float16Magnitude is the value of a binary16 magnitude, where the infinite one is what would
// follow the largest finite one.
func float16Magnitude(h uint16) float64 {
	exponent, fraction := int(h>>10), float64(h&0x3ff)
	if exponent == 0 {
		return math.Ldexp(fraction, -24)
	}
	return math.Ldexp(1024+fraction, exponent-25)
}

func (w *widenFloat16Input) properties(t *testing.T, _ *input) {
	got := make([]float32, len(w.x))
	require.NoError(t, kernels.WidenFloat16(got, w.x))
	for i, h := range w.x {
		size := h & 0x7fff
		want := float16Magnitude(size)
		if size == 0x7c00 {
			want = math.Inf(1)
		}
		if size > 0x7c00 {
			equal(t, uint32(h&0x8000)<<16|0x7fc00000|uint32(h&0x3ff)<<13, math.Float32bits(got[i]), "%04x", h)
			continue
		}
		equal(t, math.Float64bits(math.Copysign(want, 1-2*float64(h>>15))), math.Float64bits(float64(got[i])), "%04x", h)
	}
}
