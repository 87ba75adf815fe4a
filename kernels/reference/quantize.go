package reference

import (
	"math"

	"github.com/lowbit-go/lowbit/codebook"
)

// Format is a blockwise quantised format.
type Format struct {
	Codebook *codebook.Codebook
	Block    int             // consecutive elements that share a scale; the last block may be shorter
	Nibble   codebook.Nibble // the order of 4-bit codes in a byte
	// Headroom makes the scale so large that an extreme of either sign keeps its value
	// when a block is requantised: for signed tables whose lowest value is above -1.
	Headroom bool
}

// Scales is the number of scales of n elements: one a block, also of a shorter last one.
// Block must be 1 or more.
func (f Format) Scales(n int) int {
	if f.Block <= 0 {
		return 0 // which Quantize refuses
	}
	full := n / f.Block
	if n%f.Block != 0 {
		full++
	}
	return full
}

// CodeBytes is the number of bytes that the codes of n elements take: n, or half of it,
// rounded up, for codes of 4 bits. Codebook must be set.
func (f Format) CodeBytes(n int) int {
	if f.Codebook != nil && f.Codebook.Bits() == 4 {
		return n/2 + n%2
	}
	return n
}

// Get returns the code of element i.
func (f Format) Get(codes []uint8, i int) uint8 {
	if f.Codebook.Bits() == 4 {
		return f.Nibble.Get(codes, i)
	}
	return codes[i]
}

func (f Format) put(codes []uint8, i int, code uint8) {
	if f.Codebook.Bits() == 4 {
		f.Nibble.Put(codes, i, code)
	} else {
		codes[i] = code
	}
}

// fillSpare sets the unused half of the last byte of an odd number of 4-bit codes.
func (f Format) fillSpare(codes []uint8, n int) {
	if f.Codebook.Bits() == 4 && n%2 == 1 {
		f.Nibble.Put(codes, n, f.Codebook.Zero())
	}
}

var poison = math.Float32frombits(0x7fc00000)

// Quantize codes x block by block. A block's scale is its largest magnitude, and an
// element's code is that of the value nearest to x/scale. A block of zeros has scale 0
// and the code of zero throughout; one with a NaN or an infinity has a NaN scale and the
// code of zero throughout, and is counted in the result.
func Quantize(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	for block := range scales {
		lo := block * f.Block
		values := x[lo : lo+min(f.Block, len(x)-lo)]
		scale := f.scale(Absmax(values))
		if !finite(scale) {
			poisoned++
		}
		scales[block] = scale
		for i, v := range values {
			f.put(codes, lo+i, f.encode(v, scale))
		}
	}
	f.fillSpare(codes, len(x))
	return poisoned
}

// scale is the stored scale of a block, given its largest magnitude.
func (f Format) scale(largest float32) float32 {
	if !finite(largest) {
		return poison
	}
	if scale := largest / f.ScaleDivisor(); finite(scale) {
		return scale
	}
	return largest
}

// ScaleDivisor divides the largest magnitude of a block to make its scale: 1, or with
// headroom the magnitude of the lowest value. A scale that would not be finite is not
// divided.
func (f Format) ScaleDivisor() float32 {
	if lowest := f.Codebook.Table()[f.Codebook.Codes()[0]]; f.Headroom && lowest < 0 {
		return -lowest
	}
	return 1
}

func (f Format) encode(x, scale float32) uint8 {
	if scale == 0 || !finite(scale) {
		return f.Codebook.Zero()
	}
	return f.Codebook.Encode(x / scale)
}

// Dequantize sets dst to the value of each code times its block's scale, rounded once.
func Dequantize(dst []float32, codes []uint8, scales []float32, f Format) {
	for i := range dst {
		dst[i] = f.decode(codes, scales, i)
	}
}

func (f Format) decode(codes []uint8, scales []float32, i int) float32 {
	return f.Codebook.Table()[f.Get(codes, i)] * scales[i/f.Block]
}
