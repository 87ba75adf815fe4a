package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
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

// TestHotPathsAllocateNothing covers a call on one goroutine and one that splits.
func TestHotPathsAllocateNothing(t *testing.T) {
	for _, n := range []int{128, 100_000} {
		x, y := normal(n, 1), make([]float32, n)
		narrow := make([]bf16.BF16, n)
		f := kernels.Format{Codebook: codebook.Dynamic8(), Block: 128}
		u := kernels.Format{Codebook: codebook.Dynamic8Unsigned(), Block: 128}
		moment := func(f kernels.Format) kernels.Moment {
			return kernels.Moment{Codes: make([]uint8, f.CodeBytes(n)), Scales: make([]float32, f.Scales(n)), Format: f}
		}
		m, v := moment(f), moment(u)
		tensors := &kernels.AdamWTensors{Weights: kernels.Float32s(y), Gradients: kernels.Float32s(x), M: m, V: v}
		scalars := kernels.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1}.Scalars()
		for name, call := range map[string]func(){
			"quantize":   func() { _, _ = kernels.Quantize(m.Codes, m.Scales, x, f) },
			"dequantize": func() { _ = kernels.Dequantize(y, m.Codes, m.Scales, f) },
			"round":      func() { _ = kernels.Round(narrow, x) },
			"widen":      func() { _ = kernels.Widen(y, narrow) },
			"absmax":     func() { kernels.Absmax(x) },
			"norm":       func() { kernels.Norm(kernels.Float32s(x)) },
			"adamw":      func() { _, _ = kernels.AdamW(tensors, &scalars) },
		} {
			require.Zerof(t, testing.AllocsPerRun(20, call), "%s of %d elements", name, n)
		}
	}
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
