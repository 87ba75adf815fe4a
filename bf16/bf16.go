// Package bf16 is the bfloat16 number format: the upper half of a float32, with
// 8 exponent and 7 stored mantissa bits, and its three roundings from float32.
//
// These are the scalar rules that every kernel obeys; package kernels converts
// whole slices.
package bf16

import "math"

// BF16 is a bfloat16 bit pattern. Its underlying type is uint16, so a []BF16 has
// the memory layout that other libraries use for the format.
type BF16 uint16

const (
	largestFinite = 0x7f7f
	signBit       = 0x8000
	quietBit      = 0x0040
)

// FromFloat32 rounds to nearest, ties to even. A NaN stays a NaN: it is made quiet
// and keeps its sign and the upper bits of its payload. Values from the largest
// finite bfloat16 plus half a step on become infinite; subnormals round like any value.
func FromFloat32(f float32) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return quietNaN(bits)
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Truncate rounds towards zero. A NaN is treated as by FromFloat32.
func Truncate(f float32) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return quietNaN(bits)
	}
	return BF16(bits >> 16)
}

// Stochastic rounds away from zero with the probability that the discarded bits
// state, given 16 uniform random bits (see RandomBits), so the mean of the result is
// f. NaN is treated as by FromFloat32, infinities stay, and no finite value becomes
// infinite.
func Stochastic(f float32, random uint16) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return quietNaN(bits)
	}
	if math.IsInf(float64(f), 0) {
		return BF16(bits >> 16)
	}
	magnitude := (bits&0x7fffffff + uint32(random)) >> 16
	return BF16(min(magnitude, largestFinite) | bits>>16&signBit)
}

// Float32 widens, exactly.
func (b BF16) Float32() float32 {
	return math.Float32frombits(uint32(b) << 16)
}

func quietNaN(bits uint32) BF16 {
	return BF16(bits>>16 | quietBit)
}
