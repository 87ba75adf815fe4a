package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
	"github.com/stretchr/testify/require"
)

func normal(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func TestAnyNumberOfThreadsGivesTheSameBits(t *testing.T) {
	x := normal(3*4096*20+77, 2)
	sum := reference.SumSquares(kernels.Float32s(x))
	absmax := reference.Absmax(x)
	for _, threads := range []kernels.Threads{0, 1, 2, 3, 7} {
		require.Equal(t, sum, kernels.SumSquares(kernels.Float32s(x), threads))
		require.Equal(t, math.Sqrt(sum), kernels.Norm(kernels.Float32s(x), threads))
		require.Equal(t, absmax, kernels.Absmax(x, threads))
	}
	x[len(x)-1] = float32(math.NaN())
	require.True(t, math.IsNaN(float64(kernels.Absmax(x))))
	require.True(t, math.IsNaN(kernels.Norm(kernels.Float32s(x))))
}

func TestOverlapIsRefused(t *testing.T) {
	x := make([]float32, 64)
	_, err := kernels.Quantize(make([]uint8, 32), x[:1], x[:32], kernels.Format{Codebook: codebook.Dynamic8(), Block: 32})
	require.EqualError(t, err, "quantize: scales and x overlap, want separate memory")
	narrow := make([]uint16, 64)
	require.NoError(t, kernels.Round(narrow, x))
	require.EqualError(t, kernels.Widen(x[:32], narrow), "bf16_widen: dst has length 32, want 64 as src")
}

func TestSizesAreCheckedBeforeAnythingIsWritten(t *testing.T) {
	f := kernels.Format{Codebook: codebook.Dynamic8(), Block: 128}
	four := kernels.Format{Codebook: codebook.NF4(), Block: 64, Nibble: codebook.HighFirst}
	for _, c := range []struct {
		codes, scales, n int
		f                kernels.Format
		want             string
	}{
		{299, 3, 300, f, "quantize: codes has length 299, want 300 for 300 elements of dynamic8"},
		{300, 2, 300, f, "quantize: scales has length 2, want 3 for 300 elements in blocks of 128"},
		{150, 5, 301, four, "quantize: codes has length 150, want 151 for 301 elements of nf4"},
		{8, 1, 8, kernels.Format{Codebook: codebook.Dynamic8()}, "quantize: the block size is 0, want 1 or more"},
		{8, 1, 8, kernels.Format{Codebook: codebook.Dynamic8(), Block: -1}, "quantize: the block size is -1, want 1 or more"},
		{8, 1, 8, kernels.Format{Block: 8}, "quantize: the format has no codebook"},
		{4, 1, 8, kernels.Format{Codebook: codebook.NF4(), Block: 8, Nibble: 2}, "quantize: the nibble order is 2, want LowFirst or HighFirst"},
		{0, 0, 0, f, ""},
		{8, 1, 8, kernels.Format{Codebook: codebook.Dynamic8(), Block: math.MaxInt/2 + 1}, ""},
	} {
		codes, scales := make([]uint8, c.codes), make([]float32, c.scales)
		for i := range codes {
			codes[i] = 0xaa
		}
		_, err := kernels.Quantize(codes, scales, normal(c.n, 3), c.f)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, c.want)
		for i := range codes {
			require.Equal(t, uint8(0xaa), codes[i])
		}
	}
}

// An odd block of 4-bit codes begins in the middle of a byte, and twice this one is no
// integer.
func TestTheLargestBlock(t *testing.T) {
	f := kernels.Format{Codebook: codebook.DE4(), Block: math.MaxInt}
	x, codes, scales := normal(33, 4), make([]uint8, 17), make([]float32, 1)
	_, err := kernels.Quantize(codes, scales, x, f)
	require.NoError(t, err)
	require.NoError(t, kernels.Dequantize(x, codes, scales, f))
}

// The spare half of the last byte belongs to the last block: a step that skips the block
// leaves it, however the blocks are split over calls.
func TestASkippedBlockKeepsItsSpareHalfByte(t *testing.T) {
	f := kernels.Format{Codebook: codebook.DE4(), Block: 4}
	u := kernels.Format{Codebook: codebook.Linear4(), Block: 4}
	g := normal(7, 5)
	g[6] = float32(math.NaN())
	moment := func(f kernels.Format) kernels.Moment {
		return kernels.Moment{Codes: []uint8{1, 2, 3, 4 << 4}, Scales: []float32{1, 1}, Format: f}
	}
	m, v := moment(f), moment(u)
	tensors := &kernels.AdamWTensors{Weights: kernels.Float32s(make([]float32, 7)), Gradients: kernels.Float32s(g), M: m, V: v}
	scalars := kernels.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1}.Scalars()
	scalars.SkipNonFinite = true
	counts, err := kernels.AdamW(tensors, &scalars)
	require.NoError(t, err)
	require.Equal(t, kernels.Counts{NonFinite: 1, SkippedElements: 3, SkippedBlocks: 1}, counts)
	require.Equal(t, []uint8{3, 4 << 4}, m.Codes[2:])
	require.Equal(t, []uint8{3, 4 << 4}, v.Codes[2:])
}

func TestMuonRefusesCodesOf4Bits(t *testing.T) {
	f := kernels.Format{Codebook: codebook.DE4(), Block: 4}
	tensors := &kernels.MuonTensors{
		Weights: kernels.Float32s(normal(4, 1)), Gradients: kernels.Float32s(normal(4, 2)), Update: normal(4, 3),
		Momentum: kernels.Moment{Codes: make([]uint8, 2), Scales: make([]float32, 1), Format: f},
	}
	require.EqualError(t, kernels.MuonUpdate(tensors, &kernels.MuonScalars{}), "muon_update: the momentum has codes of 4 bits, want 8")
}
