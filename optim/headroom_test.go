package optim_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

// requantised is a block that was quantised and dequantised n times.
func requantised(t *testing.T, x []float32, format kernels.Format, n int) []float32 {
	t.Helper()
	x = append([]float32{}, x...)
	codes, scales := make([]uint8, format.CodeBytes(len(x))), make([]float32, format.Scales(len(x)))
	for range n {
		_, err := kernels.Quantize(codes, scales, x, format)
		require.NoError(t, err)
		require.NoError(t, kernels.Dequantize(x, codes, scales, format))
	}
	return x
}

// TestIdleRequantisation of a block whose extreme is negative: dynamic8 has no -1, so each
// time the scale shrinks to 0.99296874 of itself, to 8.6e-4 in 1,000 times. With headroom
// the first time is the last that changes anything. docs/headroom.md shows the output of -v.
func TestIdleRequantisation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	block := make([]float32, 128)
	for i := range block {
		block[i] = float32(rng.NormFloat64())
	}
	block[77] = -4 // the extreme
	plain := kernels.Format{Codebook: codebook.Dynamic8(), Block: len(block)}
	headroom := plain
	headroom.Headroom = true
	once := requantised(t, block, headroom, 1)
	require.InEpsilon(t, -4, once[77], 1e-7)
	for _, n := range []int{1, 10, 100, 1000} {
		without, with := requantised(t, block, plain, n), requantised(t, block, headroom, n)
		t.Logf("%4d times: %.3g of itself without headroom, %.3g with", n, without[77]/-4, with[77]/-4)
		require.InEpsilon(t, math.Pow(0.99296874, float64(n)), without[77]/-4, 1e-3)
		require.Equal(t, once, with)
	}
	require.InDelta(t, 8.6e-4, requantised(t, block, plain, 1000)[77]/-4, 0.05e-4)

	block[77] = 4 // a positive extreme loses nothing without headroom either
	require.Equal(t, requantised(t, block, plain, 1), requantised(t, block, plain, 1000))
}

// TestHeadroomIsIdempotent for every mantissa: the scale made of a decoded extreme is the one
// that it was decoded with.
func TestHeadroomIsIdempotent(t *testing.T) {
	format := kernels.Format{Codebook: codebook.Dynamic8(), Block: 1, Headroom: true}
	const piece = 1 << 16
	x, codes := make([]float32, piece), make([]uint8, piece)
	first, again := make([]float32, piece), make([]float32, piece)
	for lo := 0; lo < 1<<23; lo += piece {
		for i := range x {
			x[i] = -math.Float32frombits(0x3f800000 + uint32(lo+i))
		}
		_, err := kernels.Quantize(codes, first, x, format)
		require.NoError(t, err)
		require.NoError(t, kernels.Dequantize(x, codes, first, format))
		_, err = kernels.Quantize(codes, again, x, format)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}
