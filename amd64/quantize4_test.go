//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var (
	books4      = []*codebook.Codebook{codebook.NF4(), codebook.FP4(), codebook.DE4(), codebook.Linear4(), halves(), far()}
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

// far has the least and the largest thresholds that all implementations take.
func far() *codebook.Codebook {
	book, err := codebook.New("far", []float32{-0x1p21, -0x1p-29, 0x1p-28, 1})
	if err != nil {
		panic(err)
	}
	return book
}

// books are those that the quantiser takes.
func (q quantizer4) books() []*codebook.Codebook {
	return slices.DeleteFunc(slices.Clone(books4), func(book *codebook.Codebook) bool { return !q.takes(book) })
}

func anyBook(*codebook.Codebook) bool         { return true }
func withCells(book *codebook.Codebook) bool  { return book.NibbleCells() != nil }
func withRanges(book *codebook.Codebook) bool { return book.NibbleRanges() != nil }

func (q quantizer4) formats(block int, f func(reference.Format)) {
	for _, book := range q.books() {
		for _, order := range []codebook.Nibble{codebook.LowFirst, codebook.HighFirst} {
			f(reference.Format{Codebook: book, Block: block, Nibble: order, Headroom: block%3 == 1})
		}
	}
}

type quantizer4 struct {
	name       string
	needs      cpufeature.Set
	quantize   func(codes []uint8, scales, x []float32, f reference.Format) int
	takes      func(*codebook.Codebook) bool
	dequantize func(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32, highFirst bool)
}

var quantizers4 = []quantizer4{
	{"avx2", avx2, inAVX2, anyBook, amd64.Dequantize4AVX2},
	{"avx512", cpufeature.AVX512, bisect(false), anyBook, dequantize4AVX512(false)},
	{"avx512-stream", cpufeature.AVX512, bisect(true), anyBook, dequantize4AVX512(true)},
	{"avx512-cells", cpufeature.AVX512, inCells(false), withCells, dequantize4AVX512(false)},
	{"avx512-cells-stream", cpufeature.AVX512, inCells(true), withCells, dequantize4AVX512(true)},
	{"avx512-ranges", cpufeature.AVX512, inRanges(false), withRanges, dequantize4AVX512(false)},
	{"avx512-ranges-stream", cpufeature.AVX512, inRanges(true), withRanges, dequantize4AVX512(true)},
}

func dequantize4AVX512(stream bool) func(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32, highFirst bool) {
	return func(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32, highFirst bool) {
		amd64.Dequantize4AVX512(dst, codes, scales, block, table, highFirst, stream)
	}
}

func eachQuantizer4(t *testing.T, test func(t *testing.T, q quantizer4)) {
	for _, q := range quantizers4 {
		t.Run(q.name, func(t *testing.T) {
			cputest.Need(t, q.needs)
			test(t, q)
		})
	}
}

func inAVX2(codes []uint8, scales, x []float32, f reference.Format) int {
	book := f.Codebook
	return amd64.Quantize4AVX2(codes, scales, x, f.Block, divisor(f), 0, book.Thresholds(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst)
}

func bisect(stream bool) func(codes []uint8, scales, x []float32, f reference.Format) int {
	return func(codes []uint8, scales, x []float32, f reference.Format) int {
		book := f.Codebook
		return amd64.Quantize4AVX512(codes, scales, x, f.Block, divisor(f), 0, book.Thresholds(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst, stream)
	}
}

func inCells(stream bool) func(codes []uint8, scales, x []float32, f reference.Format) int {
	return func(codes []uint8, scales, x []float32, f reference.Format) int {
		book := f.Codebook
		return amd64.Quantize4CellsAVX512(codes, scales, x, f.Block, divisor(f), 0, book.NibbleCells(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst, stream)
	}
}

func inRanges(stream bool) func(codes []uint8, scales, x []float32, f reference.Format) int {
	return func(codes []uint8, scales, x []float32, f reference.Format) int {
		book := f.Codebook
		return amd64.Quantize4RangesAVX512(codes, scales, x, f.Block, divisor(f), 0, book.NibbleRanges(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst, stream)
	}
}

func TestQuantize4(t *testing.T) {
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		rng := rand.New(rand.NewPCG(4, 1))
		codes, values, scales := testmem.New[uint8](t, 300), testmem.New[float32](t, 300), testmem.New[float32](t, 300)
		for _, block := range blockSizes4 {
			q.formats(block, func(f reference.Format) {
				for _, n := range lengths {
					place := rng.IntN(places)
					x, codes, scales := placed(values, n, place, 4), placed(codes, f.CodeBytes(n), (place+5)%places, 1), placed(scales, f.Scales(n), (place+9)%places, 4)
					hardBlocks(rng, x, f)
					checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
				}
				codes.Check()
				scales.Check()
				values.Check()
			})
		}
	})
}

func TestQuantize4SeveralBlocks(t *testing.T) {
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		rng := rand.New(rand.NewPCG(4, 5))
		codes, values, scales := testmem.New[uint8](t, severalBlocks), testmem.New[float32](t, severalBlocks), testmem.New[float32](t, 300)
		aroundSeveral(func(block, n int) {
			q.formats(block, func(f reference.Format) {
				place := rng.IntN(places)
				x, codes, scales := placed(values, n, place, 4), placed(codes, f.CodeBytes(n), (place+5)%places, 1), placed(scales, f.Scales(n), (place+9)%places, 4)
				hardBlocks(rng, x, f)
				checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
			})
			codes.Check()
			scales.Check()
			values.Check()
		})
	})
}

