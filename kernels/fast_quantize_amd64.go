//go:build !purego

package kernels

import (
	"math"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// quantizeAVX2 searches in cells, which all tables have but those whose codes do not
// increase with their values or whose thresholds are too close.
func quantizeAVX2(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	cells := f.Codebook.Cells()
	if cells == nil {
		return reference.Quantize(codes, scales, x, f)
	}
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	return amd64.QuantizeAVX2(codes, scales, x, f.Block, f.ScaleDivisor(), 0, cells)
}

// quantizeAVX512 goes by a line where a table's thresholds lie on one, and else searches in
// cells as quantizeAVX2 does.
func quantizeAVX512(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	line, cells := f.Codebook.Line(), f.Codebook.Cells()
	if line == nil && cells == nil {
		return reference.Quantize(codes, scales, x, f)
	}
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	if line != nil {
		return amd64.QuantizeLineAVX512(codes, scales, x, f.Block, f.ScaleDivisor(), 0, line, f.Codebook.Thresholds(), streams(len(x)))
	}
	return amd64.QuantizeCellsAVX512(codes, scales, x, f.Block, f.ScaleDivisor(), 0, cells, streams(len(x)))
}

// dynamicQuantize is the signature of the quantisers of the dynamic maps.
type dynamicQuantize func(codes []uint8, scales, x []float32, block int, divisor, least float32, thresholds *[255]float32, stream bool) int

func (quantize dynamicQuantize) run(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	return quantize(codes, scales, x, f.Block, f.ScaleDivisor(), 0, f.Codebook.Thresholds(), streams(len(x)))
}

func dequantizeAVX2(dst []float32, codes []uint8, scales []float32, f Format) {
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	amd64.DequantizeAVX2(dst, codes, scales, f.Block, f.Codebook.Table())
}

func dequantizeAVX512(dst []float32, codes []uint8, scales []float32, f Format) {
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	amd64.DequantizeAVX512VBMI(dst, codes, scales, f.Block, f.Codebook.Table(), streams(len(dst)))
}

func quantize4AVX2(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	return quantize4(amd64.Quantize4AVX2, f.Codebook.Thresholds(), codes, scales, x, f)
}

// quantize4AVX512 compares numbers with multiples of the thresholds, which must be within
// the range of float32, and does it once for each number where cells tell the threshold.
func quantize4AVX512(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	if cells := f.Codebook.NibbleCells(); cells != nil {
		return quantize4(amd64.Quantize4CellsAVX512, cells, codes, scales, x, f)
	}
	for _, t := range f.Codebook.Thresholds()[:f.Codebook.Len()-1] {
		if size := max(t, -t); !(size >= 0x1p-30) || size > 0x1p20 && size <= math.MaxFloat32 {
			return reference.Quantize(codes, scales, x, f)
		}
	}
	return quantize4(amd64.Quantize4AVX512, f.Codebook.Thresholds(), codes, scales, x, f)
}

// nibbleQuantize is the signature of quantisers to 4 bits that search in a T.
type nibbleQuantize[T any] func(codes []uint8, scales, x []float32, block int, divisor, least float32, search *T, order *[256]uint8, zero uint8, highFirst bool) int

func quantize4[T any](quantize nibbleQuantize[T], search *T, codes []uint8, scales, x []float32, f Format) (poisoned int) {
	if !wholeBytes(f, len(x)) {
		return reference.Quantize(codes, scales, x, f)
	}
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	book := f.Codebook
	return quantize(codes, scales, x, f.Block, f.ScaleDivisor(), 0, search, book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst)
}

func dequantize4AVX2(dst []float32, codes []uint8, scales []float32, f Format) {
	if !wholeBytes(f, len(dst)) {
		reference.Dequantize(dst, codes, scales, f)
		return
	}
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	amd64.Dequantize4AVX2(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst)
}

func dequantize4AVX512(dst []float32, codes []uint8, scales []float32, f Format) {
	if !wholeBytes(f, len(dst)) {
		reference.Dequantize(dst, codes, scales, f)
		return
	}
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	amd64.Dequantize4AVX512(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst, streams(len(dst)))
}

// wholeBytes tells whether every block of 4-bit codes begins with a byte.
func wholeBytes(f Format, n int) bool { return f.Block%2 == 0 || f.Block >= n }
