package bench

import (
	"runtime"
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
)

var matrixLoads = slices.Concat(
	matrixLoad("", gemm, productShapes, kernels.OpGemmFloat32, kernels.OpGemmBF16),
	matrixLoad("", syrk, productShapes, kernels.OpSyrkFloat32, kernels.OpSyrkBF16),
	matrixLoad("standard", newtonSchulz(false), stackShapes, kernels.OpNewtonSchulzFloat32, kernels.OpNewtonSchulzBF16),
	matrixLoad("gram", newtonSchulz(true), []Shape{{1024, 4096}}, kernels.OpNewtonSchulzFloat32, kernels.OpNewtonSchulzBF16))

var (
	productShapes = []Shape{{128, 128}, {256, 256}, {512, 512}, {1024, 1024}, {1024, 4096}}
	stackShapes   = append(productShapes[:len(productShapes):len(productShapes)], Shape{64, 128, 128})
)

// matrices is work of a signature on matrices.
type matrices[F any] struct {
	inBF16 bool
	flops  float64
	each   func(f F, threads int)
}

func matrixLoad[F any](method string, prepare func(op *kernels.Op[F], count, rows, cols int) matrices[F], shapes []Shape, ops ...*kernels.Op[F]) []Load {
	list := make([]Load, len(ops))
	for i, op := range ops {
		list[i] = Load{Row: op.Row(), Method: method, Shapes: shapes, Prepare: func(shape ...int) Work {
			if len(shape) == 2 {
				shape = append([]int{1}, shape...)
			}
			m := prepare(op, shape[0], shape[1], shape[2])
			return Work{DType: dtype(m.inBF16), Flops: m.flops, Calls: calls(op, func(f F) Call {
				return func(_, threads int) { m.each(f, threads) }
			})}
		}}
	}
	return list
}

func matrix(rows, cols int, inBF16 bool) kernels.Matrix {
	return kernels.Matrix{Data: floats(rows*cols, inBF16), Rows: rows, Cols: cols, Stride: cols}
}

// gemm multiplies a matrix of the shape by a square one from the left.
func gemm(op *kernels.Op[kernels.GemmFunc], _, rows, cols int) matrices[kernels.GemmFunc] {
	inBF16 := op == kernels.OpGemmBF16
	a, b, c := matrix(rows, rows, inBF16), matrix(rows, cols, inBF16), matrix(rows, cols, inBF16)
	flops := 2 * float64(rows) * float64(rows) * float64(cols)
	return matrices[kernels.GemmFunc]{inBF16, flops, func(gemm kernels.GemmFunc, threads int) {
		gemm(c, a, false, b, false, 1, 0, threads)
	}}
}

func syrk(op *kernels.Op[kernels.SyrkFunc], _, rows, cols int) matrices[kernels.SyrkFunc] {
	inBF16 := op == kernels.OpSyrkBF16
	a, c := matrix(rows, cols, inBF16), matrix(rows, rows, inBF16)
	return matrices[kernels.SyrkFunc]{inBF16, symmetricFlops(rows, cols), func(syrk kernels.SyrkFunc, threads int) {
		syrk(c, a, 1, 0, threads)
	}}
}

// symmetricFlops are those of half of a product of rows by inner by rows.
func symmetricFlops(rows, inner int) float64 {
	return float64(rows) * float64(rows+1) * float64(inner)
}

const newtonSchulzSteps = 5

// jordan are the coefficients of Muon's usual polynomial.
var jordan = [3]float32{3.4445, -4.7750, 2.0315}

func newtonSchulz(gram bool) func(op *kernels.Op[kernels.NewtonSchulzFunc], count, rows, cols int) matrices[kernels.NewtonSchulzFunc] {
	return func(op *kernels.Op[kernels.NewtonSchulzFunc], count, rows, cols int) matrices[kernels.NewtonSchulzFunc] {
		inBF16 := op == kernels.OpNewtonSchulzBF16
		plan := &kernels.NewtonSchulzPlan{
			Steps: slices.Repeat([][3]float32{jordan}, newtonSchulzSteps), Safety: 1, BFloat16: inBF16,
			Gram: gram, GramRestart: gram && inBF16,
		}
		stack := func() kernels.Stack {
			return kernels.Stack{Data: floats(count*rows*cols, false), Count: count, Rows: rows, Cols: cols, Stride: cols, Step: rows * cols}
		}
		work := make([]float32, kernels.NewtonSchulzWork(plan, count, rows, cols, kernels.Threads(runtime.NumCPU())))
		dst, src := []kernels.Stack{stack()}, []kernels.Stack{stack()}
		flops := float64(count) * newtonSchulzFlops(plan, min(rows, cols), max(rows, cols))
		return matrices[kernels.NewtonSchulzFunc]{inBF16, flops, func(orthogonalize kernels.NewtonSchulzFunc, threads int) {
			orthogonalize(dst, src, plan, work, threads)
		}}
	}
}

// newtonSchulzFlops are those of one matrix. Symmetric products count as half of others.
func newtonSchulzFlops(plan *kernels.NewtonSchulzPlan, short, long int) float64 {
	outer, square := symmetricFlops(short, long), symmetricFlops(short, short)
	full := 2 * float64(short) * float64(short) * float64(long)
	steps := float64(len(plan.Steps))
	switch {
	case !plan.UsesGram(short, long):
		return steps * (outer + square + full)
	case plan.GramRestart: // of two parts, each with its X·Xᵀ and its product with X
		return 2*(outer+full) + square*(steps+3*(steps-2))
	default:
		return outer + full + square*(steps+3*(steps-1))
	}
}