func TestQuantize4RandomBlocks(t *testing.T) {
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		rng := rand.New(rand.NewPCG(4, 2))
		x, codes := make([]float32, 5000), make([]uint8, 2500)
		for trial := range trials(10, 10_000) {
			q.formats(32<<(trial%3), func(f reference.Format) {
				scales := make([]float32, f.Scales(len(x)))
				hardBlocks(rng, x, f)
				checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
			})
		}
	})
}

func TestQuantize4EveryPattern(t *testing.T) {
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		codes, scales := make([]uint8, patternElements/2), make([]float32, patternElements)
		for _, book := range q.books() {
			for _, block := range patternBlocks {
				f := reference.Format{Codebook: book, Block: block}
				everyPattern(t, f, codes, func(x []float32) { q.quantize(codes, scales[:f.Scales(len(x))], x, f) })
			}
		}
	})
}

func TestQuantize4ThresholdsAtManyScales(t *testing.T) {
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		codes, scales := make([]uint8, 1<<10), make([]float32, 1)
		for _, book := range q.books() {
			f := reference.Format{Codebook: book, Block: 1 << 20}
			thresholdsAtManyScales(t, book, func(x []float32) { q.quantize(codes[:f.CodeBytes(len(x))], scales, x, f) },
				func(i int) uint8 { return f.Get(codes, i) })
		}
	})
}

func TestDequantize4(t *testing.T) {
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		rng := rand.New(rand.NewPCG(4, 3))
		values, codes, scales := testmem.New[float32](t, 5000), testmem.New[uint8](t, 5000), testmem.New[float32](t, 5000)
		for _, block := range blockSizes4 {
			q.formats(block, func(f reference.Format) {
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
					q.dequantize(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst)
					reference.Dequantize(want, codes, scales, f)
					checkSame(t, "dequantize", f, dst, want)
					values.Check()
				}
			})
		}
	})
}

// TestScalesThatRoundToZero: a divisor above 1 can leave nothing of a small magnitude.
func TestScalesThatRoundToZero(t *testing.T) {
	book, err := codebook.New("wide", []float32{-8, -0.5, 0.5, 1})
	if err != nil {
		t.Fatal(err)
	}
	eachQuantizer4(t, func(t *testing.T, q quantizer4) {
		if !q.takes(book) {
			return
		}
		for bits := range uint32(40) {
			f := reference.Format{Codebook: book, Block: 64, Headroom: true}
			x := make([]float32, 70)
			x[3], x[66] = math.Float32frombits(bits), -math.Float32frombits(bits)
			codes, scales := make([]uint8, 35), make([]float32, 2)
			checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
		}
	})
}

func BenchmarkQuantize4(b *testing.B) {
	for _, n := range sizes {
		x, codes, scales := noise(n.elements), make([]uint8, n.elements/2), make([]float32, n.elements/64)
		for _, q := range quantizers4 {
			for _, book := range q.books() {
				for _, order := range []codebook.Nibble{codebook.LowFirst, codebook.HighFirst} {
					f := reference.Format{Codebook: book, Block: 64, Nibble: order}
					n.run(b, "quantize/"+q.name+"/"+book.Name()+"/"+order.String(), func(lo, hi int) {
						q.quantize(codes[lo/2:hi/2], scales[:(hi-lo)/f.Block], x[lo:hi], f)
					})
				}
			}
			n.run(b, "dequantize/"+q.name, func(lo, hi int) {
				q.dequantize(x[lo:hi], codes[lo/2:hi/2], scales[:(hi-lo)/64], 64, codebook.NF4().Table(), false)
			})
		}
	}
}
