package kernels

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of the matrix products.
type (
	GemmFunc func(c, a Matrix, transA bool, b Matrix, transB bool, alpha, beta float32, threads int)
	SyrkFunc func(c, a Matrix, alpha, beta float32, threads int)
)

var (
	OpGemmFloat32 = declare(Op[GemmFunc]{Name: "gemm_float32"}, referenceGemm, fast.gemmFloat32)
	OpGemmBF16    = declare(Op[GemmFunc]{Name: "gemm_bfloat16", Class: Tolerance}, referenceGemm, fast.gemmBF16)
	OpSyrkFloat32 = declare(Op[SyrkFunc]{Name: "syrk_float32"}, referenceSyrk, fast.syrkFloat32)
	OpSyrkBF16    = declare(Op[SyrkFunc]{Name: "syrk_bfloat16", Class: Tolerance}, referenceSyrk, fast.syrkBF16)
)

func referenceGemm(c, a Matrix, transA bool, b Matrix, transB bool, alpha, beta float32, _ int) {
	reference.Gemm(c, a, transA, b, transB, alpha, beta)
}

func referenceSyrk(c, a Matrix, alpha, beta float32, _ int) {
	reference.Syrk(c, a, alpha, beta)
}

// Gemm sets C, m by n, to alpha*op(A)·op(B) + beta*C, where op transposes if asked to:
// op(A) is m by k and op(B) k by n, of any sizes from 0; other shapes are an error. A and B have
// one format, float32 or bf16; C is float32, or bf16 with bf16 operands. Products are
// summed in float32 by fused multiply-adds, k = 0, 1, …, and C is not read when beta is 0.
// float32 results are the reference's bits; those of bf16 operands are within
// K*2^-22*Σ|a·b| of it, plus 2^-7 of the result where C is bf16.
//
// C may not overlap A or B, which may be the same.
func Gemm(c, a Matrix, transA bool, b Matrix, transB bool, alpha, beta float32, limit ...Threads) error {
	const op = "gemm"
	m, k := shapeOf(a, transA)
	k2, n := shapeOf(b, transB)
	if k != k2 {
		return fmt.Errorf("%s: A is %dx%d and B %dx%d, want the inner sizes equal", op, m, k, k2, n)
	}
	if c.Rows != m || c.Cols != n {
		return fmt.Errorf("%s: C is %dx%d, want %dx%d", op, c.Rows, c.Cols, m, n)
	}
	if err := checkProduct(op, c, a, b); err != nil {
		return err
	}
	run := OpGemmFloat32.run
	if a.Data.BF16 != nil {
		run = OpGemmBF16.run
	}
	run(c, a, transA, b, transB, alpha, beta, threads(limit))
	return nil
}

// Syrk sets C, n by n, to alpha*A·Aᵀ + beta*C, where A is n by k. Only the elements on and above the diagonal are
// computed, and read where beta is not 0; they are mirrored below it. Formats and bits are
// as for Gemm.
//
// C may not overlap A.
func Syrk(c, a Matrix, alpha, beta float32, limit ...Threads) error {
	const op = "syrk"
	if c.Rows != a.Rows || c.Cols != a.Rows {
		return fmt.Errorf("%s: C is %dx%d, want %dx%d", op, c.Rows, c.Cols, a.Rows, a.Rows)
	}
	if err := checkProduct(op, c, a, a); err != nil {
		return err
	}
	run := OpSyrkFloat32.run
	if a.Data.BF16 != nil {
		run = OpSyrkBF16.run
	}
	run(c, a, alpha, beta, threads(limit))
	return nil
}

func shapeOf(m Matrix, transposed bool) (rows, cols int) {
	if transposed {
		return m.Cols, m.Rows
	}
	return m.Rows, m.Cols
}

func checkProduct(op string, c, a, b Matrix) error {
	for _, m := range []struct {
		name   string
		matrix Matrix
	}{{"A", a}, {"B", b}, {"C", c}} {
		if err := checkMatrix(op, m.name, m.matrix); err != nil {
			return err
		}
	}
	if (a.Data.BF16 != nil) != (b.Data.BF16 != nil) {
		return fmt.Errorf("%s: A and B have different formats, want both float32 or both bf16", op)
	}
	if c.Data.BF16 != nil && a.Data.BF16 == nil {
		return fmt.Errorf("%s: C is bf16 and A float32, want C in float32", op)
	}
	dst := floatsSpan("C", c.Data)
	if err := disjoint(op, dst, floatsSpan("A", a.Data)); err != nil {
		return err
	}
	return disjoint(op, dst, floatsSpan("B", b.Data))
}

func checkMatrix(op, name string, m Matrix) error {
	if m.Rows < 0 || m.Cols < 0 || m.Stride < m.Cols {
		return fmt.Errorf("%s: %s is %dx%d with stride %d, want sizes of 0 or more and a stride of at least the columns", op, name, m.Rows, m.Cols, m.Stride)
	}
	if m.Data.F32 != nil && m.Data.BF16 != nil {
		return fmt.Errorf("%s: %s is given in float32 and in bf16, want one of them", op, name)
	}
	if m.Rows > 0 && m.Stride > 0 && m.Rows-1 > (math.MaxInt-m.Cols)/m.Stride {
		return fmt.Errorf("%s: %s is %dx%d with stride %d, which no memory holds", op, name, m.Rows, m.Cols, m.Stride)
	}
	if need := matrixLen(m); m.Data.Len() < need {
		return lengthError(op, name, m.Data.Len(), need, fmt.Sprintf("or more for %dx%d with stride %d", m.Rows, m.Cols, m.Stride))
	}
	return nil
}

func matrixLen(m Matrix) int {
	if m.Rows == 0 || m.Cols == 0 {
		return 0
	}
	return (m.Rows-1)*m.Stride + m.Cols
}
