package optim

import (
	"math"
	"runtime"

	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels"
)

// muonPiece is whole matrices of one parameter, and whole blocks of their momentum.
type muonPiece struct {
	p       *parameter
	s       *muonStep
	tensors kernels.MuonTensors
	taken   bool // into a batch
	err     error
}

// batchElements occupy every worker.
func batchElements() int { return max(4, runtime.GOMAXPROCS(0)) * workerElements }

var workerElements = 1 << 18 // fewer in tests

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
	return int(min(size*max(1, int64(batchElements())/size), int64(p.n)))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// finishMuon steps the pieces, those of a batch together.
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
	n, most := 0, batchElements()
	for i := first; i < len(e.pieces) && n < most; i++ {
		piece := &e.pieces[i]
		if piece.taken || n > 0 && n+piece.tensors.Weights.Len() > most {
			continue
		}
		piece.taken = true
		n += piece.tensors.Weights.Len()
		e.batch = append(e.batch, piece)
	}
}

// muonBatch stores nothing before the orthogonalised directions are known to be finite, or
// their going on is wanted.
func (e *cpu) muonBatch(c *kernels.Counts) error {
	e.allocateBatch()
	if err := e.each(muonDirection); err != nil {
		return err
	}
	poisoned, err := e.orthogonalize()
	if err != nil {
		return err
	}
	if poisoned == 0 {
		return e.each(muonUpdate)
	}
	for _, piece := range e.batch {
		if err := piece.updatePoisoned(c); err != nil {
			return err
		}
	}
	return nil
}

// allocateBatch gives each piece memory for its direction, and leaves the rest of the
// workspace.
func (e *cpu) allocateBatch() {
	n := 0
	e.stacks = e.stacks[:0]
	for _, piece := range e.batch {
		e.stacks = append(e.stacks, piece.stack())
		n += piece.tensors.Weights.Len()
	}
	need := int64(n) + kernels.NewtonSchulzGroupsWork(&e.batch[0].s.plan, e.stacks)
	if int64(len(e.work)) < need {
		e.work = make([]float32, need)
	}
	e.directions, e.rest = e.work[:n], e.work[n:]
	lo := 0
	for i, piece := range e.batch {
		hi := lo + piece.tensors.Weights.Len()
		piece.tensors.Update = e.work[lo:hi:hi]
		e.stacks[i].Data = kernels.Float32s(piece.tensors.Update)
		lo = hi
	}
}

// stack is the shape of the matrices.
func (m *muonPiece) stack() kernels.Stack {
	rows, cols := m.p.shape.rows, m.p.shape.cols
	return kernels.Stack{Count: m.tensors.Weights.Len() / (rows * cols), Rows: rows, Cols: cols, Stride: cols, Step: rows * cols}
}

// muonPart is a part of a step that is done for each piece.
type muonPart func(m *muonPiece, threads kernels.Threads) error

func muonDirection(m *muonPiece, threads kernels.Threads) error {
	return kernels.MuonDirection(m.tensors.Update, &m.tensors, &m.s.MuonScalars, threads)
}

func muonUpdate(m *muonPiece, threads kernels.Threads) error {
	return kernels.MuonUpdate(&m.tensors, &m.s.MuonScalars, threads)
}

// each does a part: goroutines take small pieces as they are, and share large ones.
func (e *cpu) each(part muonPart) error {
	e.part = part
	workers.Run(runtime.GOMAXPROCS(0), len(e.batch), (*smallPieces)(e))
	for _, piece := range e.batch {
		if piece.large() {
			piece.err = part(piece, 0)
		}
		if piece.err != nil {
			return piece.err
		}
	}
	return nil
}

// large pieces have elements for several goroutines.
func (m *muonPiece) large() bool { return m.tensors.Weights.Len() > 64<<10 }

type smallPieces cpu

// Do does a part of one piece.
func (e *smallPieces) Do(_, piece int) {
	if m := e.batch[piece]; !m.large() {
		m.err = e.part(m, 1)
	}
}

// updatePoisoned updates what is not.
func (m *muonPiece) updatePoisoned(c *kernels.Counts) error {
	size := m.p.shape.rows * m.p.shape.cols
	for lo := 0; lo < len(m.tensors.Update); lo += size {
		if m.tensors.Update[lo] != m.tensors.Update[lo] {
			c.NonFinite += int64(size)
		}
	}
	if !m.s.skipNonFinite {
		return kernels.MuonUpdate(&m.tensors, &m.s.MuonScalars)
	}
	before := c.SkippedElements
	err := updateFinite(&m.tensors, size, &m.s.MuonScalars, c)
	m.p.skipped += c.SkippedElements - before
	return err
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

// orthogonalize sets directions to their polar factors, with adaptive times their products
// with them.
func (e *cpu) orthogonalize() (poisoned int, err error) {
	step := e.batch[0].s
	if step.adaptive {
		e.saved = append(e.saved[:0], e.directions...)
	}
	poisoned, err = kernels.NewtonSchulzGroups(e.stacks, e.stacks, &step.plan, e.rest)
	if err != nil || !step.adaptive {
		return poisoned, err
	}
	poisoned, before := 0, e.saved
	for _, s := range e.stacks {
		for lo := 0; lo < s.Data.Len(); lo += s.Step {
			x := s.Data.Slice(lo, lo+s.Step)
			dual, err := kernels.Dot(before[:s.Step], x.F32)
			if err != nil {
				return 0, err
			}
			before = before[s.Step:]
			factor := float32(dual)
			if factor-factor != 0 {
				factor = float32(math.NaN())
				poisoned++
			}
			kernels.Scale(x, factor)
		}
	}
	return poisoned, nil
}
