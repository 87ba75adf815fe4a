package kernels

import (
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The plain types that operations work on. They are aliases, so their comments list the
// fields and methods.
type (
	// Format is a blockwise quantised format.
	//
	// Fields: Codebook, the table of values; Block, the number of consecutive elements that
	// share a scale, 1 or more (the last block may be shorter); Nibble, the order of 4-bit
	// codes in a byte, codebook.LowFirst unless set; Headroom, which makes scales so large
	// that an extreme of either sign keeps its value when it is requantised.
	//
	// Methods: CodeBytes(n int) int and Scales(n int) int are the lengths of the codes and of
	// the scales of n elements; Get(codes, i) is the code of element i; ScaleDivisor() is what
	// a block's largest magnitude is divided by to make its scale, 1 without headroom.
	Format = reference.Format
	// Floats is a vector of float32 or of bf16 numbers; Float32s and BF16s make one.
	//
	// Fields: F32 []float32 and BF16 []bf16.BF16, of which one is set at most.
	//
	// Methods: Len() int; At(i int) float32, widened; Slice(lo, hi int) Floats, elements lo to
	// hi-1, which shares their memory.
	Floats = reference.Floats
	// Stream is a sequence of random bits for stochastic rounding, the same for the same
	// fields.
	//
	// Fields: Seed uint64, of the parameter; Step uint64, of training; First int64, the
	// position in its whole parameter of the slice's element 0, which is not negative.
	Stream = reference.Stream
	// Moment is the storage of one moment of an optimizer, in one of three ways.
	//
	// Fields: Floats, embedded, for float32 or bf16 numbers; or Codes []uint8 and Scales
	// []float32 of a Format, with the lengths that it says; or, of a second moment, Row and
	// Col []float32, the factors of the whole parameter, one number a row and a column, Row
	// already divided by its mean.
	//
	// Methods: Quantized() and Factored() tell which it is; At(i int) float32 is element i of
	// numbers or codes; Product(dst, first) sets dst to the elements of factors from first on;
	// Slice(lo, hi int) Moment shares memory, and lo must be a multiple of the block, and even
	// for 4-bit codes. Len() is that of the numbers.
	Moment = reference.Moment
	// AdamWTensors is a parameter of n elements, or a piece of one, and all that its step reads
	// and writes. None of them may overlap.
	//
	// Fields: Weights Floats, n, updated in place; Low []uint16, the lower halves of a split
	// master, n with bf16 weights, or nil; Gradients Floats, n, read; M and V Moment, the first
	// and second moment, of n elements each; First int64, the position of element 0 in the
	// whole parameter, 0 for one that is not a piece.
	//
	// Method: Slice(lo, hi int) AdamWTensors, elements lo to hi-1, where lo is as for a
	// Moment's Slice.
	AdamWTensors = reference.AdamWTensors
	// AdamWHyper are the hyper-parameters of one AdamW step, in float64. The zero value is of
	// no use: Step is 1 or more, and GradScale 1 where gradients are not clipped.
	//
	// Fields: LR, the learning rate; Beta1, Beta2, the moments' decay rates, in [0, 1); Eps,
	// added to the root of the second moment; WeightDecay, decoupled, which LR multiplies;
	// Step int64, 1 for the first update; GradScale, which multiplies each gradient; Nesterov,
	// for NAdamW; Optax, for the order of operations of optax.adamw instead of torch's.
	//
	// Method: Scalars() AdamWScalars, for AdamW.
	AdamWHyper = reference.AdamWHyper
	// AdamWScalars are the rounded numbers of a step. AdamWHyper.Scalars makes them; a caller
	// sets the last two fields.
	//
	// Fields: GradScale, Decay (1 - lr*wd), Beta1, OneMinusBeta1, Beta2, OneMinusBeta2,
	// RootCorrection2 (the root of 1 - beta2^t), Eps, StepSize (lr/(1 - beta1^t)), NesterovM,
	// NesterovG, and Correction1, Correction2, LR, WeightDecay of the optax variant, float32;
	// Nesterov, Optax; SkipNonFinite, which leaves alone what is not finite; Rounding
	// AdamWRounding.
	AdamWScalars = reference.AdamWScalars
	// AdamWRounding says how a step rounds bf16 moments and weights: to nearest, unless
	// stochastically.
	//
	// Fields: StochasticMoments, StochasticWeights bool; SeedM, SeedV, SeedW uint64, of the
	// streams of the first and second moment and the weights; Step uint64, the streams' step.
	// Their First is the tensors'.
	AdamWRounding = reference.AdamWRounding
	// MuonTensors is a parameter of n elements, or a piece of one, and all that its step reads
	// and writes. None of them may overlap.
	//
	// Fields: Weights Floats, n, updated in place; Low []uint16, the lower halves of a split
	// master, n with bf16 weights, or nil; Gradients Floats, n, read; Momentum Moment, of n
	// numbers or 8-bit codes; Update []float32, n, the orthogonalised direction; First int64,
	// the position of element 0 in the whole parameter.
	//
	// Method: Slice(lo, hi int) MuonTensors, elements lo to hi-1, where lo is a multiple of
	// the momentum's block.
	MuonTensors = reference.MuonTensors
	// MuonScalars are the rounded numbers of a Muon step, with gradients g, momentum m,
	// weights w and update o.
	//
	// Fields: g is multiplied by GradScale; m becomes OldMomentum*m + NewGradient*g; the
	// direction is (DirectionM*m + DirectionG*g)/Divisor; w becomes Decay*w -
	// StepSize*(Scale*o + WeightDecay*w). All are float32, and used as they are: GradScale,
	// Divisor, Decay and Scale are 1 where there is nothing to do. Rounding MuonRounding.
	MuonScalars = reference.MuonScalars
	// MuonRounding says how a step rounds bf16 weights: to nearest, unless stochastically.
	//
	// Fields: StochasticWeights bool; SeedW and Step uint64, of the stream.
	MuonRounding = reference.MuonRounding
	// Matrix is a row-major view: element (i, j) is Data.At(i*Stride + j).
	//
	// Fields: Data Floats, of (Rows-1)*Stride + Cols elements or more; Rows, Cols, 0 or more;
	// Stride, the elements from one row to the next, Cols or more. What lies between rows is
	// not touched.
	Matrix = reference.Matrix
	// Stack is matrices of one shape: element (i, j) of matrix k is
	// Data.At(k*Step + i*Stride + j).
	//
	// Fields: Data Floats, of (Count-1)*Step + (Rows-1)*Stride + Cols elements or more; Count,
	// Rows, Cols, 0 or more; Stride, Cols or more; Step, the elements from one matrix to the
	// next, (Rows-1)*Stride + Cols or more, of no account where Count is 1.
	//
	// Method: Matrix(k int) Matrix, which shares memory.
	Stack = reference.Stack
	// NewtonSchulzPlan says how matrices are orthogonalised. It is not changed by use, and may
	// be used again, also by several goroutines. PlanNewtonSchulz makes one.
	//
	// Fields: Steps [][3]float32, a, b, c of each step's polynomial a*x + b*x³ + c*x⁵; Safety
	// float64, above 0, which multiplies the norm that a matrix is divided by; Eps float64, in
	// units of the input, which is added to the divisor, or where EpsFloor is set the least
	// that it can be; ParityNorm, which rounds input, norm and divisor to bf16; BFloat16, which
	// rounds every stored matrix to bf16; Gram, which iterates on X·Xᵀ for matrices that are
	// not square; GramRestart, which applies it after the second of three or more steps and
	// starts again, for the sake of bf16.
	//
	// Methods: WorkSize(rows, cols int) int64 is the least length of NewtonSchulz's workspace,
	// in float32 numbers; UsesGram(rows, cols int) bool tells whether such matrices are worked
	// on in Gram form. Implementations share Input(x), Norm(sumOfSquares) and Scaling(norm),
	// the way from a matrix to its quotient.
	NewtonSchulzPlan = reference.NewtonSchulzPlan
	// Counts says what a step found that was not finite, and what it left untouched for it.
	//
	// Fields, int64: NonFinite, elements whose gradient, new moment or new weight is not
	// finite; SkippedElements and SkippedBlocks, what was left untouched, blocks of codes only.
	//
	// Method: Add(other Counts) adds those of another piece.
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
