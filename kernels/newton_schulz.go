package kernels

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// NewtonSchulzFunc is the signature of the newton_schulz rows. It returns the number of
// matrices that are not finite.
type NewtonSchulzFunc func(dst, src []Stack, plan *NewtonSchulzPlan, work []float32, threads int) (poisoned int)

var (
	OpNewtonSchulzFloat32 = declare(Op[NewtonSchulzFunc]{Name: "newton_schulz_float32"}, referenceNewtonSchulz, fast.newtonSchulzFloat32)
	OpNewtonSchulzBF16    = declare(Op[NewtonSchulzFunc]{Name: "newton_schulz_bfloat16", Class: Tolerance}, referenceNewtonSchulz, fast.newtonSchulzBF16)
)

func referenceNewtonSchulz(dst, src []Stack, plan *NewtonSchulzPlan, work []float32, _ int) (poisoned int) {
	for i := range src {
		poisoned += reference.NewtonSchulz(dst[i], src[i], plan, work)
	}
	return poisoned
}

// NewtonSchulzWork is the length, in float32 numbers, of a workspace with which NewtonSchulz
// of a stack of count matrices makes use of all its threads.
func NewtonSchulzWork(plan *NewtonSchulzPlan, count, rows, cols int, limit ...Threads) int64 {
	var w stackWork
	w.add(plan, count, rows, cols)
	return w.need(threads(limit))
}

// NewtonSchulzGroupsWork is the length, in float32 numbers, of a workspace with which
// NewtonSchulzGroups of these stacks makes use of all its threads. Only their shapes matter. It
// is the sum of plan.WorkSize of as many matrices as there are threads, the largest of those
// that take 16 MiB or less, or that of the largest of all, whichever is more.
func NewtonSchulzGroupsWork(plan *NewtonSchulzPlan, src []Stack, limit ...Threads) int64 {
	var w stackWork
	for i := range src {
		w.add(plan, src[i].Count, src[i].Rows, src[i].Cols)
	}
	return w.need(threads(limit))
}

// sharedWork is the size of a matrix's workspace from which on all threads share one.
const sharedWork = 4 << 20

// stackWork finds the largest matrices.
type stackWork struct {
	largest int64
	parts   [mostThreads]int64 // those that have parts of their own, the largest first
	n       int
}

func (w *stackWork) add(plan *NewtonSchulzPlan, count, rows, cols int) {
	size := plan.WorkSize(rows, cols)
	w.largest = max(w.largest, size)
	if size > sharedWork {
		return
	}
	at, _ := slices.BinarySearchFunc(w.parts[:w.n], size, func(a, b int64) int { return cmp.Compare(b, a) })
	count = min(max(count, 0), mostThreads-at)
	copy(w.parts[at+count:], w.parts[at:w.n])
	w.n = min(w.n+count, mostThreads)
	for i := range count {
		w.parts[at+i] = size
	}
}

func (w *stackWork) need(threads int) (size int64) {
	for _, part := range w.parts[:min(threads, w.n)] {
		size += part
	}
	return max(size, w.largest)
}

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
	c := idleStacks.Get().(*stacksCall)
	c.one = [2][1]Stack{{dst}, {src}}
	poisoned, err = c.run(c.one[0][:], c.one[1][:], plan, work, threads(limit))
	c.one = [2][1]Stack{}
	idleStacks.Put(c)
	return poisoned, err
}

// NewtonSchulzGroups is NewtonSchulz of stacks of different shapes, as the matrices of a model
// are: that of dst[i] from src[i] for each i, with the same bits as in calls of their own.
// Threads share all of them by their sizes, so that many small matrices take little longer
// than as many of one shape.
//
// dst[i] may be src[i]; any other overlap with what is written is an error. work has
// plan.WorkSize of the largest matrix or more, and makes use of all threads where it has
// NewtonSchulzGroupsWork.
func NewtonSchulzGroups(dst, src []Stack, plan *NewtonSchulzPlan, work []float32, limit ...Threads) (poisoned int, err error) {
	c := idleStacks.Get().(*stacksCall)
	c.groups = true
	poisoned, err = c.run(dst, src, plan, work, threads(limit))
	c.groups = false
	idleStacks.Put(c)
	return poisoned, err
}

// stacksCall is memory of a call.
type stacksCall struct {
	one    [2][1]Stack // dst and src of a call for one
	groups bool
	spans  []stackSpan
}

var idleStacks = sync.Pool{New: func() any { return new(stacksCall) }}

