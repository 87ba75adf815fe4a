package reference

import "github.com/lowbit-go/lowbit/bf16"

// Matrix is a row-major view: element (i, j) is Data.At(i*Stride + j).
type Matrix struct {
	Data               Floats
	Rows, Cols, Stride int
}

// Gemm sets C to alpha*op(A)·op(B) + beta*C, where op transposes if asked to. Each of the
// three may be fp32 or bf16. For fp32 this is the contract's exact class; for bf16
// operands, which are widened, it is the R of its tolerance.
//
// An element is one chain acc = FMA(A[i,k], B[k,j], acc), from +0, k = 0, 1, …; then
// alpha*(acc + 0) + beta*C, each operation rounded to float32, and once more to nearest
// where C is bf16. With beta 0, C is not read and the result is alpha*(acc + 0). No
// other factor is a special case: alpha 0 times a NaN is a NaN.
//
// C must not overlap A or B.
func Gemm(c, a Matrix, transA bool, b Matrix, transB bool, alpha, beta float32) {
	product{a: a.operand(transA), b: b.operand(transB), alpha: alpha, beta: beta, c: c}.into(c)
}

// GemmPairs is Gemm in the way of the bf16 dot product instruction VDPBF16PS: of each pair
// k = 2i, 2i+1 the odd element is added before the even one, and subnormal operands and
// sums count as zero. It takes the same operands and epilogue.
func GemmPairs(c, a Matrix, transA bool, b Matrix, transB bool, alpha, beta float32) {
	product{a: a.operand(transA), b: b.operand(transB), alpha: alpha, beta: beta, c: c, pairs: true}.into(c)
}

// Syrk sets C to alpha*A·Aᵀ + beta*C as Gemm does, but computes only the elements on and
// above the diagonal and mirrors them: below the diagonal C is written, not read.
//
// C must not overlap A.
func Syrk(c, a Matrix, alpha, beta float32) {
	product{a: a.operand(false), b: a.operand(true), alpha: alpha, beta: beta, c: c, symmetric: true}.into(c)
}

// product is alpha*A·B + beta*C.
type product struct {
	a, b        operand
	alpha, beta float32
	c           Matrix
	symmetric   bool // the elements on and above the diagonal are computed and mirrored
	pairs       bool // as GemmPairs
	bfloat16    bool // the result is rounded to bf16, whatever it is stored in
}

// operand is a matrix or its transpose: element (i, j) is data.At(i*rowStep + j*colStep).
type operand struct {
	data                         Floats
	rows, cols, rowStep, colStep int
}

func (m Matrix) operand(transposed bool) operand {
	if transposed {
		return operand{m.Data, m.Cols, m.Rows, 1, m.Stride}
	}
	return operand{m.Data, m.Rows, m.Cols, m.Stride, 1}
}

func (o operand) at(i, j int) float32 { return o.data.At(i*o.rowStep + j*o.colStep) }

// Tiles change the speed, never a chain: each is continued from one block of k to the
// next.
const (
	tileSize  = 32
	tileDepth = 64
)

// into stores the product in d, which may be its c but must not overlap a or b.
func (p product) into(d Matrix) {
	for i := 0; i < d.Rows; i += tileSize {
		j := 0
		if p.symmetric {
			j = i
		}
		for ; j < d.Cols; j += tileSize {
			p.tile(d, i, j)
		}
	}
}

// tile computes the elements (i0+i, j0+j).
func (p product) tile(d Matrix, i0, j0 int) {
	var acc [tileSize][tileSize]float64
	var panel [tileDepth][tileSize]float64
	rows, cols := min(tileSize, d.Rows-i0), min(tileSize, d.Cols-j0)
	for k0 := 0; k0 < p.a.cols; k0 += tileDepth {
		depth := min(tileDepth, p.a.cols-k0)
		for k := range depth {
			for j := range cols {
				panel[k][j] = p.load(p.b, k0+k, j0+j)
			}
		}
		for i := range rows {
			first := p.first(i0+i, j0)
			for k := range depth {
				k = p.order(k, depth)
				fmaRow(acc[i][first:cols], p.load(p.a, i0+i, k0+k), panel[k][first:cols], p.pairs)
			}
		}
	}
	for i := range rows {
		for j := p.first(i0+i, j0); j < cols; j++ {
			p.store(d, i0+i, j0+j, float32(acc[i][j]))
		}
	}
}

func (p product) load(o operand, i, j int) float64 {
	x := o.at(i, j)
	if p.pairs {
		x = flushSubnormal(x)
	}
	return float64(x)
}

// order is the k that comes at some place of a block; tileDepth is even.
func (p product) order(place, depth int) int {
	if p.pairs && place^1 < depth {
		return place ^ 1
	}
	return place
}

// first is the first element of a row that is computed in a tile from column j0.
func (p product) first(row, j0 int) int {
	if p.symmetric {
		return max(0, row-j0)
	}
	return 0
}

func (p product) store(d Matrix, i, j int, acc float32) {
	x := float32(p.alpha * (acc + 0))
	if p.beta != 0 {
		x += float32(p.beta * p.c.Data.At(i*p.c.Stride+j))
	}
	if p.bfloat16 {
		x = roundBF16(x)
	}
	d.Data.set(i*d.Stride+j, x, nil)
	if p.symmetric {
		d.Data.set(j*d.Stride+i, x, nil)
	}
}

func roundBF16(x float32) float32 { return bf16.FromFloat32(x).Float32() }
