package reference

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/float16"
)

// Round is bf16.FromFloat32 of each element.
func Round(dst []bf16.BF16, src []float32) {
	for i, x := range src {
		dst[i] = bf16.FromFloat32(x)
	}
}

// Truncate is bf16.Truncate of each element.
func Truncate(dst []bf16.BF16, src []float32) {
	for i, x := range src {
		dst[i] = bf16.Truncate(x)
	}
}

// Widen is the exact float32 of each element.
func Widen(dst []float32, src []bf16.BF16) {
	for i, x := range src {
		dst[i] = x.Float32()
	}
}

// RoundFloat16 is float16.FromFloat32 of each element.
func RoundFloat16(dst []uint16, src []float32) {
	for i, x := range src {
		dst[i] = float16.FromFloat32(x)
	}
}

// WidenFloat16 is float16.ToFloat32 of each element.
func WidenFloat16(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = float16.ToFloat32(h)
	}
}

// Stream is a sequence of random bits: those of element i of a parameter at a step.
type Stream struct {
	Seed, Step uint64
	First      int64 // the position in its parameter of the slice's element 0
}

// Stochastic is bf16.Stochastic of each element with the stream's bits.
func Stochastic(dst []bf16.BF16, src []float32, s Stream) {
	d := draw{stream: s, stochastic: true}
	for i, x := range src {
		dst[i] = d.round(x, i)
	}
}

// draw is how bf16 values are stored: nearest, also where it is nil, or by the bits of a
// stream.
type draw struct {
	stream     Stream
	stochastic bool
	group      uint64 // the elements whose bits are drawn, plus one
	bits       bf16.Draws
}

func (d *draw) round(x float32, i int) bf16.BF16 {
	if d == nil || !d.stochastic {
		return bf16.FromFloat32(x)
	}
	index := uint64(d.stream.First) + uint64(i)
	if group := index/8 + 1; group != d.group {
		d.group, d.bits = group, bf16.DrawsAt(d.stream.Seed, d.stream.Step, index/8)
	}
	return bf16.Stochastic(x, d.bits[index%8])
}
