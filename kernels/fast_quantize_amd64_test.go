//go:build !purego

package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/kernels/reference"
	"github.com/stretchr/testify/require"
)

// longFormats have blocks that are longer than a call may be.
func longFormats() (formats []Format) {
	for _, book := range []*codebook.Codebook{codebook.Dynamic8(), codebook.Dynamic8Unsigned(), codebook.Linear8(), codebook.NF4(), codebook.DE4()} {
		for _, block := range []int{callElements + 2, 3 * pieceElements, 200_000, math.MaxInt} {
			formats = append(formats, Format{Codebook: book, Block: block, Headroom: block%3 == 0})
		}
	}
	return formats
}

const longElements = 3*callElements + pieceElements/2 + 7

func TestLongBlocks(t *testing.T) {
	extremes := []float32{0, -17, 1e-41, float32(math.Inf(-1)), float32(math.NaN())}
	for i, f := range longFormats() {
		x := make([]float32, longElements)
		rng := rand.New(rand.NewPCG(5, uint64(f.Block)))
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		wantCodes, wantScales := make([]uint8, f.CodeBytes(len(x))), make([]float32, f.Scales(len(x)))
		codes, scales, decoded, wantDecoded := make([]uint8, len(wantCodes)), make([]float32, len(wantScales)), make([]float32, len(x)), make([]float32, len(x))
		v := extremes[i%len(extremes)]
		if v == 1e-41 {
			for i := range x {
				x[i] *= 1e-40
			}
		}
		x[len(x)-5] = v
		want := reference.Quantize(wantCodes, wantScales, x, f)
		reference.Dequantize(wantDecoded, wantCodes, wantScales, f)
		for _, impl := range OpQuantize(f.Codebook).Impls {
			t.Run(fmt.Sprint("quantize/", f.Codebook.Name(), "/", f.Block, "/", v, "/", impl.Name), func(t *testing.T) {
				cputest.Need(t, impl.Needs)
				clear(codes)
				require.Equal(t, want, impl.Func(codes, scales, x, f))
				require.Equal(t, wantCodes, codes)
				for b, scale := range scales {
					require.Equal(t, math.Float32bits(wantScales[b]), math.Float32bits(scale))
				}
			})
		}
		for _, impl := range OpDequantize(f.Codebook).Impls {
			t.Run(fmt.Sprint("dequantize/", f.Codebook.Name(), "/", f.Block, "/", v, "/", impl.Name), func(t *testing.T) {
				cputest.Need(t, impl.Needs)
				clear(decoded)
				impl.Func(decoded, wantCodes, wantScales, f)
				for i, w := range wantDecoded {
					if decoded[i] != w && (w == w || decoded[i] == decoded[i]) {
						t.Fatalf("%d is %v, want %v", i, decoded[i], w)
					}
				}
			})
		}
	}
}

// TestCallsAreShort counts the elements that each call is given.
func TestCallsAreShort(t *testing.T) {
	for _, f := range longFormats() {
		x, codes, scales := make([]float32, longElements), make([]uint8, f.CodeBytes(longElements)), make([]float32, f.Scales(longElements))
		longest, quantized, seen, decoded := 0, 0, 0, 0
		quantizeCall(func(codes []uint8, scales, x []float32, f Format, least float32) int {
			longest, quantized = max(longest, len(x)), quantized+len(x)
			return reference.Quantize(codes, scales, x, f)
		}).run(func(x []float32) float32 {
			longest, seen = max(longest, len(x)), seen+len(x)
			return 0
		}, codes, scales, x, f)
		dequantizeCall(func(dst []float32, codes []uint8, scales []float32, f Format) {
			longest, decoded = max(longest, len(dst)), decoded+len(dst)
		}).run(x, codes, scales, f)
		require.Equal(t, [3]int{len(x), len(x), len(x)}, [3]int{quantized, seen, decoded})
		require.LessOrEqual(t, longest, callElements)

		added := 0
		factorMeansBy(func(totals []float64, lanes *[64][16]float64, sums *[bandColumns]float64, g []float32, columns, stride int, scale float32, first, last bool) {
			longest, added = max(longest, len(totals)*columns), added+columns
		})(make([]float32, 1), make([]float64, len(x)), Float32s(x), 1)
		require.Equal(t, len(x), added)
		require.LessOrEqual(t, longest, callElements)
	}
}

func TestLongRows(t *testing.T) {
	const rows = 2
	x := make([]float32, rows*longElements)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	narrow := BF16s(make([]uint16, len(x)))
	reference.Round(narrow.BF16, x)
	for _, c := range []struct {
		op *Op[FactorMeansFunc]
		g  Floats
	}{{OpFactorMeansFloat32, Float32s(x)}, {OpFactorMeansBF16, narrow}} {
		want, wantSquares := make([]float32, rows), make([]float64, longElements)
		reference.FactorMeans(want, wantSquares, c.g, 0.3)
		for _, impl := range c.op.Impls {
			t.Run(c.op.Variant+"/"+impl.Name, func(t *testing.T) {
				cputest.Need(t, impl.Needs)
				got, squares := make([]float32, rows), make([]float64, longElements)
				impl.Func(got, squares, c.g, 0.3)
				require.Equal(t, want, got)
				require.Equal(t, wantSquares, squares)
			})
		}
	}
}
