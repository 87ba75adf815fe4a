//go:build amd64 && !purego

package amd64_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var books8 = []*codebook.Codebook{codebook.Dynamic8(), codebook.Dynamic8Unsigned(), codebook.Linear8()}

var (
	// even has a threshold at zero, and none of its codes is that of zero.
	even = book("even", 256, func(i int) float64 { return float64(2*i-255) / 255 })
	// own is a caller's table with values close to each other in some places.
	own = book("own", 200, func(i int) float64 { return math.Pow(float64(i-100)/100, 3) })
)

func book(name string, n int, value func(i int) float64) *codebook.Codebook {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(value(i))
	}
	c, err := codebook.New(name, values)
	if err != nil {
		panic(err)
	}
	return c
}

type quantizer struct {
	name     string
	needs    cpufeature.Set
	books    []*codebook.Codebook
	quantize func(codes []uint8, scales, x []float32, f reference.Format) int
}

// dynamic are quantisers of one of the dynamic maps.
func dynamic(book *codebook.Codebook, quantize func(codes []uint8, scales, x []float32, block int, divisor, least float32, thresholds *[255]float32, stream bool) int) []quantizer {
	list := []quantizer{}
	for i, name := range []string{"avx512", "avx512-stream"} {
		list = append(list, quantizer{name, cpufeature.AVX512, []*codebook.Codebook{book}, func(codes []uint8, scales, x []float32, f reference.Format) int {
			return quantize(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Thresholds(), i == 1)
		}})
	}
	return list
}

var quantizers = slices.Concat(
	[]quantizer{{"avx2", avx2, books8, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeAVX2(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Cells())
	}}, {"avx2-dynamic", avx2, []*codebook.Codebook{codebook.Dynamic8()}, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeDynamic8AVX2(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Thresholds())
	}}, {"avx2-dynamic", avx2, []*codebook.Codebook{codebook.Dynamic8Unsigned()}, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeDynamic8UnsignedAVX2(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Thresholds())
	}}, {"avx2-line", avx2, []*codebook.Codebook{codebook.Linear8(), even}, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeLineAVX2(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Line(), f.Codebook.Thresholds())
	}}, {"avx512-cells", cpufeature.AVX512, slices.Concat(books8, []*codebook.Codebook{own}), func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeCellsAVX512(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Cells(), false)
	}}, {"avx512-cells-stream", cpufeature.AVX512, books8, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeCellsAVX512(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Cells(), true)
	}}, {"avx512-line", cpufeature.AVX512, []*codebook.Codebook{codebook.Linear8(), even}, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeLineAVX512(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Line(), f.Codebook.Thresholds(), false)
	}}, {"avx512-line-stream", cpufeature.AVX512, []*codebook.Codebook{codebook.Linear8()}, func(codes []uint8, scales, x []float32, f reference.Format) int {
		return amd64.QuantizeLineAVX512(codes, scales, x, f.Block, divisor(f), 0, f.Codebook.Line(), f.Codebook.Thresholds(), true)
	}}},
	dynamic(codebook.Dynamic8(), amd64.QuantizeDynamic8AVX512),
	dynamic(codebook.Dynamic8Unsigned(), amd64.QuantizeDynamic8UnsignedAVX512))

// eachQuantizer runs a test once for each quantiser and each of its codebooks.
func eachQuantizer(t *testing.T, test func(t *testing.T, q quantizer, book *codebook.Codebook)) {
	for _, q := range quantizers {
		for _, book := range q.books {
			t.Run(q.name+"/"+book.Name(), func(t *testing.T) {
				cputest.Need(t, q.needs)
				test(t, q, book)
			})
		}
	}
}

// divisor is what a format divides a block's largest magnitude by.
func divisor(f reference.Format) float32 {
	if lowest := f.Codebook.Table()[f.Codebook.Codes()[0]]; f.Headroom && lowest < 0 {
		return -lowest
	}
	return 1
}

// hardBlock fills a block with what is hard to code: thresholds of the book and values
// around them, at a scale from subnormal to the largest; some blocks are all zero, or
// hold a NaN or an infinity.
func hardBlock(rng *rand.Rand, x []float32, book *codebook.Codebook) {
	scale := float32(math.Ldexp(1+rng.Float64(), rng.IntN(276)-149))
	if rng.IntN(8) == 0 {
		scale = math.MaxFloat32
	}
	thresholds := book.Thresholds()[:book.Len()-1]
	for i := range x {
		var r float32
		switch rng.IntN(4) {
		case 0:
			r = float32(rng.NormFloat64() / 4)
		case 1:
			r = math.Float32frombits(rng.Uint32() & 0xbfffffff)
		case 2:
			r = math.Float32frombits(math.Float32bits(thresholds[rng.IntN(len(thresholds))]) + rng.Uint32N(7) - 3)
		case 3:
			r = book.Values()[rng.IntN(book.Len())]
		}
		x[i] = min(max(r, -1), 1) * scale
	}
	if len(x) == 0 {
		return
	}
	at := rng.IntN(len(x))
	x[at] = scale
	switch rng.IntN(24) {
	case 0:
		clear(x)
	case 1:
		x[at] = float32(math.Copysign(0, -1))
	case 2:
		x[at] = float32(math.NaN())
	case 3:
		x[at] = float32(math.Inf(rng.IntN(2)*2 - 1))
	case 4:
		x[at] = -scale
	}
}

