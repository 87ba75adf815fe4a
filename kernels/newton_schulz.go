package kernels

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// NewtonSchulzFunc is the signature of the newton_schulz rows. It returns the number of
// matrices that are not finite.
type NewtonSchulzFunc func(dst, src Stack, plan *NewtonSchulzPlan, work []float32, threads int) (poisoned int)

var (
	OpNewtonSchulzFloat32 = declare(Op[NewtonSchulzFunc]{Name: "newton_schulz_float32"}, referenceNewtonSchulz, fast.newtonSchulzFloat32)
	OpNewtonSchulzBF16    = declare(Op[NewtonSchulzFunc]{Name: "newton_schulz_bfloat16", Class: Tolerance}, referenceNewtonSchulz, fast.newtonSchulzBF16)
)

func referenceNewtonSchulz(dst, src Stack, plan *NewtonSchulzPlan, work []float32, _ int) (poisoned int) {
	return reference.NewtonSchulz(dst, src, plan, work)
}

// NewtonSchulzWork is the length, in float32 numbers, of a workspace with which NewtonSchulz
// of a stack of count matrices makes use of all its threads: the plan's WorkSize for each
// matrix that is worked on at a time.
func NewtonSchulzWork(plan *NewtonSchulzPlan, count, rows, cols int, limit ...Threads) int64 {
	size := plan.WorkSize(rows, cols)
	if short := float64(min(rows, cols)); short*float64(rows)*float64(cols) > sharedWork {
		return size
	}
	return size * int64(max(min(count, threads(limit)), 1))
}

// sharedWork is the number of multiply-adds of a product that is worth sharing.
const sharedWork = 1 << 26

// NewtonSchulz sets each matrix of dst to an approximation of the polar factor of src's:
// the singular vectors stay, and each singular value, divided by the matrix's norm, goes
// through the plan's polynomials towards 1 (Jordan et al., Muon, 2024). Wide, tall and
// square matrices of any size from 1x1 are each worked on alone, so those of a stack do
// not influence each other. A matrix of zeros gives zeros; one with a NaN or an infinity
// gives NaN throughout and is counted.
//
// dst may be src; any other overlap is an error. work has plan.WorkSize(rows, cols)
// elements or more, so that repeated calls allocate nothing; threads work on matrices of
// their own where it has NewtonSchulzWork.
func NewtonSchulz(dst, src Stack, plan *NewtonSchulzPlan, work []float32, limit ...Threads) (poisoned int, err error) {
	const op = "newton_schulz"
	if dst.Count != src.Count || dst.Rows != src.Rows || dst.Cols != src.Cols {
		return 0, fmt.Errorf("%s: dst is %d of %dx%d, want %d of %dx%d as src", op, dst.Count, dst.Rows, dst.Cols, src.Count, src.Rows, src.Cols)
	}
	if err := checkStack(op, "dst", dst); err != nil {
		return 0, err
	}
	if err := checkStack(op, "src", src); err != nil {
		return 0, err
	}
	if need := plan.WorkSize(src.Rows, src.Cols); int64(len(work)) < need {
		return 0, fmt.Errorf("%s: work has length %d, want %d or more", op, len(work), need)
	}
	to, from := floatsSpan("dst", dst.Data), floatsSpan("src", src.Data)
	inPlace := dst.Stride == src.Stride && dst.Step == src.Step && to.lo == from.lo && to.hi == from.hi
	if !inPlace {
		if err := disjoint(op, to, from); err != nil {
			return 0, err
		}
	}
	if err := disjoint(op, spanOf("work", work), to); err != nil {
		return 0, err
	}
	if err := disjoint(op, spanOf("work", work), from); err != nil {
		return 0, err
	}
	if !(plan.Safety > 0 && plan.Safety <= math.MaxFloat32) {
		return 0, fmt.Errorf("%s: the plan's safety is %v, want 1 or what Polynomials gives", op, plan.Safety)
	}
	if src.Count == 0 || src.Rows == 0 || src.Cols == 0 {
		return 0, nil
	}
	run := OpNewtonSchulzFloat32.run
	if plan.BFloat16 {
		run = OpNewtonSchulzBF16.run
	}
	return run(dst, src, plan, work, threads(limit)), nil
}

func checkStack(op, name string, s Stack) error {
	if s.Count < 0 {
		return fmt.Errorf("%s: %s has %d matrices, want 0 or more", op, name, s.Count)
	}
	matrix := Matrix{Data: s.Data, Rows: s.Rows, Cols: s.Cols, Stride: s.Stride}
	if s.Count == 0 {
		return nil
	}
	if err := checkMatrix(op, name, matrix); err != nil {
		return err
	}
	size := matrixLen(matrix)
	if s.Count > 1 && s.Step < size {
		return fmt.Errorf("%s: the matrices of %s are %d apart, want %d or more", op, name, s.Step, size)
	}
	if s.Step > 0 && s.Count-1 > (math.MaxInt-size)/s.Step {
		return fmt.Errorf("%s: %s has %d matrices that are %d apart, which no memory holds", op, name, s.Count, s.Step)
	}
	if need := (s.Count-1)*s.Step + size; s.Data.Len() < need {
		return lengthError(op, name, s.Data.Len(), need, fmt.Sprintf("or more for %d matrices", s.Count))
	}
	return nil
}
