package reference

import "math"

// Stack is Count matrices of one shape: element (i, j) of matrix k is
// Data.At(k*Step + i*Stride + j).
type Stack struct {
	Data                            Floats
	Count, Rows, Cols, Stride, Step int
}

// Matrix returns matrix k, sharing its memory.
func (s Stack) Matrix(k int) Matrix {
	return Matrix{s.Data.Slice(k*s.Step, s.Data.Len()), s.Rows, s.Cols, s.Stride}
}

// NewtonSchulzPlan says how matrices are orthogonalised. The zero Eps and switches are
// the contract's own way.
type NewtonSchulzPlan struct {
	// Steps holds a, b, c of each step's polynomial a*x + b*x³ + c*x⁵.
	Steps [][3]float32
	// Safety divides the matrix beside its norm n: the divisor is Safety*n. It is 1 for most
	// polynomials, and never 0.
	Safety float64
	// Eps, in units of the input, is added to the divisor or, if EpsFloor, is the least
	// that it can be.
	Eps      float64
	EpsFloor bool
	// ParityNorm rounds the input, its norm and the divisor to bf16, and divides without
	// scaling first.
	ParityNorm bool
	// BFloat16 rounds every stored matrix to bf16. Products accumulate in fp32, in the order
	// of GemmPairs.
	BFloat16 bool
	// Gram iterates on X·Xᵀ for matrices that are not square; GramRestart multiplies it
	// into X after the second step, if there is a third, and starts again.
	Gram, GramRestart bool
}

// workPadding is the multiple that the sizes of matrices in a workspace are rounded up
// to, and workSlack what aligning them may cost.
const (
	workPadding = 32
	workSlack   = 15
)

// WorkSize is the number of float32 that any implementation of NewtonSchulz needs to work
// on matrices of a shape, one after the other.
func (p *NewtonSchulzPlan) WorkSize(rows, cols int) int64 {
	padded := func(n int) int64 { return (int64(n) + workPadding - 1) / workPadding * workPadding }
	short, long := padded(min(rows, cols)), padded(max(rows, cols))
	squares := int64(2)
	if p.UsesGram(rows, cols) {
		squares = 4
	}
	return 3*short*long + squares*short*short + workSlack
}

// UsesGram tells whether matrices of a shape are worked on in Gram form: where Gram is set
// and they are not square.
func (p *NewtonSchulzPlan) UsesGram(rows, cols int) bool { return p.Gram && rows != cols }

// NewtonSchulz sets each matrix of dst to the polar factor of src's, approximated by an
// odd polynomial of its singular values a step (Bernstein and Newhouse, "Old Optimizer,
// New Norm", 2024; Jordan et al., Muon, 2024). A matrix with a non-finite element, norm
// or result becomes NaN as a whole; their number is returned. The others do not notice.
// A zero matrix gives zeros.
//
// X is the input, transposed if it has more rows than columns, divided by its norm: with
// n the float64 root of the contract's sum of squares over the input, row by row, and
// e = floor(log2(n)), X = (x*2^-e) / float32((Safety*n + Eps)*2^-e). Here 2^-e is the
// product of two factors, the second of which takes all but what exceeds 126 either way,
// so a subnormal quotient is rounded once.
//
// In the notation of Gemm (alpha*(acc + 0) + beta*C) or, in bf16, GemmPairs, and with
// symmetric products computed on and above the diagonal and mirrored, a step is
//
//	A = 1*X·Xᵀ
//	B = c*A·A + b*A
//	X = 1*B·X + a*X
//
// and in Gram form, after R = 1*X·Xᵀ, all of them symmetric,
//
//	Z = c*R·R + b*R
//	Q = 1*Q·Z + a*Q   (first: Q = (Z + 0) + a*I)
//	T = 1*R·Z + a*R
//	R = 1*Z·T + a*T   (not in the last step, nor before a restart)
//
// and X = 1*Q·X at the end, and before a restart.
//
// dst may be src, but must not overlap it otherwise. work has at least WorkSize elements;
// what it holds does not matter.
func NewtonSchulz(dst, src Stack, plan *NewtonSchulzPlan, work []float32) (poisoned int) {
	for k := range src.Count {
		d := dst.Matrix(k)
		if !plan.orthogonalize(d, src.Matrix(k), work) {
			d.fill(float32(math.NaN()))
			poisoned++
		}
	}
	return poisoned
}

