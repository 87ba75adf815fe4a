package reference

import (
	"math"

	"github.com/lowbit-go/lowbit/bf16"
)

// Floats is a vector in one of the two formats of weights, gradients and moments. At
// most one of the slices is set; where both are, it is the bf16 one that counts.
type Floats struct {
	F32  []float32
	BF16 []bf16.BF16
}

// Len is the number of elements.
func (f Floats) Len() int {
	if f.BF16 != nil {
		return len(f.BF16)
	}
	return len(f.F32)
}

// Slice returns elements lo to hi-1, sharing their memory.
func (f Floats) Slice(lo, hi int) Floats {
	if f.BF16 != nil {
		return Floats{BF16: f.BF16[lo:hi]}
	}
	if f.F32 != nil {
		return Floats{F32: f.F32[lo:hi]}
	}
	return f
}

// At returns element i widened to float32.
func (f Floats) At(i int) float32 {
	if f.BF16 != nil {
		return f.BF16[i].Float32()
	}
	return f.F32[i]
}

func (f Floats) set(i int, x float32, draw *draw) {
	if f.BF16 == nil {
		f.F32[i] = x
		return
	}
	f.BF16[i] = draw.round(x, i)
}

func finite(x float32) bool { return x-x == 0 }

func magnitude(x float32) float32 {
	return math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
}
