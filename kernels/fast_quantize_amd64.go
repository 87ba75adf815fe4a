//go:build !purego

package kernels

import (
	"math"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// callElements is the most that one call of an assembly function is given, which cannot be
// preempted. Longer blocks and rows go by parts of a piece.
const callElements = streamPiece

// quantizeCall is a quantiser that takes no magnitude of a block for less than the least.
type quantizeCall func(codes []uint8, scales, x []float32, f Format, least float32) (poisoned int)

// run quantises in one call, unless that took too long.
func (quantize quantizeCall) run(absmax AbsmaxFunc, codes []uint8, scales, x []float32, f Format) (poisoned int) {
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	if len(x) <= callElements || f.Block <= callElements {
		return quantize(codes, scales, x, f, 0)
	}
	for b := range scales {
		lo := b * f.Block
		hi := lo + min(f.Block, len(x)-lo)
		largest := uint32(0) // its bits, which order as magnitudes do, NaN last
		for from := lo; from < hi; from += pieceElements {
			largest = max(largest, math.Float32bits(absmax(x[from:min(from+pieceElements, hi)]))&^(1<<31))
		}
		bad := 0
		for from := lo; from < hi; from += pieceElements {
			to := min(from+pieceElements, hi)
			bad = quantize(codes[f.CodeBytes(from):f.CodeBytes(to)], scales[b:b+1], x[from:to], f, math.Float32frombits(largest))
		}
		poisoned += bad
	}
	return poisoned
}

// dequantizeCall is a dequantiser of blocks of any length.
type dequantizeCall func(dst []float32, codes []uint8, scales []float32, f Format)

func (dequantize dequantizeCall) run(dst []float32, codes []uint8, scales []float32, f Format) {
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	if len(dst) <= callElements || f.Block <= callElements {
		dequantize(dst, codes, scales, f)
		return
	}
	for b := range scales {
		lo := b * f.Block
		hi := lo + min(f.Block, len(dst)-lo)
		for ; lo < hi; lo += pieceElements {
			to := min(lo+pieceElements, hi)
			dequantize(dst[lo:to], codes[f.CodeBytes(lo):f.CodeBytes(to)], scales[b:b+1], f)
		}
	}
}

// byteQuantizers are those of 8-bit tables.
type byteQuantizers struct {
	dynamic8, dynamic8Unsigned, line, cells quantizeCall
	absmax                                  AbsmaxFunc
}

// run finds codes by arithmetic where a table is a dynamic map or its thresholds lie on a
// line, and else in cells, which all tables have but those whose codes do not increase with
// their values or whose thresholds are too close.
func (q *byteQuantizers) run(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	quantize := q.cells
	switch book := f.Codebook; {
	case book == codebook.Dynamic8():
		quantize = q.dynamic8
	case book == codebook.Dynamic8Unsigned():
		quantize = q.dynamic8Unsigned
	case book.Line() != nil:
		quantize = q.line
	case book.Cells() == nil:
		return reference.Quantize(codes, scales, x, f)
	}
	return quantize.run(q.absmax, codes, scales, x, f)
}

var quantizersAVX2 = byteQuantizers{
	dynamic8: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeDynamic8AVX2(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Thresholds())
	},
	dynamic8Unsigned: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeDynamic8UnsignedAVX2(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Thresholds())
	},
	line: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeLineAVX2(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Line(), f.Codebook.Thresholds())
	},
	cells: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeAVX2(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Cells())
	},
	absmax: amd64.AbsmaxAVX2,
}

var quantizersAVX512 = byteQuantizers{
	dynamic8: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeDynamic8AVX512(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Thresholds(), streams(len(x)))
	},
	dynamic8Unsigned: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeDynamic8UnsignedAVX512(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Thresholds(), streams(len(x)))
	},
	line: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeLineAVX512(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Line(), f.Codebook.Thresholds(), streams(len(x)))
	},
	cells: func(codes []uint8, scales, x []float32, f Format, least float32) int {
		return amd64.QuantizeCellsAVX512(codes, scales, x, f.Block, f.ScaleDivisor(), least, f.Codebook.Cells(), streams(len(x)))
	},
	absmax: amd64.AbsmaxAVX512,
}

func quantizeAVX2(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	return quantizersAVX2.run(codes, scales, x, f)
}

func quantizeAVX512(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	return quantizersAVX512.run(codes, scales, x, f)
}

