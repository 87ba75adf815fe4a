package reference

import "github.com/lowbit-go/lowbit/bf16"

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

// Stream is a sequence of random bits: those of element i of a parameter at a step.
type Stream struct {
	Seed, Step uint64
	First      int64 // the position in its parameter of the slice's element 0
}

// Stochastic is bf16.Stochastic of each element with the stream's bits.
func Stochastic(dst []bf16.BF16, src []float32, s Stream) {
	var draws bf16.Draws
	for i, x := range src {
		index := uint64(s.First) + uint64(i)
		if i == 0 || index%8 == 0 {
			draws = bf16.DrawsAt(s.Seed, s.Step, index/8)
		}
		dst[i] = bf16.Stochastic(x, draws[index%8])
	}
}

// draw is how a bf16 value is stored: nearest, or by the bits of a stream.
type draw struct {
	stream     Stream
	stochastic bool
}

func (d draw) round(x float32, i int) bf16.BF16 {
	if !d.stochastic {
		return bf16.FromFloat32(x)
	}
	return bf16.Stochastic(x, bf16.RandomBits(d.stream.Seed, d.stream.Step, uint64(d.stream.First)+uint64(i)))
}
