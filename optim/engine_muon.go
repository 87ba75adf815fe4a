package optim

import (
	"math"

	"github.com/lowbit-go/lowbit/kernels"
)

// muonPiece is whole matrices of one parameter, and whole blocks of their momentum.
type muonPiece struct {
	p       *parameter
	s       *muonStep
	tensors kernels.MuonTensors
	taken   bool // into a batch
}

// batchElements occupy every worker.
const batchElements = 1 << 20

// muon leaves a stack of matrices for finish, in pieces of a batch or less.
func (e *cpu) muon(p *parameter, s *muonStep) (c kernels.Counts, skipped bool, err error) {
	t := kernels.MuonTensors{
		Weights: p.Weights, Low: p.moments.low, Gradients: p.gradients(), Momentum: p.moments.m,
	}
	if err := kernels.CheckMuon(&t); err != nil {
		return c, false, err
	}
	p.skipped = 0
	size := p.muonPiece()
	for lo := 0; lo < p.n; lo += min(size, p.n-lo) {
		e.pieces = append(e.pieces, muonPiece{p: p, s: s, tensors: t.Slice(lo, lo+min(size, p.n-lo))})
	}
	return c, false, nil
}

// muonPiece is the number of elements that are orthogonalised at a time.
func (p *parameter) muonPiece() int {
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

// finishMuon steps the pieces, those of matrices of one shape together.
func (e *cpu) finishMuon() (c kernels.Counts, skipped int64, err error) {
	for i := range e.pieces {
		if e.pieces[i].taken {
			continue
		}
		e.takeBatch(i)
		if err := e.muonBatch(&c); err != nil {
			return c, 0, err
		}
	}
	for i := range e.pieces {
		if p := e.pieces[i].p; p.skipped == int64(p.n) {
			skipped++
			p.skipped = 0 // its other pieces do not count again
		}
	}
	clear(e.pieces)
	e.pieces = e.pieces[:0]
	return c, skipped, nil
}

// takeBatch collects pieces from the first on.
func (e *cpu) takeBatch(first int) {
	e.batch = e.batch[:0]
	shape, n := e.pieces[first].p.matrix(), 0
	for i := first; i < len(e.pieces) && n < batchElements; i++ {
		piece := &e.pieces[i]
		if piece.taken || piece.p.matrix() != shape || n > 0 && n+piece.tensors.Weights.Len() > batchElements {
			continue
		}
		piece.taken = true
		n += piece.tensors.Weights.Len()
		e.batch = append(e.batch, piece)
	}
}

// matrix is the shape of each matrix.
func (p *parameter) matrix() matrixShape { return matrixShape{1, p.shape.rows, p.shape.cols} }

// muonBatch stores nothing before the orthogonalised directions are known to be finite, or
// their going on is wanted.
func (e *cpu) muonBatch(c *kernels.Counts) error {
	n := 0
	for _, piece := range e.batch {
		n += piece.tensors.Weights.Len()
	}
	shape, plan := e.batch[0].p.matrix(), &e.batch[0].s.plan
	size := shape.rows * shape.cols
	need := int64(n) + kernels.NewtonSchulzWork(plan, n/size, shape.rows, shape.cols)
	if int64(len(e.work)) < need {
		e.work = make([]float32, need)
	}
	updates := e.work[:n:n]
	for lo, i := 0, 0; i < len(e.batch); i++ {
		piece := e.batch[i]
		hi := lo + piece.tensors.Weights.Len()
		piece.tensors.Update = updates[lo:hi:hi]
		if err := kernels.MuonDirection(piece.tensors.Update, &piece.tensors, &piece.s.MuonScalars); err != nil {
			return err
		}
		lo = hi
	}
	poisoned, err := e.orthogonalize(updates, shape, e.batch[0].s, e.work[n:])
	if err != nil {
		return err
	}
	c.NonFinite += int64(poisoned) * int64(size)
	for _, piece := range e.batch {
		if poisoned == 0 || !piece.s.skipNonFinite {
			err = kernels.MuonUpdate(&piece.tensors, &piece.s.MuonScalars)
		} else {
			before := c.SkippedElements
			err = updateFinite(&piece.tensors, size, &piece.s.MuonScalars, c)
			piece.p.skipped += c.SkippedElements - before
		}
		if err != nil {
			return err
		}
	}
	return nil
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
