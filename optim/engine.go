package optim

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels"
)

// engine is where tensors live and are worked on: everything else in this package only
// decides what to do.
type engine interface {
	sumSquares(gradients kernels.Floats) float64
	accumulate(sums, gradients kernels.Floats) error
	// adamW and muon step a parameter; skipped tells that it was left untouched as a whole.
	// The step may be left for finish, and then s must not change before.
	adamW(p *parameter, s *kernels.AdamWScalars) (c kernels.Counts, skipped bool, err error)
	muon(p *parameter, s *muonStep) (c kernels.Counts, skipped bool, err error)
	// begin forgets the steps that were left for finish, which takes them together, and
	// tells how many parameters it left untouched.
	begin()
	finish() (c kernels.Counts, skipped int64, err error)
	// again tells whether finish would take the steps of so many parameters, as they are now.
	again(count int) bool
}

// cpu is the engine of the kernels in main memory.
type cpu struct {
	pieces []muonPiece
	batch  []*muonPiece
	work   []float32 // of a batch: directions, and the rest for Newton-Schulz
	saved  []float32 // with adaptive, the directions before

	directions, rest []float32
	stacks           []kernels.Stack // of directions, one a piece
	part             muonPart

	calls kernels.AdamWCalls
	added []addedParam
	check stayCheck

	tensors kernels.AdamWTensors // of the parameter that is being added
}

func (*cpu) sumSquares(gradients kernels.Floats) float64 { return kernels.SumSquares(gradients) }

func (*cpu) accumulate(sums, gradients kernels.Floats) error {
	return kernels.Accumulate(sums, gradients)
}

func (e *cpu) adamW(p *parameter, s *kernels.AdamWScalars) (kernels.Counts, bool, error) {
	e.tensors = kernels.AdamWTensors{
		Weights: p.Weights, Low: p.moments.low, Gradients: p.gradients(), M: p.moments.m, V: p.moments.v,
	}
	if p.storage == storeFactored {
		e.tensors.V.Row, e.tensors.V.Col = p.moments.row, p.moments.col
	}
	e.added = append(e.added, newAddedParam(p.Param, &e.tensors.Weights, &e.tensors.Gradients))
	return kernels.Counts{}, false, e.calls.Add(&e.tensors, s)
}

func (e *cpu) begin() {
	e.calls.Clear()
	clear(e.added)
	e.added = e.added[:0]
	clear(e.pieces)
	e.pieces = e.pieces[:0]
}

func (e *cpu) finish() (c kernels.Counts, skipped int64, err error) {
	c, skipped, err = e.finishMuon()
	counts, skippedByAdamW := e.calls.Run()
	c.Add(counts)
	return c, skipped + skippedByAdamW, err
}

func (e *cpu) again(count int) bool {
	if len(e.added) != count { // some are not AdamW's, or had no gradients
		return false
	}
	e.check.moved.Store(false)
	e.check.added = e.added
	workers.Run(runtime.GOMAXPROCS(0), (count-1)/checkedTogether+1, &e.check)
	return !e.check.moved.Load()
}

// stayCheck looks for parameters whose tensors have moved.
type stayCheck struct {
	added []addedParam
	moved atomic.Bool
}

const checkedTogether = 2048

// Do looks at one piece of the parameters.
func (c *stayCheck) Do(_, piece int) {
	added := c.added[piece*checkedTogether:]
	for i := range added[:min(checkedTogether, len(added))] {
		if !added[i].stays() {
			c.moved.Store(true)
		}
	}
}

// addedParam is a parameter whose step was left for finish, and where its tensors were.
type addedParam struct {
	*Param
	weights, gradients      unsafe.Pointer
	n                       int
	narrow, narrowGradients bool
}

func newAddedParam(p *Param, weights, gradients *kernels.Floats) addedParam {
	a := addedParam{Param: p, n: weights.Len(), narrow: weights.BF16 != nil, narrowGradients: gradients.BF16 != nil}
	a.weights, a.gradients = address(weights), address(gradients)
	return a
}

func (a *addedParam) stays() bool {
	return isAt(&a.Weights, a.weights, a.n, a.narrow) && isAt(&a.Gradients, a.gradients, a.n, a.narrowGradients)
}

func address(f *kernels.Floats) unsafe.Pointer {
	if f.BF16 != nil {
		return unsafe.Pointer(unsafe.SliceData(f.BF16))
	}
	return unsafe.Pointer(unsafe.SliceData(f.F32))
}

func isAt(f *kernels.Floats, memory unsafe.Pointer, n int, narrow bool) bool {
	if narrow {
		return unsafe.Pointer(unsafe.SliceData(f.BF16)) == memory && len(f.BF16) == n && f.F32 == nil
	}
	return unsafe.Pointer(unsafe.SliceData(f.F32)) == memory && len(f.F32) == n && f.BF16 == nil
}
