package optim

import "github.com/lowbit-go/lowbit/kernels"

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
	// again tells whether finish would take the steps of these parameters, in this order and
	// as they are now.
	again(params []*parameter) bool
}

// cpu is the engine of the kernels in main memory.
type cpu struct {
	work   []float32 // of a batch of matrices: their directions and Newton-Schulz's workspace
	saved  []float32 // with adaptive, a matrix's direction before
	pieces []muonPiece
	batch  []*muonPiece

	calls kernels.AdamWCalls

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
		return kernels.AdamWFactored(&e.tensors, p.moments.row, p.moments.col, s)
	}
	return kernels.Counts{}, false, e.calls.Add(&e.tensors, s)
}

func (e *cpu) begin() {
	e.calls.Clear()
	clear(e.pieces)
	e.pieces = e.pieces[:0]
}

func (e *cpu) finish() (c kernels.Counts, skipped int64, err error) {
	c, skipped, err = e.finishMuon()
	c.Add(e.calls.Run())
	return c, skipped, err
}

func (e *cpu) again(params []*parameter) bool {
	if e.calls.Len() != len(params) { // some are not AdamW's, or had no gradients
		return false
	}
	for i, p := range params {
		if !e.calls.Holds(i, &p.Weights, &p.Gradients) {
			return false
		}
	}
	return true
}
