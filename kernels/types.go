package kernels

import (
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The plain types that operations work on.
type (
	// Format is a blockwise quantised format: a codebook, the number of consecutive
	// elements that share a scale, and the order of 4-bit codes in a byte.
	Format = reference.Format
	// Floats is a vector of float32 or of bf16 numbers.
	Floats = reference.Floats
	// Stream is a sequence of random bits for stochastic rounding.
	Stream = reference.Stream
	// Moment is the storage of one moment of an optimizer.
	Moment = reference.Moment
	// AdamWTensors is a parameter, or a piece of one, with its gradient and moments.
	AdamWTensors = reference.AdamWTensors
	// AdamWHyper are the hyper-parameters of an AdamW step.
	AdamWHyper = reference.AdamWHyper
	// AdamWScalars are the rounded numbers of a step; AdamWHyper.Scalars makes them.
	AdamWScalars = reference.AdamWScalars
	// AdamWRounding says how a step rounds bf16 moments and weights.
	AdamWRounding = reference.AdamWRounding
	// MuonTensors is a parameter, or a piece of one, with its gradient, momentum and
	// orthogonalised update.
	MuonTensors = reference.MuonTensors
	// MuonScalars are the rounded numbers of a Muon step.
	MuonScalars = reference.MuonScalars
	// MuonRounding says how a step rounds bf16 weights.
	MuonRounding = reference.MuonRounding
	// Matrix is a row-major view: element (i, j) is Data.At(i*Stride + j).
	Matrix = reference.Matrix
	// Stack is matrices of one shape: element (i, j) of matrix k is
	// Data.At(k*Step + i*Stride + j).
	Stack = reference.Stack
	// NewtonSchulzPlan says how matrices are orthogonalised.
	NewtonSchulzPlan = reference.NewtonSchulzPlan
	// Counts says what a step found that was not finite, and what it left untouched.
	Counts = reference.Counts
)

// Float32s makes Floats of float32 numbers, sharing their memory.
func Float32s(x []float32) Floats { return Floats{F32: x} }

// BF16s makes Floats of bf16 numbers, of any library's type for them, sharing their
// memory.
func BF16s[B ~uint16](x []B) Floats { return Floats{BF16: bf16Slice(x)} }

func bf16Slice[B ~uint16](x []B) []bf16.BF16 {
	return unsafe.Slice((*bf16.BF16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func floatsSpan(name string, f Floats) span {
	if f.BF16 != nil {
		return spanOf(name, f.BF16)
	}
	return spanOf(name, f.F32)
}