func (c *stacksCall) run(dst, src []Stack, plan *NewtonSchulzPlan, work []float32, threads int) (poisoned int, err error) {
	const op = "newton_schulz"
	if len(dst) != len(src) {
		return 0, fmt.Errorf("%s: dst has %d groups and src %d, want as many", op, len(dst), len(src))
	}
	for i := range src {
		if err := checkStacks(op, &dst[i], &src[i]); err != nil {
			if c.groups {
				err = checkStacks(fmt.Sprintf("%s: group %d", op, i), &dst[i], &src[i])
			}
			return 0, err
		}
	}
	if plan == nil {
		return 0, fmt.Errorf("%s: the plan is nil, want one of PlanNewtonSchulz", op)
	}
	need := int64(0)
	for i := range src {
		need = max(need, plan.WorkSize(src[i].Rows, src[i].Cols))
	}
	if int64(len(work)) < need {
		return 0, fmt.Errorf("%s: work has length %d, want %d or more", op, len(work), need)
	}
	if err := c.checkOverlaps(op, dst, src, work); err != nil {
		return 0, err
	}
	if !(plan.Safety > 0 && plan.Safety <= math.MaxFloat32) {
		return 0, fmt.Errorf("%s: the plan's safety is %v, want 1 or what Polynomials gives", op, plan.Safety)
	}
	run := OpNewtonSchulzFloat32.run
	if plan.BFloat16 {
		run = OpNewtonSchulzBF16.run
	}
	return run(dst, src, plan, work, threads), nil
}

func checkStacks(op string, dst, src *Stack) error {
	if dst.Count != src.Count || dst.Rows != src.Rows || dst.Cols != src.Cols {
		return fmt.Errorf("%s: dst is %d of %dx%d, want %d of %dx%d as src", op, dst.Count, dst.Rows, dst.Cols, src.Count, src.Rows, src.Cols)
	}
	if err := checkStack(op, "dst", *dst); err != nil {
		return err
	}
	return checkStack(op, "src", *src)
}

// stackSpan is the memory of a group's stack, or of the workspace.
type stackSpan struct {
	kind   stackKind
	group  int
	lo, hi uintptr
}

// stackKind is what a stack is. All but sources are written.
type stackKind int

const (
	workKind stackKind = iota
	dstKind
	srcKind
)

// checkOverlaps goes through the memory in its order. What begins before the furthest end of
// all before, and one of them is written, overlaps.
func (c *stacksCall) checkOverlaps(op string, dst, src []Stack, work []float32) error {
	c.spans = c.spans[:0]
	c.add(workKind, 0, spanOf("", work))
	for i := range src {
		to, from := stackMemory(&dst[i]), stackMemory(&src[i])
		c.add(dstKind, i, to)
		if inPlace := to == from && dst[i].Stride == src[i].Stride && dst[i].Step == src[i].Step; !inPlace {
			c.add(srcKind, i, from)
		}
	}
	slices.SortFunc(c.spans, func(a, b stackSpan) int { return cmp.Compare(a.lo, b.lo) })
	var furthest, written stackSpan
	for _, s := range c.spans {
		before := furthest
		if s.kind == srcKind {
			before = written
		}
		if before.hi > s.lo {
			a, b := before, s
			if a.kind > b.kind || a.kind == b.kind && a.group > b.group {
				a, b = b, a
			}
			return fmt.Errorf("%s: %s and %s overlap, want separate memory", op, c.name(a), c.name(b))
		}
		if s.hi > furthest.hi {
			furthest = s
		}
		if s.kind != srcKind && s.hi > written.hi {
			written = s
		}
	}
	return nil
}

func (c *stacksCall) add(kind stackKind, group int, memory span) {
	if memory.lo < memory.hi {
		c.spans = append(c.spans, stackSpan{kind, group, memory.lo, memory.hi})
	}
}

func (c *stacksCall) name(s stackSpan) string {
	name := [...]string{"work", "dst", "src"}[s.kind]
	if c.groups && s.kind != workKind {
		name = fmt.Sprintf("%s of group %d", name, s.group)
	}
	return name
}

func stackMemory(s *Stack) span {
	n := matrixLen(Matrix{Rows: s.Rows, Cols: s.Cols, Stride: s.Stride})
	if s.Count == 0 || n == 0 {
		return span{}
	}
	if s.Count > 1 {
		n += (s.Count - 1) * s.Step
	}
	return floatsSpan("", s.Data.Slice(0, n))
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
