package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/float16"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var halfFormats = []struct {
	name       string
	widen      func(uint16) float32
	round      func(float32) uint16
	quantize   func(codes []uint8, scales []float32, x []uint16, f kernels.Format, limit ...kernels.Threads) (int64, error)
	dequantize func(dst []uint16, codes []uint8, scales []float32, f kernels.Format, limit ...kernels.Threads) error
}{
	{"bfloat16", func(h uint16) float32 { return bf16.BF16(h).Float32() }, func(x float32) uint16 { return uint16(bf16.FromFloat32(x)) },
		kernels.QuantizeBF16[uint16], kernels.DequantizeBF16[uint16]},
	{"float16", float16.ToFloat32, float16.FromFloat32, kernels.QuantizeFloat16[uint16], kernels.DequantizeFloat16[uint16]},
}

// TestHalves quantises numbers of 16 bits, among them subnormal ones, infinities and NaNs,
// and compares with the reference on the widened numbers, then rounds what it decodes.
func TestHalves(t *testing.T) {
	for _, half := range halfFormats {
		for _, book := range []*codebook.Codebook{codebook.Dynamic8(), codebook.Dynamic8Unsigned(), codebook.Linear8(), codebook.NF4(), codebook.Linear4()} {
			for _, block := range []int{1, 3, 64, 100, 256, 3001, 4096, 5000, 12_289, math.MaxInt} {
				for _, n := range []int{0, 1, 255, 4097, 40_001} {
					t.Run(fmt.Sprint(half.name, "/", book.Name(), "/", block, "/", n), func(t *testing.T) {
						f := kernels.Format{Codebook: book, Block: block, Nibble: codebook.HighFirst}
						rng := rand.New(rand.NewPCG(uint64(block), uint64(n)))
						x, wide := make([]uint16, n), make([]float32, n)
						for i := range x {
							x[i] = half.round(float32(rng.NormFloat64() * math.Exp2(float64(i/1000%30-15))))
							if rng.IntN(2000) == 0 {
								x[i] = uint16(rng.Uint32())
							}
							wide[i] = half.widen(x[i])
						}
						wantCodes, wantScales := make([]uint8, f.CodeBytes(n)), make([]float32, f.Scales(n))
						want := reference.Quantize(wantCodes, wantScales, wide, f)
						codes, scales := make([]uint8, f.CodeBytes(n)), make([]float32, f.Scales(n))
						got, err := half.quantize(codes, scales, x, f)
						require.NoError(t, err)
						require.EqualValues(t, want, got)
						require.Equal(t, wantCodes, codes)
						for i, s := range wantScales {
							require.Equal(t, math.Float32bits(s), math.Float32bits(scales[i]))
						}

						reference.Dequantize(wide, codes, scales, f)
						require.NoError(t, half.dequantize(x, codes, scales, f))
						for i, w := range wide {
							require.Equal(t, half.round(w), x[i])
						}
					})
				}
			}
		}
	}
}

func TestHalvesRefuseOtherSizes(t *testing.T) {
	f := kernels.Format{Codebook: codebook.Dynamic8(), Block: 32}
	for _, half := range halfFormats {
		_, err := half.quantize(make([]uint8, 63), make([]float32, 2), make([]uint16, 64), f)
		require.EqualError(t, err, "quantize: codes has length 63, want 64 for 64 elements of dynamic8")
		err = half.dequantize(make([]uint16, 64), make([]uint8, 64), make([]float32, 1), f)
		require.EqualError(t, err, "dequantize: scales has length 1, want 2 for 64 elements in blocks of 32")
	}
}
