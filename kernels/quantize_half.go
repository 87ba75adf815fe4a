package kernels

import (
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/float16"
)

// QuantizeBF16 is Quantize of bf16 numbers, whose values are exact in float32.
func QuantizeBF16[B ~uint16](codes []uint8, scales []float32, x []B, f Format, limit ...Threads) (poisoned int64, err error) {
	return quantizeHalves(codes, scales, uint16Slice(x), f, &bf16Halves, limit)
}

// QuantizeFloat16 is Quantize of IEEE binary16 numbers, whose values are exact in float32.
func QuantizeFloat16[H ~uint16](codes []uint8, scales []float32, x []H, f Format, limit ...Threads) (poisoned int64, err error) {
	return quantizeHalves(codes, scales, uint16Slice(x), f, &float16Halves, limit)
}

// DequantizeBF16 is Dequantize with each result rounded to bf16, to nearest with ties to
// even.
func DequantizeBF16[B ~uint16](dst []B, codes []uint8, scales []float32, f Format, limit ...Threads) error {
	return dequantizeHalves(uint16Slice(dst), codes, scales, f, &bf16Halves, limit)
}

// DequantizeFloat16 is Dequantize with each result rounded to IEEE binary16, to nearest
// with ties to even.
func DequantizeFloat16[H ~uint16](dst []H, codes []uint8, scales []float32, f Format, limit ...Threads) error {
	return dequantizeHalves(uint16Slice(dst), codes, scales, f, &float16Halves, limit)
}

// halves converts a format of 16 bits.
type halves struct {
	widen func(dst []float32, src []uint16)
	round func(dst []uint16, src []float32)
}

var (
	bf16Halves = halves{
		func(dst []float32, src []uint16) { OpWiden.run(dst, bf16Slice(src)) },
		func(dst []uint16, src []float32) { OpRound.run(bf16Slice(dst), src) },
	}
	float16Halves = halves{
		func(dst []float32, src []uint16) {
			for i, h := range src {
				dst[i] = float16.ToFloat32(h)
			}
		},
		func(dst []uint16, src []float32) {
			for i, x := range src {
				dst[i] = float16.FromFloat32(x)
			}
		},
	}
)

func uint16Slice[B ~uint16](x []B) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func quantizeHalves(codes []uint8, scales []float32, x []uint16, f Format, h *halves, limit []Threads) (poisoned int64, err error) {
	if err := checkFormat("quantize", codes, scales, len(x), f); err != nil {
		return 0, err
	}
	if err := disjoint("quantize", spanOf("codes", codes), spanOf("scales", scales), spanOf("x", x)); err != nil {
		return 0, err
	}
	args := halvesArgs{codes: codes, scales: scales, x: x, f: f, halves: h, quantize: OpQuantize(f.Codebook).run}
	return halvesSplit.run(args, len(x), pieceAlign(f), limit).SkippedBlocks, nil
}

func dequantizeHalves(dst []uint16, codes []uint8, scales []float32, f Format, h *halves, limit []Threads) error {
	if err := checkFormat("dequantize", codes, scales, len(dst), f); err != nil {
		return err
	}
	if err := disjoint("dequantize", spanOf("dst", dst), spanOf("codes", codes), spanOf("scales", scales)); err != nil {
		return err
	}
	args := halvesArgs{codes: codes, scales: scales, x: dst, f: f, halves: h, dequantize: OpDequantize(f.Codebook).run}
	halvesSplit.run(args, len(dst), pieceAlign(f), limit)
	return nil
}

type halvesArgs struct {
	codes  []uint8
	scales []float32
	x      []uint16
	f      Format
	*halves
	quantize   QuantizeFunc // one of the two
	dequantize DequantizeFunc
}

// halvesPart is how many numbers are float32 at a time, unless a block is longer: they fit
// the first-level cache.
const halvesPart = 4096

var halvesWork = sync.Pool{New: func() any { return new([halvesPart]float32) }}

var halvesSplit = split(func(a *halvesArgs, lo, hi int) (c Counts) {
	work := halvesWork.Get().(*[halvesPart]float32)
	wide, align := work[:], pieceAlign(a.f)
	size := halvesPart / align * align
	if size == 0 {
		size = align
		wide = make([]float32, min(align, hi-lo))
	}
	for ; lo < hi; lo += size {
		end := lo + min(size, hi-lo)
		part, x := wide[:end-lo], a.x[lo:end]
		codes, scales := cut(a.codes, a.scales, a.f, lo, end)
		if a.quantize != nil {
			a.widen(part, x)
			c.SkippedBlocks += int64(a.quantize(codes, scales, part, a.f))
		} else {
			a.dequantize(part, codes, scales, a.f)
			a.round(x, part)
		}
	}
	halvesWork.Put(work)
	return c
})
