package kernels

import (
	"errors"
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// AdamWCalls are steps of many parameters that are taken together, again and again, so that
// a model of small parameters costs little more than one large parameter: each is checked
// once, and goroutines share the parameters instead of every parameter. The zero value is
// ready for use.
type AdamWCalls struct {
	kinds   []*adamWKind
	calls   []adamWCall
	pieces  []adamWPiece
	split   []int // the calls that goroutines share, which have no piece
	workers []*adamWWorker
}

// adamWCall is a parameter and its step.
type adamWCall struct {
	adamWMemory
	kind    *adamWKind
	scalars *AdamWScalars
}

// adamWMemory is where the tensors of a parameter are.
type adamWMemory struct {
	weights, low, gradients unsafe.Pointer
	m, v                    unsafe.Pointer // numbers or codes
	mScales, vScales        unsafe.Pointer
	n                       int
	rows                    int // of factors, which are v and vScales then
}

func adamWMemoryOf(t *AdamWTensors) adamWMemory {
	at := adamWMemory{
		weights: floatsPointer(&t.Weights), low: pointer(t.Low), gradients: floatsPointer(&t.Gradients),
		m: momentPointer(&t.M), v: momentPointer(&t.V), mScales: pointer(t.M.Scales), vScales: pointer(t.V.Scales),
		n: t.Weights.Len(),
	}
	if t.V.Factored() {
		at.v, at.vScales, at.rows = pointer(t.V.Row), pointer(t.V.Col), len(t.V.Row)
	}
	return at
}

// adamWKind is what parameters of the same formats have in common: their tensors, but for
// the memory.
type adamWKind struct {
	tensors AdamWTensors
	align   int
	run     AdamWFunc
	many    adamWManyFunc

	matrices adamWMatricesFunc
}

// adamWManyFunc steps parameters of one kind by the same scalars. The tensors are the
// kind's, for its own use.
type adamWManyFunc func(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) Counts

// adamWMatricesFunc steps the first of many matrices with their factors, as AdamWFactored
// does, and tells how many it has stepped: none where the first is not of the kind that it is
// for.
type adamWMatricesFunc func(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) (stepped int, c Counts)

func noMatrices(*AdamWTensors, []adamWCall, *AdamWScalars) (int, Counts) { return 0, Counts{} }

// each is run for each of many parameters.
func (run AdamWFunc) each(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) (c Counts) {
	for i := range calls {
		calls[i].fill(t)
		c.Add(run(t, s))
	}
	return c
}

// adamWPiece is several whole parameters of one kind and scalars, or a part of one where hi is above 0.
type adamWPiece struct{ first, last, lo, hi int }

type adamWWorker struct {
	kind    *adamWKind
	tensors AdamWTensors
	part    AdamWTensors
	counts  Counts
	skipped int64
	factors []float32 // new ones
}

// Clear forgets all parameters.
func (c *AdamWCalls) Clear() {
	clear(c.calls)
	c.calls, c.pieces = c.calls[:0], c.pieces[:0]
	for _, w := range c.workers {
		*w = adamWWorker{factors: w.factors}
	}
}

// Add checks a parameter as AdamW does, and makes it one of those that Run steps, by what s
// is then. No two of them may be the same. Where the second moment is factored, its factors
// are stepped too, as AdamWFactored does.
func (c *AdamWCalls) Add(t *AdamWTensors, s *AdamWScalars) error {
	if err := checkAdamW(t); err != nil {
		return err
	}
	if t.First != 0 || t.V.Factored() && t.Weights.Len() != len(t.V.Row)*len(t.V.Col) {
		return errors.New("adamw: found a part of a parameter, want a whole one")
	}
	if t.Weights.Len() == 0 {
		return nil
	}
	c.pieces = c.pieces[:0]
	c.calls = append(c.calls, adamWCall{adamWMemoryOf(t), c.kind(t), s})
	return nil
}

func (c *AdamWCalls) kind(t *AdamWTensors) *adamWKind {
	for _, kind := range c.kinds {
		if kind.has(t) {
			return kind
		}
	}
	kind := newAdamWKind(t)
	c.kinds = append(c.kinds, kind)
	return kind
}

// newAdamWKind keeps nobody's slices alive.
func newAdamWKind(t *AdamWTensors) *adamWKind {
	op := OpAdamW(t)
	k := &adamWKind{tensors: *t, align: randomGroup, run: op.run, many: op.many, matrices: op.matrices}
	if k.many == nil {
		k.many = op.run.each
	}
	if k.matrices == nil {
		k.matrices = noMatrices
	}
	if t.V.Factored() {
		k.tensors.V.Row, k.tensors.V.Col = []float32{}, []float32{}
	}
	if t.M.Quantized() {
		k.align = pieceAlign(t.M.Format)
	}
	if t.Low != nil {
		k.tensors.Low = []uint16{}
	}
	for _, f := range []*Floats{&k.tensors.Weights, &k.tensors.Gradients, &k.tensors.M.Floats, &k.tensors.V.Floats} {
		if *f = (Floats{BF16: f.BF16}); f.BF16 != nil {
			f.BF16 = []bf16.BF16{}
		}
	}
	for _, m := range []*Moment{&k.tensors.M, &k.tensors.V} {
		m.Codes, m.Scales = nil, nil
	}
	return k
}

// Run steps every parameter that was added, in any order. The skipped ones are those that
// AdamWFactored leaves as they were.
func (c *AdamWCalls) Run(limit ...Threads) (counts Counts, skipped int64) {
	if len(c.pieces) == 0 {
		c.divide()
	}
	atOnce := min(threads(limit), len(c.pieces))
	for len(c.workers) < atOnce {
		c.workers = append(c.workers, new(adamWWorker))
	}
	workers.Run(atOnce, len(c.pieces), c)
	for _, w := range c.workers {
		counts.Add(w.counts)
		skipped += w.skipped
		w.counts, w.skipped = Counts{}, 0
	}
	for _, i := range c.split {
		call := &c.calls[i]
		t := call.kind.tensors
		call.fill(&t)
		one, whole, _ := AdamWFactored(&t, t.V.Row, t.V.Col, call.scalars, limit...) // Add checked it
		counts.Add(one)
		if whole {
			skipped++
		}
	}
	return counts, skipped
}

// callCost is what a parameter takes beside its elements, in elements: one call of assembly
// steps a piece of many.
const callCost = 32

// divide makes pieces of some pieceElements, each of one kind and of the same scalars.
func (c *AdamWCalls) divide() {
	c.split = c.split[:0]
	first, elements := 0, 0
	whole := func(last int) {
		if first < last {
			c.pieces = append(c.pieces, adamWPiece{first: first, last: last})
		}
		first, elements = last, 0
	}
	for i := range c.calls {
		call := &c.calls[i]
		if before := &c.calls[first]; call.kind != before.kind || call.scalars != before.scalars {
			whole(i)
		}
		if call.n > pieceElements {
			whole(i)
			if call.rows > 0 { // with factors, in several passes
				c.split = append(c.split, i)
				first = i + 1
				continue
			}
			size := max(pieceElements/call.kind.align, 1) * call.kind.align
			for lo := 0; lo < call.n; lo += min(size, call.n-lo) {
				c.pieces = append(c.pieces, adamWPiece{i, i + 1, lo, lo + min(size, call.n-lo)})
			}
			first = i + 1
			continue
		}
		if elements += call.n + callCost; elements >= pieceElements {
			whole(i + 1)
		}
	}
	whole(len(c.calls))
}

// Do does one piece of Run, which alone calls it.
func (c *AdamWCalls) Do(worker, piece int) {
	w, p := c.workers[worker], c.pieces[piece]
	calls := c.calls[p.first:p.last]
	kind, scalars := calls[0].kind, calls[0].scalars
	if w.kind != kind {
		w.kind, w.tensors = kind, kind.tensors
	}
	switch {
	case calls[0].rows > 0:
		for len(calls) > 0 {
			stepped, counts := kind.matrices(&w.tensors, calls, scalars)
			w.counts.Add(counts)
			if stepped == 0 {
				calls[0].fill(&w.tensors)
				w.stepFactored(scalars)
				stepped = 1
			}
			calls = calls[stepped:]
		}
	case p.hi > 0:
		calls[0].fill(&w.tensors)
		w.part = w.tensors.Slice(p.lo, p.hi)
		w.counts.Add(kind.run(&w.part, scalars))
	default:
		w.counts.Add(kind.many(&w.tensors, calls, scalars))
	}
}

var alone = []Threads{1}

// stepFactored is AdamWFactored on the worker's goroutine.
func (w *adamWWorker) stepFactored(s *AdamWScalars) {
	t, row, col := &w.tensors, w.tensors.V.Row, w.tensors.V.Col
	rows, cols := len(row), len(col)
	if need := 2*rows + cols; len(w.factors) < need {
		w.factors = make([]float32, need)
	}
	newRow, newCol, normalized := w.factors[:rows], w.factors[rows:rows+cols], w.factors[rows+cols:2*rows+cols]
	factorMeans(newRow, newCol, t.Gradients, s.GradScale, alone)
	if c, skipped := averageFactors(newRow, newCol, row, col, s); skipped {
		w.counts.Add(c)
		w.skipped++
		return
	}
	reference.NormalizeRow(normalized, newRow)
	t.V.Row, t.V.Col = normalized, newCol
	w.counts.Add(w.kind.run(t, s))
	copy(row, newRow)
	copy(col, newCol)
}

// fill puts the parameter's memory into tensors of its formats.
func (at *adamWMemory) fill(t *AdamWTensors) {
	n := at.n
	fillFloats(&t.Weights, at.weights, n)
	fillFloats(&t.Gradients, at.gradients, n)
	if t.Low != nil {
		t.Low = unsafe.Slice((*uint16)(at.low), n)
	}
	fillMoment(&t.M, at.m, at.mScales, n)
	if at.rows > 0 {
		t.V.Row = unsafe.Slice((*float32)(at.v), at.rows)
		t.V.Col = unsafe.Slice((*float32)(at.vScales), n/at.rows)
		return
	}
	fillMoment(&t.V, at.v, at.vScales, n)
}

func fillFloats(f *Floats, memory unsafe.Pointer, n int) {
	*f = floatsAt(memory, n, f.BF16 != nil)
}

func floatsAt(memory unsafe.Pointer, n int, narrow bool) Floats {
	if narrow {
		return Floats{BF16: unsafe.Slice((*bf16.BF16)(memory), n)}
	}
	return Floats{F32: unsafe.Slice((*float32)(memory), n)}
}

func fillMoment(m *Moment, memory, scales unsafe.Pointer, n int) {
	if !m.Quantized() {
		fillFloats(&m.Floats, memory, n)
		return
	}
	m.Codes = unsafe.Slice((*uint8)(memory), m.Format.CodeBytes(n))
	m.Scales = unsafe.Slice((*float32)(scales), m.Format.Scales(n))
}

// has tells whether t is of this kind.
func (k *adamWKind) has(t *AdamWTensors) bool {
	o := &k.tensors
	return sameFormat(&o.Weights, &t.Weights) && sameFormat(&o.Gradients, &t.Gradients) && (o.Low != nil) == (t.Low != nil) &&
		sameFormat(&o.M.Floats, &t.M.Floats) && sameFormat(&o.V.Floats, &t.V.Floats) &&
		o.V.Factored() == t.V.Factored() && o.M.Format == t.M.Format && o.V.Format == t.V.Format
}

func sameFormat(a, b *Floats) bool { return (a.BF16 != nil) == (b.BF16 != nil) }

func pointer[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

func floatsPointer(f *Floats) unsafe.Pointer {
	if f.BF16 != nil {
		return pointer(f.BF16)
	}
	return pointer(f.F32)
}

func momentPointer(m *Moment) unsafe.Pointer {
	if m.Quantized() {
		return pointer(m.Codes)
	}
	return floatsPointer(&m.Floats)
}