// orthogonalize reports whether the matrix, its norm and the result are finite.
func (p *NewtonSchulzPlan) orthogonalize(dst, src Matrix, work []float32) bool {
	norm := p.norm(src)
	if math.IsInf(norm, 0) || math.IsNaN(norm) {
		return false
	}
	if norm == 0 {
		dst.fill(0)
		return true
	}
	tall := src.Rows > src.Cols
	input := src.operand(tall)
	free := scratch{work}
	x, y := free.matrix(input.rows, input.cols), free.matrix(input.rows, input.cols)
	p.normalize(x, input, norm)
	if p.UsesGram(src.Rows, src.Cols) {
		x = p.iterateGram(x, y, free)
	} else {
		x = p.iterate(x, y, free)
	}
	return dst.assign(x.operand(tall))
}

func (p *NewtonSchulzPlan) norm(m Matrix) float64 {
	return p.Norm(orderedSum(m.Rows*m.Cols, func(i int) float64 {
		return square(p.Input(m.Data.At(i/m.Cols*m.Stride + i%m.Cols)))
	}))
}

// Norm is the norm of a matrix from the sum of the squares of its Inputs.
func (p *NewtonSchulzPlan) Norm(sumOfSquares float64) float64 {
	norm := math.Sqrt(sumOfSquares)
	if p.ParityNorm {
		return float64(roundBF16(float32(norm)))
	}
	return norm
}

// Input is an element of the matrix as it enters the norm and the quotient.
func (p *NewtonSchulzPlan) Input(x float32) float32 {
	if p.ParityNorm {
		return roundBF16(x)
	}
	return x
}

// Scaling says how a matrix of that norm is normalised: an element of X is
// Input(x)*first*second/divisor, each operation rounded.
func (p *NewtonSchulzPlan) Scaling(norm float64) (first, second, divisor float32) {
	d := float64(p.Safety * norm)
	if p.EpsFloor {
		d = max(d, p.Eps)
	} else {
		d += p.Eps
	}
	if p.ParityNorm {
		return 1, 1, roundBF16(float32(d))
	}
	_, exponent := math.Frexp(norm)
	e := exponent - 1
	power := max(-126, min(e, 126))
	return float32(math.Ldexp(1, power-e)), float32(math.Ldexp(1, -power)), float32(math.Ldexp(d, -e))
}

func (p *NewtonSchulzPlan) normalize(x Matrix, input operand, norm float64) {
	first, second, divisor := p.Scaling(norm)
	for i := range x.Rows {
		for j := range x.Cols {
			scaled := float32(p.Input(input.at(i, j))*first) * second
			p.set(x, i, j, scaled/divisor)
		}
	}
}

// set stores an element of a matrix of the workspace.
func (p *NewtonSchulzPlan) set(m Matrix, i, j int, x float32) {
	if p.BFloat16 {
		x = roundBF16(x)
	}
	m.Data.F32[i*m.Stride+j] = x
}

func (m Matrix) fill(x float32) {
	for i := range m.Rows {
		for j := range m.Cols {
			m.Data.set(i*m.Stride+j, x, nil)
		}
	}
}

// assign copies and reports whether every element is finite.
func (m Matrix) assign(src operand) bool {
	ok := true
	for i := range m.Rows {
		for j := range m.Cols {
			m.Data.set(i*m.Stride+j, src.at(i, j), nil)
			ok = ok && finite(m.Data.At(i*m.Stride+j))
		}
	}
	return ok
}
