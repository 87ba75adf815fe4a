//go:build amd64 && !purego

package amd64_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var (
	books4      = []*codebook.Codebook{codebook.NF4(), codebook.FP4(), codebook.DE4(), codebook.Linear4(), halves()}
	blockSizes4 = []int{2, 6, 8, 32, 40, 62, 64, 128, 1000, 1<<40 + 1}
)

// halves is a book without a zero, whose codes are in no order.
func halves() *codebook.Codebook {
	book, err := codebook.New("halves", []float32{0.5, -0.5, 0.25, -0.75, 1})
	if err != nil {
		panic(err)
	}
	return book
}

func formats4(block int, f func(reference.Format)) {
	for _, book := range books4 {
		for _, order := range []codebook.Nibble{codebook.LowFirst, codebook.HighFirst} {
			f(reference.Format{Codebook: book, Block: block, Nibble: order, Headroom: block%3 == 1})
		}
	}
}

func quantize4(codes []uint8, scales, x []float32, f reference.Format) int {
	book := f.Codebook
	return amd64.Quantize4AVX2(codes, scales, x, f.Block, divisor(f), book.Thresholds(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst)
}

func TestQuantize4(t *testing.T) {
	cputest.Need(t, avx2)
	rng := rand.New(rand.NewPCG(4, 1))
	codes, values, scales := testmem.New[uint8](t, 300), testmem.New[float32](t, 300), testmem.New[float32](t, 300)
	for _, block := range blockSizes4 {
		formats4(block, func(f reference.Format) {
			for _, n := range lengths {
				place := rng.IntN(places)
				x, codes, scales := placed(values, n, place, 4), placed(codes, f.CodeBytes(n), (place+5)%places, 1), placed(scales, f.Scales(n), (place+9)%places, 4)
				hardBlocks(rng, x, f)
				checkQuantize(t, f, codes, scales, x, func() int { return quantize4(codes, scales, x, f) })
			}
			codes.Check()
			scales.Check()
			values.Check()
		})
	}
}

func TestQuantize4RandomBlocks(t *testing.T) {
	cputest.Need(t, avx2)
	rng := rand.New(rand.NewPCG(4, 2))
	x, codes := make([]float32, 5000), make([]uint8, 2500)
	for trial := range trials(10, 10_000) {
		formats4(32<<(trial%3), func(f reference.Format) {
			scales := make([]float32, f.Scales(len(x)))
			hardBlocks(rng, x, f)
			checkQuantize(t, f, codes, scales, x, func() int { return quantize4(codes, scales, x, f) })
		})
	}
}

func TestQuantize4EveryPattern(t *testing.T) {
	cputest.Need(t, avx2)
	codes, scales := make([]uint8, patternBlock/2), make([]float32, 1)
	for _, book := range books4 {
		f := reference.Format{Codebook: book, Block: patternBlock}
		everyPattern(t, book, func(x []float32) { quantize4(codes, scales, x, f) }, func(i int) uint8 { return f.Get(codes, i) })
	}
}

func TestDequantize4(t *testing.T) {
	cputest.Need(t, avx2)
	rng := rand.New(rand.NewPCG(4, 3))
	values, codes, scales := testmem.New[float32](t, 5000), testmem.New[uint8](t, 5000), testmem.New[float32](t, 5000)
	for _, block := range blockSizes4 {
		formats4(block, func(f reference.Format) {
			for _, n := range append(lengths, 4097) {
				place := rng.IntN(places)
				dst, codes, scales := placed(values, n, place, 4), placed(codes, f.CodeBytes(n), (place+5)%places, 1), placed(scales, f.Scales(n), (place+9)%places, 4)
				for i := range codes {
					codes[i] = uint8(rng.Uint32())
				}
				for i := range scales {
					scales[i] = hardScale(rng)
				}
				want := make([]float32, n)
				amd64.Dequantize4AVX2(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst)
				reference.Dequantize(want, codes, scales, f)
				checkSame(t, "dequantize", f, dst, want)
				values.Check()
			}
		})
	}
}

func BenchmarkQuantize4(b *testing.B) {
	for _, n := range sizes {
		x, codes, scales := noise(n.elements), make([]uint8, n.elements/2), make([]float32, n.elements/64)
		f := reference.Format{Codebook: codebook.NF4(), Block: 64}
		n.run(b, "quantize", func(lo, hi int) {
			quantize4(codes[lo/2:hi/2], scales[:(hi-lo)/f.Block], x[lo:hi], f)
		})
		n.run(b, "dequantize", func(lo, hi int) {
			amd64.Dequantize4AVX2(x[lo:hi], codes[lo/2:hi/2], scales[:(hi-lo)/f.Block], f.Block, f.Codebook.Table(), false)
		})
	}
}
