// Package float16 converts between float32 and IEEE 754 binary16, the F16 of tensor files.
package float16

import "math"

// ToFloat32 returns the value of the binary16 pattern h. It is exact, but a NaN becomes quiet,
// and keeps its sign and payload.
func ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	magnitude := uint32(h & 0x7fff)
	switch {
	case magnitude > 0x7c00:
		return math.Float32frombits(sign | 0x7fc00000 | magnitude<<13)
	case magnitude == 0x7c00:
		return math.Float32frombits(sign | 0x7f800000)
	case magnitude >= 0x0400:
		return math.Float32frombits(sign | (magnitude<<13 + (127-15)<<23))
	}
	subnormal := float32(magnitude) * 0x1p-24
	return math.Float32frombits(sign | math.Float32bits(subnormal))
}

// FromFloat32 returns x rounded to binary16, to nearest with ties to even: from 65520 on to Inf, and a NaN
// stays a quiet NaN with its sign and high payload.
func FromFloat32(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits>>16) & 0x8000
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000:
		return sign | 0x7e00 | uint16(bits>>13)&0x03ff
	case bits >= 0x477ff000:
		return sign | 0x7c00
	case bits >= 0x38800000:
		return sign | uint16((bits-(127-15)<<23+0x0fff+bits>>13&1)>>13)
	}
	// One unit in the last place of 0.5 is the spacing of binary16's subnormals, so this sum rounds as they do.
	return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
}
