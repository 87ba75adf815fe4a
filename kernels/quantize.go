package kernels

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// QuantizeFunc is the signature of the quantize rows. It returns the number of blocks
// that are not finite.
type QuantizeFunc func(codes []uint8, scales, x []float32, f Format) (poisoned int)

// DequantizeFunc is the signature of the dequantize rows.
type DequantizeFunc func(dst []float32, codes []uint8, scales []float32, f Format)

var (
	OpQuantizeDynamic8         = declareQuantize("dynamic8", 1, fast.quantizeDynamic8)
	OpQuantizeDynamic8Unsigned = declareQuantize("dynamic8u", 1, fast.quantizeDynamic8Unsigned)
	OpQuantize8                = declareQuantize("8bit", 1, fast.quantize8) // any table of up to 256 values
	OpQuantize4                = declareQuantize("4bit", 0.5, fast.quantize4)
	OpDequantize8              = declareDequantize("8bit", 1, fast.dequantize8)
	OpDequantize4              = declareDequantize("4bit", 0.5, fast.dequantize4)
)

func declareQuantize(variant string, code float64, fast []Impl[QuantizeFunc]) *Op[QuantizeFunc] {
	streams := Streams{Read: []float64{4}, Write: []float64{code}}
	return declare(Op[QuantizeFunc]{Name: "quantize", Variant: variant, Streams: streams}, reference.Quantize, fast)
}

func declareDequantize(variant string, code float64, fast []Impl[DequantizeFunc]) *Op[DequantizeFunc] {
	streams := Streams{Read: []float64{code}, Write: []float64{4}}
	return declare(Op[DequantizeFunc]{Name: "dequantize", Variant: variant, Streams: streams}, reference.Dequantize, fast)
}

// OpQuantize is the row that quantises to a codebook.
func OpQuantize(book *codebook.Codebook) *Op[QuantizeFunc] {
	switch {
	case book.Bits() == 4:
		return OpQuantize4
	case book == codebook.Dynamic8():
		return OpQuantizeDynamic8
	case book == codebook.Dynamic8Unsigned():
		return OpQuantizeDynamic8Unsigned
	default:
		return OpQuantize8
	}
}

// OpDequantize is the row that dequantises from a codebook.
func OpDequantize(book *codebook.Codebook) *Op[DequantizeFunc] {
	if book.Bits() == 4 {
		return OpDequantize4
	}
	return OpDequantize8
}

// Quantize codes x in blocks of f.Block consecutive elements, the last of which may be
// shorter. A block's scale is its largest magnitude, stored as it is, and each code is
// that of the codebook value nearest to x/scale, the lower one at a midpoint. codes has
// f.CodeBytes(len(x)) bytes and scales f.Scales(len(x)) numbers.
//
// A codebook without negative values, such as dynamic8u, codes them as its lowest value.
//
// A block of zeros has scale 0 and decodes to zeros. A block with a NaN or an infinity
// is poisoned: its scale is NaN, and so is all that it decodes to; the result counts
// such blocks. Others are not affected.
//
// The method is that of Dettmers et al., "8-bit Optimizers via Block-wise Quantization"
// (2022), with exact division and search.
func Quantize(codes []uint8, scales, x []float32, f Format, limit ...Threads) (poisoned int64, err error) {
	if err := checkFormat("quantize", codes, scales, len(x), f); err != nil {
		return 0, err
	}
	if err := disjoint("quantize", spanOf("codes", codes), spanOf("scales", scales), spanOf("x", x)); err != nil {
		return 0, err
	}
	counts := quantizeSplit.run(quantizeArgs{codes, scales, x, f, OpQuantize(f.Codebook).run}, len(x), streamBlocks(f, len(x)), limit)
	return counts.SkippedBlocks, nil
}

// Dequantize sets dst to the codebook value of each code times its block's scale, rounded
// once. Sizes are as for Quantize: of len(dst) elements. Codes that the codebook does not
// have decode to NaN.
func Dequantize(dst []float32, codes []uint8, scales []float32, f Format, limit ...Threads) error {
	if err := checkFormat("dequantize", codes, scales, len(dst), f); err != nil {
		return err
	}
	if err := disjoint("dequantize", spanOf("dst", dst), spanOf("codes", codes), spanOf("scales", scales)); err != nil {
		return err
	}
	dequantizeSplit.run(dequantizeArgs{dst, codes, scales, f, OpDequantize(f.Codebook).run}, len(dst), streamBlocks(f, len(dst)), limit)
	return nil
}

type quantizeArgs struct {
	codes     []uint8
	scales, x []float32
	f         Format
	run       QuantizeFunc
}

var quantizeSplit = split(func(a *quantizeArgs, lo, hi int) Counts {
	codes, scales := cut(a.codes, a.scales, a.f, lo, hi)
	return Counts{SkippedBlocks: int64(a.run(codes, scales, a.x[lo:hi], a.f))}
})

type dequantizeArgs struct {
	dst    []float32
	codes  []uint8
	scales []float32
	f      Format
	run    DequantizeFunc
}

var dequantizeSplit = split(func(a *dequantizeArgs, lo, hi int) Counts {
	codes, scales := cut(a.codes, a.scales, a.f, lo, hi)
	a.run(a.dst[lo:hi], codes, scales, a.f)
	return Counts{}
})

// cut returns the codes and scales of elements lo to hi-1, where lo is aligned.
func cut(codes []uint8, scales []float32, f Format, lo, hi int) ([]uint8, []float32) {
	return codes[f.CodeBytes(lo):f.CodeBytes(hi)], scales[f.Scales(lo):f.Scales(hi)]
}

// pieceAlign is the least number of elements after which a block and a byte begin.
func pieceAlign(f Format) int {
	if f.Codebook.Bits() == 4 && f.Block%2 == 1 && f.Block <= math.MaxInt/2 {
		return 2 * f.Block
	}
	return f.Block // larger than any slice where twice it would overflow
}

// streamBlocks is the alignment of the pieces of n elements.
func streamBlocks(f Format, n int) int {
	if stream := streamAlign(n); stream%pieceAlign(f) == 0 {
		return stream
	}
	return pieceAlign(f)
}

func checkFormat(op string, codes []uint8, scales []float32, n int, f Format) error {
	if f.Codebook == nil {
		return fmt.Errorf("%s: the format has no codebook", op)
	}
	if f.Block < 1 {
		return fmt.Errorf("%s: the block size is %d, want 1 or more", op, f.Block)
	}
	if f.Nibble > codebook.HighFirst {
		return fmt.Errorf("%s: the nibble order is %d, want LowFirst or HighFirst", op, f.Nibble)
	}
	if want := f.CodeBytes(n); len(codes) != want {
		return lengthError(op, "codes", len(codes), want, fmt.Sprintf("for %d elements of %s", n, f.Codebook.Name()))
	}
	if want := f.Scales(n); len(scales) != want {
		return lengthError(op, "scales", len(scales), want, fmt.Sprintf("for %d elements in blocks of %d", n, f.Block))
	}
	return nil
}
