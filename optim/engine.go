package optim

import "github.com/lowbit-go/lowbit/kernels"

// engine is where tensors live and are worked on: everything else in this package only
// decides what to do.
type engine interface {
	sumSquares(gradients kernels.Floats) float64
	accumulate(sums, gradients kernels.Floats) error
	// adamW steps a parameter; skipped tells that it was left untouched as a whole.
	adamW(p *parameter, s *kernels.AdamWScalars) (c kernels.Counts, skipped bool, err error)
}

// cpu is the engine of the kernels in main memory.
type cpu struct{}

func (cpu) sumSquares(gradients kernels.Floats) float64 { return kernels.SumSquares(gradients) }

func (cpu) accumulate(sums, gradients kernels.Floats) error {
	return kernels.Accumulate(sums, gradients)
}

func (cpu) adamW(p *parameter, s *kernels.AdamWScalars) (kernels.Counts, bool, error) {
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