func hardBlocks(rng *rand.Rand, x []float32, f reference.Format) {
	for lo := 0; lo < len(x); lo += f.Block {
		hardBlock(rng, x[lo:min(lo+f.Block, len(x))], f.Codebook)
	}
}

func checkQuantize(t *testing.T, f reference.Format, codes []uint8, scales, x []float32, quantize func() int) {
	t.Helper()
	wantCodes, wantScales := make([]uint8, len(codes)), make([]float32, len(scales))
	want := reference.Quantize(wantCodes, wantScales, x, f)
	if got := quantize(); got != want {
		t.Fatalf("%s, %d in blocks of %d: %d blocks poisoned, want %d", f.Codebook.Name(), len(x), f.Block, got, want)
	}
	for b := range scales {
		if math.Float32bits(scales[b]) != math.Float32bits(wantScales[b]) {
			t.Fatalf("%s, %d in blocks of %d: scale %d is %x, want %x", f.Codebook.Name(), len(x), f.Block, b, math.Float32bits(scales[b]), math.Float32bits(wantScales[b]))
		}
	}
	if !slices.Equal(codes, wantCodes) {
		for i, code := range codes {
			if code != wantCodes[i] {
				t.Fatalf("%s, %d in blocks of %d: byte %d is %02x, want %02x", f.Codebook.Name(), len(x), f.Block, i, code, wantCodes[i])
			}
		}
	}
}

var blockSizes = []int{1, 3, 7, 8, 31, 32, 33, 64, 100, 128, 256, 1000, 1 << 40}

func TestQuantize(t *testing.T) {
	eachQuantizer(t, func(t *testing.T, q quantizer, book *codebook.Codebook) {
		rng := rand.New(rand.NewPCG(1, 1))
		codes, values, scales := testmem.New[uint8](t, 300), testmem.New[float32](t, 300), testmem.New[float32](t, 300)
		for _, block := range blockSizes {
			f := reference.Format{Codebook: book, Block: block, Headroom: block%2 == 1}
			for _, n := range lengths {
				scales := scales.AtEnd(f.Scales(n))
				everywhere(t, codes, values, n, func(codes []uint8, x []float32) {
					hardBlocks(rng, x, f)
					checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
				})
			}
		}
	})
}

func TestQuantizeRandomBlocks(t *testing.T) {
	eachQuantizer(t, func(t *testing.T, q quantizer, book *codebook.Codebook) {
		rng := rand.New(rand.NewPCG(2, 2))
		x, codes := make([]float32, 5000), make([]uint8, 5000)
		for trial := range trials(40, 40000) {
			f := reference.Format{Codebook: book, Block: 128 << (trial % 3), Headroom: trial%2 == 1}
			scales := make([]float32, f.Scales(len(x)))
			hardBlocks(rng, x, f)
			checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
		}
	})
}

// aroundSeveral calls f with lengths around several blocks, which are done at a time.
func aroundSeveral(f func(block, n int)) {
	for _, block := range []int{64, 192, 512, 576} {
		for _, n := range []int{4*block - 1, 4 * block, 4*block + 1, 8*block - 1, 8 * block, 8*block + 1, 9*block + 5} {
			f(block, n)
		}
	}
}

const severalBlocks = 9*576 + 5

func TestQuantizeSeveralBlocks(t *testing.T) {
	eachQuantizer(t, func(t *testing.T, q quantizer, book *codebook.Codebook) {
		rng := rand.New(rand.NewPCG(1, 2))
		codes, values, scales := testmem.New[uint8](t, severalBlocks), testmem.New[float32](t, severalBlocks), testmem.New[float32](t, 300)
		aroundSeveral(func(block, n int) {
			f := reference.Format{Codebook: book, Block: block, Headroom: n%3 == 1}
			scales := scales.AtEnd(f.Scales(n))
			everywhere(t, codes, values, n, func(codes []uint8, x []float32) {
				hardBlocks(rng, x, f)
				checkQuantize(t, f, codes, scales, x, func() int { return q.quantize(codes, scales, x, f) })
			})
		})
	})
}

