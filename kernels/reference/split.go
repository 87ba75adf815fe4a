package reference

import (
	"math"

	"github.com/lowbit-go/lowbit/bf16"
)

// Split stores a float32 as the nearest bf16, ties away from zero, and the 16-bit
// difference of the bit patterns, from which Join gives it back. A NaN becomes the
// quiet NaN of its upper half.
func Split(master float32) (weight bf16.BF16, low uint16) {
	if master != master {
		return bf16.Truncate(master), 0
	}
	bits := math.Float32bits(master)
	return bf16.BF16((bits + 0x8000) >> 16), uint16(bits)
}

// Join gives back the float32 that Split stored.
func Join(weight bf16.BF16, low uint16) float32 {
	return math.Float32frombits(uint32(weight)<<16 + uint32(int32(int16(low))))
}
