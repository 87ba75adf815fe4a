package optim

import (
	"math"

	"github.com/lowbit-go/lowbit/kernels"
)

// engine is where tensors live and are worked on: everything else in this package only
// decides what to do.
type engine interface {
	sumSquares(gradients kernels.Floats) float64
	accumulate(sums, gradients kernels.Floats) error
	// adamW steps a parameter; skipped tells that it was left untouched as a whole. The step
	// may be left for finish, and then s must not change before.
	adamW(p *parameter, s *kernels.AdamWScalars) (c kernels.Counts, skipped bool, err error)
	muon(p *parameter, s *muonStep) (c kernels.Counts, skipped bool, err error)
	// begin forgets the steps that were left for finish, which takes them together.
	begin()
	finish() kernels.Counts
	// again tells whether finish would take the steps of these parameters, in this order and
	// as they are now.
	again(params []*parameter) bool
}

// cpu is the engine of the kernels in main memory.
type cpu struct {
	work  []float32 // of a batch of matrices: their directions and Newton-Schulz's workspace
	saved []float32 // with adaptive, a matrix's direction before
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

func (e *cpu) begin() { e.calls.Clear() }

func (e *cpu) finish() kernels.Counts { return e.calls.Run() }

func (e *cpu) again(params []*parameter) bool {
	if e.calls.Len() != len(params) {
		return false
	}
	for i, p := range params {
		if !e.calls.Holds(i, &p.Weights, &p.Gradients) {
			return false
		}
	}
	return true
}

// muon steps a stack of matrices, a batch at a time.
func (e *cpu) muon(p *parameter, s *muonStep) (c kernels.Counts, skipped bool, err error) {
	t := kernels.MuonTensors{
		Weights: p.Weights, Low: p.moments.low, Gradients: p.gradients(), Momentum: p.moments.m,
	}
	batch := p.batch()
	for lo := 0; lo < p.n; lo += min(batch, p.n-lo) {
		piece := t.Slice(lo, lo+min(batch, p.n-lo))
		counts, err := e.muonBatch(&piece, p.shape, s)
		c.Add(counts)
		if err != nil {
			return c, false, err
		}
	}
	return c, c.SkippedElements == int64(p.n), nil
}

// batchElements occupy every worker.
const batchElements = 1 << 20

// batch is the number of elements that are orthogonalised at a time: of whole matrices,
// and of whole blocks of the momentum.
func (p *parameter) batch() int {
	size := int64(p.shape.rows) * int64(p.shape.cols)
	if m := p.moments.m; m.Quantized() {
		size *= int64(m.Format.Block) / gcd(size, int64(m.Format.Block))
	}
	return int(min(size*max(1, batchElements/size), int64(p.n)))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// muonBatch stores nothing before the orthogonalised directions are known to be finite, or
// their going on is wanted.
func (e *cpu) muonBatch(t *kernels.MuonTensors, shape matrixShape, s *muonStep) (c kernels.Counts, err error) {
	n, size := t.Weights.Len(), shape.rows*shape.cols
	need := int64(n) + kernels.NewtonSchulzWork(&s.plan, n/size, shape.rows, shape.cols)
	if int64(len(e.work)) < need {
		e.work = make([]float32, need)
	}
	t.Update = e.work[:n:n]
	if err := kernels.MuonDirection(t.Update, t, &s.MuonScalars); err != nil {
		return c, err
	}
	poisoned, err := e.orthogonalize(t.Update, shape, s, e.work[n:])
	if err != nil {
		return c, err
	}
	c.NonFinite = int64(poisoned) * int64(size)
	if poisoned == 0 || !s.skipNonFinite {
		return c, kernels.MuonUpdate(t, &s.MuonScalars)
	}
	err = updateFinite(t, size, &s.MuonScalars, &c)
	return c, err
}

// updateFinite leaves poisoned matrices alone, which are NaN throughout, with all that
// shares a block of the momentum with them.
func updateFinite(t *kernels.MuonTensors, size int, s *kernels.MuonScalars, c *kernels.Counts) error {
	block := 1
	if t.Momentum.Quantized() {
		block = t.Momentum.Format.Block
	}
	n, done := len(t.Update), 0
	update := func(hi int) error {
		if done >= hi {
			return nil
		}
		piece := t.Slice(done, hi)
		return kernels.MuonUpdate(&piece, s)
	}
	for lo := 0; lo < n; lo += size {
		first, last := max(lo/block*block, done), lo+size
		if rest := last % block; rest != 0 {
			last += min(block-rest, n-last)
		}
		if t.Update[lo] == t.Update[lo] || first >= last {
			continue
		}
		if err := update(first); err != nil {
			return err
		}
		c.SkippedElements += int64(last - first)
		if block > 1 {
			c.SkippedBlocks += int64((last-first-1)/block + 1)
		}
		done = last
	}
	return update(n)
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
	if len(e.saved) < size {
		e.saved = make([]float32, size)
	}
	direction := e.saved[:size]
	for lo := 0; lo < len(update); lo += size {
		x := update[lo : lo+size]
		copy(direction, x)
		bad, err := kernels.NewtonSchulz(stack(x), stack(x), &s.plan, work)
		if err != nil {
			return 0, err
		}
		dual, err := kernels.Dot(direction, x)
		if err != nil {
			return 0, err
		}
		factor := float32(dual)
		if factor-factor != 0 {
			factor, bad = float32(math.NaN()), 1
		}
		poisoned += bad
		kernels.Scale(kernels.Float32s(x), factor)
	}
	return poisoned, nil
}
