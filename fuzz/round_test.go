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