func TestQuantizeEveryPattern(t *testing.T) {
	eachQuantizer(t, func(t *testing.T, q quantizer, book *codebook.Codebook) {
		codes, scales := make([]uint8, patternElements), make([]float32, patternElements)
		for _, block := range patternBlocks {
			f := reference.Format{Codebook: book, Block: block}
			everyPattern(t, f, codes, func(x []float32) { q.quantize(codes, scales[:f.Scales(len(x))], x, f) })
		}
	})
}

const patternElements = 1 << 12

// patternBlocks are of such a length that they are done one at a time, and several at a time.
var patternBlocks = []int{patternElements, 512}

// everyPattern quantises all numbers from 0 to 1, then to -1, in blocks that begin with 1.
// Where the first and the last of the others have one code, all bytes of a block's codes are
// the same.
func everyPattern(t *testing.T, f reference.Format, codes []uint8, quantize func(x []float32)) {
	t.Helper()
	x, thresholds, step := make([]float32, patternElements), f.Codebook.Thresholds(), stride()
	for sign := range uint32(2) {
		below := 0 // thresholds below the last number
		index := func(v float32) int {
			for below < 255 && thresholds[below] < v {
				below++
			}
			for below > 0 && !(thresholds[below-1] < v) {
				below--
			}
			return below
		}
		for bits := uint64(0); bits <= 0x3f800000; {
			for i := range x {
				if x[i] = 1; i%f.Block != 0 {
					x[i] = math.Float32frombits(sign<<31 | uint32(min(bits, 0x3f800000)))
					bits += step
				}
			}
			quantize(x)
			for lo := 0; lo < len(x); lo += f.Block {
				code := func(i int) uint8 { return f.Get(codes, lo+i) }
				its := codes[f.CodeBytes(lo):f.CodeBytes(lo+f.Block)]
				first, last := index(x[lo+1]), index(x[lo+f.Block-1])
				want := f.Codebook.Codes()[first]
				if first == last && code(1) == want && code(2) == want && code(3) == want && bytes.Equal(its[1:len(its)-1], its[2:]) {
					continue
				}
				for i := 1; i < f.Block; i++ {
					if want := f.Codebook.Codes()[index(x[lo+i])]; code(i) != want {
						t.Fatalf("%s: %08x has code %d, want %d", f.Codebook.Name(), math.Float32bits(x[lo+i]), code(i), want)
					}
				}
			}
		}
	}
}

func TestQuantizeThresholdsAtManyScales(t *testing.T) {
	eachQuantizer(t, func(t *testing.T, q quantizer, book *codebook.Codebook) {
		codes, scales := make([]uint8, 1<<11), make([]float32, 1)
		thresholdsAtManyScales(t, book, func(x []float32) {
			q.quantize(codes[:len(x)], scales, x, reference.Format{Codebook: book, Block: len(x)})
		}, func(i int) uint8 { return codes[i] })
	})
}

// thresholdsAtManyScales quantises what is at most three float32 numbers off the products of
// thresholds and random scales.
func thresholdsAtManyScales(t *testing.T, book *codebook.Codebook, quantize func(x []float32), code func(i int) uint8) {
	t.Helper()
	rng := rand.New(rand.NewPCG(2, 3))
	thresholds := book.Thresholds()[:book.Len()-1]
	x, near := []float32{}, []int{}
	for range trials(500, 1<<20) {
		scale := float32(math.Ldexp(1+rng.Float64(), rng.IntN(240)-120))
		x, near = append(x[:0], scale), append(near[:0], len(thresholds))
		for i, threshold := range thresholds {
			bits := math.Float32bits(threshold * scale)
			for off := range uint32(7) {
				if v := math.Float32frombits(bits + off - 3); v >= -scale && v <= scale {
					x, near = append(x, v), append(near, i)
				}
			}
		}
		quantize(x)
		for i, v := range x {
			below, r := near[i], v/scale
			for below < len(thresholds) && thresholds[below] < r {
				below++
			}
			for below > 0 && !(thresholds[below-1] < r) {
				below--
			}
			if want := book.Codes()[below]; code(i) != want {
				t.Fatalf("%s: %x in a block of scale %x has code %d, want %d", book.Name(), v, scale, code(i), want)
			}
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	for _, n := range sizes {
		x, codes, scales := noise(n.elements), make([]uint8, n.elements), make([]float32, n.elements/64)
		for _, q := range quantizers {
			for _, book := range q.books {
				for _, block := range []int{128, 256} {
					f := reference.Format{Codebook: book, Block: block}
					n.run(b, q.name+"/"+book.Name()+"/"+strconv.Itoa(block), func(lo, hi int) {
						q.quantize(codes[lo:hi], scales[:(hi-lo)/block], x[lo:hi], f)
					})
				}
			}
		}
	}
}
