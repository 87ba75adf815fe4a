package lm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Everything vek does for the layers gives the same bits at every offset in memory.
func TestLayerBitsDoNotDependOnAlignment(t *testing.T) {
	const width, positions = 37, 5
	const n = width * positions
	run := func(offset int) [][]float32 {
		x := waves(n, offset, 0.7)
		gain := waves(width, (offset*3)%16, 0.2)
		taps := waves(3*width, (offset*5)%16, 0.4)
		y, gate, inv := waves(n, (offset*7)%16, 1), waves(n, (offset*9)%16, 1), waves(positions, offset, 1)
		out := [][]float32{}
		keep := func(x []float32) { out = append(out, append([]float32(nil), x...)) }
		rmsNorm(y, inv, x, gain)
		keep(y)
		causalConv(y, x, taps, gain)
		keep(y)
		silu(y, gate, x)
		keep(y)
		addToRows(y, gain)
		keep(y)
		sumRows(gain, y)
		keep(gain)
		keep([]float32{float32(crossEntropy(y[:width], 3))})
		keep(y)
		return out
	}
	want := run(0)
	for offset := 1; offset < 16; offset++ {
		require.Equal(t, want, run(offset), "offset %d", offset)
	}
}

func TestCausalConv(t *testing.T) {
	// Two channels: the first sums the last three positions, the second shows the one
	// two positions ago.
	taps := []float32{1, 1, 1, 0, 1, 0}
	y := make([]float32, 8)
	causalConv(y, []float32{1, 5, 2, 6, 3, 7, 4, 8}, taps, []float32{0, 100})
	require.Equal(t, []float32{1, 100, 3, 100, 6, 105, 9, 106}, y)
}

func TestCrossEntropy(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		target byte
		want   float64
	}{
		{[]float32{0, 0, 0, 0}, 2, math.Log(4)},
		{[]float32{1000, 1000}, 0, math.Log(2)},
		{[]float32{-1000, -1000 + float32(math.Ln2)}, 0, math.Log(3)},
		{[]float32{0, 50}, 0, 50},
	} {
		logits := append([]float32(nil), c.logits...)
		require.InDelta(t, c.want, crossEntropy(logits, c.target), 1e-4, "%v", c.logits)
		sum := 0.0
		for _, p := range logits {
			sum += float64(p)
		}
		require.InDelta(t, 1, sum, 1e-6)
	}
	nan := float32(math.NaN())
	require.True(t, math.IsNaN(crossEntropy([]float32{0, nan, 0}, 0)))
}
