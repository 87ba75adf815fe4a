package optim

import "github.com/lowbit-go/lowbit/kernels"

// engine is where tensors live and are worked on: everything else in this package only
// decides what to do.
type engine interface {
	sumSquares(gradients kernels.Floats) float64
	accumulate(sums, gradients kernels.Floats) error
	// adamW steps a parameter; skipped tells that it was left untouched as a whole.
	adamW(p *parameter, s *kernels.AdamWScalars) (c kernels.Counts, skipped bool, err error)
	muon(p *parameter, s *muonStep) (c kernels.Counts, skipped bool, err error)
}

// cpu is the engine of the kernels in main memory.
type cpu struct {
	work  []float32 // of one Muon step: the direction and Newton-Schulz's workspace
	saved []float32 // with adaptive, the direction before
}

func (*cpu) sumSquares(gradients kernels.Floats) float64 { return kernels.SumSquares(gradients) }

func (*cpu) accumulate(sums, gradients kernels.Floats) error {
	return kernels.Accumulate(sums, gradients)
}

func (*cpu) adamW(p *parameter, s *kernels.AdamWScalars) (kernels.Counts, bool, error) {
	t := kernels.AdamWTensors{
		Weights: p.Weights, Low: p.moments.low, Gradients: p.gradients(),
		M: p.moments.m, V: p.moments.v,
	}
	if p.storage != storeFactored {
		c, err := kernels.AdamW(&t, s)
		return c, false, err
	}
	return kernels.AdamWFactored(&t, p.moments.row, p.moments.col, s)
}

// muon steps a stack of matrices. Nothing is stored before the orthogonalised direction is
// known to be finite or its going on is wanted.
func (e *cpu) muon(p *parameter, s *muonStep) (kernels.Counts, bool, error) {
	n, shape := p.n, p.shape
	if n == 0 {
		return kernels.Counts{}, false, nil
	}
	if need := int64(n) + kernels.NewtonSchulzWork(&s.plan, n/(shape.rows*shape.cols), shape.rows, shape.cols); int64(len(e.work)) < need {
		e.work = make([]float32, need)
	}
	update, work := e.work[:n:n], e.work[n:]
	t := kernels.MuonTensors{
		Weights: p.Weights, Low: p.moments.low, Gradients: p.gradients(),
		Momentum: p.moments.m, Update: update,
	}
	if err := kernels.MuonDirection(update, &t, &s.MuonScalars); err != nil {
		return kernels.Counts{}, false, err
	}
	poisoned, err := e.orthogonalize(update, shape, s, work)
	if err != nil {
		return kernels.Counts{}, false, err
	}
	c := kernels.Counts{NonFinite: int64(poisoned) * int64(shape.rows*shape.cols)}
	if poisoned > 0 && s.SkipNonFinite {
		c.SkippedElements = int64(n)
		return c, true, nil
	}
	return c, false, kernels.MuonUpdate(&t, &s.MuonScalars)
}

func (e *cpu) orthogonalize(update []float32, shape matrixShape, s *muonStep, work []float32) (poisoned int, err error) {
	size := shape.rows * shape.cols
	stack := func(x []float32) kernels.Stack {
		return kernels.Stack{Data: kernels.Float32s(x), Count: len(x) / size, Rows: shape.rows, Cols: shape.cols, Stride: shape.cols, Step: size}
	}
	if !s.adaptive {
		all := stack(update)
		return kernels.NewtonSchulz(all, all, &s.plan, work)
	}
	for lo := 0; lo < len(update); lo += size {
		x, o := update[lo:lo+size], e.direction(size)
		copy(o, x)
		bad, err := kernels.NewtonSchulz(stack(x), stack(x), &s.plan, work)
		if err != nil {
			return 0, err
		}
		poisoned += bad
		dual, err := kernels.Dot(o, x)
		if err != nil {
			return 0, err
		}
		kernels.Scale(kernels.Float32s(x), float32(dual))
	}
	return poisoned, nil
}

// direction is a matrix that keeps a direction while it is orthogonalised in place.
func (e *cpu) direction(size int) []float32 {
	if len(e.saved) < size {
		e.saved = make([]float32, size)
	}
	return e.saved[:size]
}