func dequantizeAVX2(dst []float32, codes []uint8, scales []float32, f Format) {
	dequantizeCall(func(dst []float32, codes []uint8, scales []float32, f Format) {
		amd64.DequantizeAVX2(dst, codes, scales, f.Block, f.Codebook.Table())
	}).run(dst, codes, scales, f)
}

func dequantizeAVX512(dst []float32, codes []uint8, scales []float32, f Format) {
	dequantizeCall(func(dst []float32, codes []uint8, scales []float32, f Format) {
		amd64.DequantizeAVX512VBMI(dst, codes, scales, f.Block, f.Codebook.Table(), streams(len(dst)))
	}).run(dst, codes, scales, f)
}

func quantize4AVX2(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	if !wholeBytes(f, len(x)) {
		return reference.Quantize(codes, scales, x, f)
	}
	return quantizeCall(func(codes []uint8, scales, x []float32, f Format, least float32) int {
		book := f.Codebook
		return amd64.Quantize4AVX2(codes, scales, x, f.Block, f.ScaleDivisor(), least, book.Thresholds(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst)
	}).run(amd64.AbsmaxAVX2, codes, scales, x, f)
}

// quantize4AVX512 compares numbers with multiples of the thresholds, which must be within
// the range of float32, and does it once or twice for each number where cells tell the
// thresholds.
func quantize4AVX512(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	quantize := quantizeCall(nibblesAVX512)
	switch {
	case f.Codebook.NibbleCells() != nil:
		quantize = nibbleCellsAVX512
	case f.Codebook.NibbleRanges() != nil:
		quantize = nibbleRangesAVX512
	default:
		for _, t := range f.Codebook.Thresholds()[:f.Codebook.Len()-1] {
			if size := max(t, -t); !(size >= 0x1p-30) || size > 0x1p20 && size <= math.MaxFloat32 {
				return reference.Quantize(codes, scales, x, f)
			}
		}
	}
	if !wholeBytes(f, len(x)) {
		return reference.Quantize(codes, scales, x, f)
	}
	return quantize.run(amd64.AbsmaxAVX512, codes, scales, x, f)
}

func nibbleCellsAVX512(codes []uint8, scales, x []float32, f Format, least float32) int {
	return quantize4(amd64.Quantize4CellsAVX512, f.Codebook.NibbleCells(), codes, scales, x, f, least)
}

func nibbleRangesAVX512(codes []uint8, scales, x []float32, f Format, least float32) int {
	return quantize4(amd64.Quantize4RangesAVX512, f.Codebook.NibbleRanges(), codes, scales, x, f, least)
}

func nibblesAVX512(codes []uint8, scales, x []float32, f Format, least float32) int {
	return quantize4(amd64.Quantize4AVX512, f.Codebook.Thresholds(), codes, scales, x, f, least)
}

// nibbleQuantize is the signature of AVX-512's quantisers to 4 bits, which search in a T.
type nibbleQuantize[T any] func(codes []uint8, scales, x []float32, block int, divisor, least float32, search *T, order *[256]uint8, zero uint8, highFirst, stream bool) int

func quantize4[T any](quantize nibbleQuantize[T], search *T, codes []uint8, scales, x []float32, f Format, least float32) int {
	book := f.Codebook
	return quantize(codes, scales, x, f.Block, f.ScaleDivisor(), least, search, book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst, streams(len(x)))
}

func dequantize4AVX2(dst []float32, codes []uint8, scales []float32, f Format) {
	if !wholeBytes(f, len(dst)) {
		reference.Dequantize(dst, codes, scales, f)
		return
	}
	dequantizeCall(func(dst []float32, codes []uint8, scales []float32, f Format) {
		amd64.Dequantize4AVX2(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst)
	}).run(dst, codes, scales, f)
}

func dequantize4AVX512(dst []float32, codes []uint8, scales []float32, f Format) {
	if !wholeBytes(f, len(dst)) {
		reference.Dequantize(dst, codes, scales, f)
		return
	}
	dequantizeCall(func(dst []float32, codes []uint8, scales []float32, f Format) {
		amd64.Dequantize4AVX512(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst, streams(len(dst)))
	}).run(dst, codes, scales, f)
}

// wholeBytes tells whether every block of 4-bit codes begins with a byte.
func wholeBytes(f Format, n int) bool { return f.Block%2 == 0 || f.Block >= n }
