package kernels

import (
	"math"
	"sync"
	"unsafe"
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
		func(dst []float32, src []uint16) { OpWidenFloat16.run(dst, src) },
		func(dst []uint16, src []float32) { OpRoundFloat16.run(dst, src) },
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

// halvesPart is how many numbers are float32 at a time: they fit the first-level cache.
const halvesPart = 4096

// halvesScratch has room for a part, and for one number more.
type halvesScratch struct {
	wide  [halvesPart + 1]float32
	codes [halvesPart + 1]uint8
	scale [1]float32
}

var halvesWork = sync.Pool{New: func() any { return new(halvesScratch) }}

var halvesSplit = split(func(a *halvesArgs, lo, hi int) (c Counts) {
	work := halvesWork.Get().(*halvesScratch)
	align := pieceAlign(a.f)
	size := halvesPart / align * align
	switch {
	case size > 0:
		c.SkippedBlocks = a.blocks(work, lo, hi, size)
	case a.quantize != nil:
		c.SkippedBlocks = a.quantizeParts(work, lo, hi)
	default:
		a.dequantizeParts(work, lo, hi)
	}
	halvesWork.Put(work)
	return c
})

// blocks does some blocks at a time.
func (a *halvesArgs) blocks(work *halvesScratch, lo, hi, size int) (poisoned int64) {
	for ; lo < hi; lo += size {
		end := lo + min(size, hi-lo)
		wide, x := work.wide[:end-lo], a.x[lo:end]
		codes, scales := cut(a.codes, a.scales, a.f, lo, end)
		if a.quantize != nil {
			a.widen(wide, x)
			poisoned += int64(a.quantize(codes, scales, wide, a.f))
		} else {
			a.dequantize(wide, codes, scales, a.f)
			a.round(x, wide)
		}
	}
	return poisoned
}

// quantizeParts does a part of a block at a time, as a block of its own, of which the last
// number is the largest magnitude of the whole block.
func (a *halvesArgs) quantizeParts(work *halvesScratch, lo, hi int) (poisoned int64) {
	for lo < hi {
		end := lo + min(a.f.Block, hi-lo)
		largest, bad := a.largest(work, lo, end), 0
		scale := &a.scales[lo/a.f.Block]
		for ; lo < end; lo += halvesPart {
			n := min(halvesPart, end-lo)
			a.widen(work.wide[:n], a.x[lo:lo+n])
			work.wide[n] = largest
			f := a.f
			f.Block = n + 1
			bad = a.quantize(work.codes[:f.CodeBytes(n+1)], work.scale[:], work.wide[:n+1], f)
			*scale = work.scale[0]
			copyCodes(f, a.codes, lo, work.codes[:], 0, n)
		}
		lo = end
		poisoned += int64(bad)
	}
	if zero := a.f.Codebook.Zero(); a.f.Codebook.Bits() == 4 && hi == len(a.x) && hi%2 == 1 {
		a.f.Nibble.Put(a.codes, hi, zero)
	}
	return poisoned
}

// largest is the largest magnitude of elements lo to hi-1, NaN if there is one.
func (a *halvesArgs) largest(work *halvesScratch, lo, hi int) float32 {
	bits := uint32(0) // which order as magnitudes do, NaN last
	for ; lo < hi; lo += halvesPart {
		wide := work.wide[:min(halvesPart, hi-lo)]
		a.widen(wide, a.x[lo:lo+len(wide)])
		bits = max(bits, math.Float32bits(OpAbsmax.run(wide))&^(1<<31))
	}
	return math.Float32frombits(bits)
}

func (a *halvesArgs) dequantizeParts(work *halvesScratch, lo, hi int) {
	for lo < hi {
		end := lo + min(a.f.Block, hi-lo)
		work.scale[0] = a.scales[lo/a.f.Block]
		for ; lo < end; lo += halvesPart {
			n := min(halvesPart, end-lo)
			f := a.f
			f.Block = n
			copyCodes(f, work.codes[:], 0, a.codes, lo, n)
			a.dequantize(work.wide[:n], work.codes[:f.CodeBytes(n)], work.scale[:], f)
			a.round(a.x[lo:lo+n], work.wide[:n])
		}
		lo = end
	}
}

// copyCodes copies n codes from one position to another, one of which is 0.
func copyCodes(f Format, dst []uint8, to int, src []uint8, from, n int) {
	if f.Codebook.Bits() == 8 {
		copy(dst[to:to+n], src[from:])
		return
	}
	whole := 0
	if to%2 == from%2 {
		whole = n &^ 1
		copy(dst[to/2:(to+whole)/2], src[from/2:])
	}
	for i := whole; i < n; i++ {
		f.Nibble.Put(dst, to+i, f.Nibble.Get(src, from+i))
	}
}
