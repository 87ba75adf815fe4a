package float16_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/float16"
)

// value is the definition of binary16, in float64.
func value(h uint16) float64 {
	sign, exponent, fraction := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return sign * math.Inf(1)
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestEveryPattern(t *testing.T) {
	for h := range 1 << 16 {
		pattern := uint16(h)
		wide, want := float16.ToFloat32(pattern), value(pattern)
		back := float16.FromFloat32(wide)
		if math.IsNaN(want) {
			require.Equal(t, uint32(pattern&0x8000)<<16|0x7fc00000|uint32(pattern&0x3ff)<<13, math.Float32bits(wide), "%04x", pattern)
			require.Equal(t, pattern|0x0200, back)
			continue
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(float64(wide)), "%04x", pattern)
		require.Equal(t, pattern, back)
	}
}

// Rounding is monotone, so what happens at and beside each midpoint settles every value in between.
func TestEveryMidpoint(t *testing.T) {
	for h := range uint16(0x7c00) {
		low, high := value(h), value(h+1)
		if h == 0x7bff {
			high = 0x1p16
		}
		middle := float32((low + high) / 2)
		even := h + h&1
		for _, sign := range []float32{1, -1} {
			signBit := uint16(math.Float32bits(sign) >> 16 & 0x8000)
			require.Equal(t, signBit|h, float16.FromFloat32(sign*math.Nextafter32(middle, 0)), "below %04x", h)
			require.Equal(t, signBit|even, float16.FromFloat32(sign*middle), "at %04x", h)
			require.Equal(t, signBit|(h+1), float16.FromFloat32(sign*math.Nextafter32(middle, math.MaxFloat32)), "above %04x", h)
		}
	}
}

func TestExtremes(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x7f7fffff: 0x7c00, // the largest float32
		0x00000001: 0x0000, // the smallest
		0x80000001: 0x8000,
		0x7f800001: 0x7e00, // a signalling NaN whose payload is all in the lost bits
		0xffffe000: 0xffff,
	} {
		require.Equal(t, want, float16.FromFloat32(math.Float32frombits(bits)), "%08x", bits)
	}
}

func ExampleFromFloat32() {
	fmt.Printf("%04x %g\n", float16.FromFloat32(0.1), float16.ToFloat32(float16.FromFloat32(0.1)))
	// Output: 2e66 0.099975586
}
