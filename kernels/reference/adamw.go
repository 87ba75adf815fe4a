package reference

import "math"

// Moment is the storage of one moment: float32 or bf16 numbers, codes with a scale a
// block, or the factors of a second moment (see FactorMeans).
type Moment struct {
	Floats
	Codes    []uint8
	Scales   []float32
	Format   Format
	Row, Col []float32 // of the whole parameter; Row already divided by its mean
}

// Quantized tells whether the moment is stored as codes.
func (m Moment) Quantized() bool { return m.Format.Codebook != nil }

// Factored tells whether the moment is stored as factors.
func (m Moment) Factored() bool { return m.Col != nil }

// At returns element i, of codes or numbers, as a float32.
func (m Moment) At(i int) float32 {
	if m.Quantized() {
		return m.Format.decode(m.Codes, m.Scales, i)
	}
	return m.Floats.At(i)
}

// Slice returns elements lo to hi-1, sharing their memory; lo is a multiple of the block,
// and even where codes have 4 bits.
func (m Moment) Slice(lo, hi int) Moment {
	m.Floats = m.Floats.Slice(lo, hi)
	if m.Quantized() {
		m.Codes = m.Codes[lo*m.Format.Codebook.Bits()/8 : m.Format.CodeBytes(hi)]
		m.Scales = m.Scales[lo/m.Format.Block : m.Format.Scales(hi)]
	}
	return m
}

// AdamWTensors is one parameter, or a piece of one, and all that its step reads and
// writes.
type AdamWTensors struct {
	Weights   Floats
	Low       []uint16 // the lower halves of a split master, or nil
	Gradients Floats
	M, V      Moment
	First     int64 // the position of element 0 in its whole parameter
}

// Slice returns elements lo to hi-1; lo is a multiple of the moments' block, and even
// where codes have 4 bits.
func (t AdamWTensors) Slice(lo, hi int) AdamWTensors {
	t.Weights = t.Weights.Slice(lo, hi)
	t.Gradients = t.Gradients.Slice(lo, hi)
	if t.Low != nil {
		t.Low = t.Low[lo:hi]
	}
	t.M, t.V = t.M.Slice(lo, hi), t.V.Slice(lo, hi)
	t.First += int64(lo)
	return t
}

// Counts says what a step found that was not finite, and what it left untouched for it.
type Counts struct {
	NonFinite       int64 // elements whose gradient, new moments or new weight are not finite
	SkippedElements int64
	SkippedBlocks   int64
}

// Add adds the counts of another piece.
func (c *Counts) Add(other Counts) {
	c.NonFinite += other.NonFinite
	c.SkippedElements += other.SkippedElements
	c.SkippedBlocks += other.SkippedBlocks
}

// AdamW is the step of Loshchilov and Hutter, "Decoupled Weight Decay Regularization"
// (2019), in the contract's order of operations. The update uses the new moments before
// they are rounded to their storage.
func AdamW(t AdamWTensors, s *AdamWScalars) Counts {
	if t.M.Quantized() {
		return adamWBlocks(&t, s)
	}
	return adamWElements(&t, s)
}

func adamWElements(t *AdamWTensors, s *AdamWScalars) (c Counts) {
	store := newStore(t, s)
	for i := range t.Weights.Len() {
		e := s.update(store.weights.at(i), t.Gradients.At(i), t.M.At(i), t.V.At(i))
		if !e.finite() {
			c.NonFinite++
			if s.SkipNonFinite {
				c.SkippedElements++
				continue
			}
		}
		store.weights.set(i, e.w)
		t.M.set(i, e.m, &store.m)
		t.V.set(i, e.v, &store.v)
	}
	return c
}

// adamWBlocks computes each block's new moments twice, first for their scales and for
// what is not finite, then to store them: a block may be of any size.
func adamWBlocks(t *AdamWTensors, s *AdamWScalars) (c Counts) {
	store := newStore(t, s)
	n, block := t.Weights.Len(), t.M.Format.Block
	for b := range t.M.Scales {
		lo := b * block
		hi := lo + min(block, n-lo)
		newM, newV, bad := float32(0), float32(0), int64(0)
		for i := lo; i < hi; i++ {
			e := t.element(s, store.weights.at(i), i)
			newM, newV = max(newM, magnitude(e.m)), max(newV, magnitude(e.v))
			if !e.finite() {
				bad++
			}
		}
		c.NonFinite += bad
		if bad > 0 && s.SkipNonFinite {
			c.SkippedBlocks++
			c.SkippedElements += int64(hi - lo)
			continue
		}
		newM = t.M.Format.scale(newM)
		if !t.V.Factored() {
			newV = t.V.Format.scale(newV)
		}
		for i := lo; i < hi; i++ {
			e := t.element(s, store.weights.at(i), i)
			store.weights.set(i, e.w)
			t.M.encode(i, e.m, newM)
			if !t.V.Factored() {
				t.V.encode(i, e.v, newV)
			}
		}
		t.M.finishBlock(b, newM, n)
		if !t.V.Factored() {
			t.V.finishBlock(b, newV, n)
		}
	}
	return c
}

func (t *AdamWTensors) element(s *AdamWScalars, w float32, i int) element {
	g, m := t.Gradients.At(i), t.M.At(i)
	if t.V.Factored() {
		at, cols := t.First+int64(i), int64(len(t.V.Col))
		return s.updateWithV(w, g, m, t.V.Row[at/cols]*t.V.Col[at%cols])
	}
	return s.update(w, g, m, t.V.At(i))
}

func (m Moment) encode(i int, x, scale float32) {
	m.Format.put(m.Codes, i, m.Format.encode(x, scale))
}

func (m Moment) finishBlock(block int, scale float32, n int) {
	m.Scales[block] = scale
	if block == len(m.Scales)-1 {
		m.Format.fillSpare(m.Codes, n)
	}
}

type element struct{ g, w, m, v float32 }

func (e element) finite() bool {
	return finite(e.g) && finite(e.w) && finite(e.m) && finite(e.v)
}

// update is the contract's loop body.
func (s *AdamWScalars) update(w, g, m, v float32) element {
	g *= s.GradScale
	square := float32(float32(s.OneMinusBeta2*g) * g)
	if s.Optax {
		square = float32(s.OneMinusBeta2 * float32(g*g))
	}
	return s.apply(w, g, s.firstMoment(m, g), float32(s.Beta2*v)+square)
}

// updateWithV is the loop body where the new second moment is already known.
func (s *AdamWScalars) updateWithV(w, g, m, v float32) element {
	g *= s.GradScale
	return s.apply(w, g, s.firstMoment(m, g), v)
}

func (s *AdamWScalars) firstMoment(m, g float32) float32 {
	return float32(s.Beta1*m) + float32(s.OneMinusBeta1*g)
}

func (s *AdamWScalars) apply(w, g, m, v float32) element {
	if s.Optax {
		return s.applyOptax(w, g, m, v)
	}
	w = float32(w * s.Decay) // or the subtraction below is fused with it
	d := float32(sqrt(v)/s.RootCorrection2) + s.Eps
	direction := m
	if s.Nesterov {
		direction = s.lookahead(m, g)
	}
	w -= float32(s.StepSize*direction) / d
	return element{g, w, m, v}
}

func (s *AdamWScalars) applyOptax(w, g, m, v float32) element {
	direction := m / s.Correction1
	if s.Nesterov {
		direction = s.lookahead(m, g)
	}
	u := direction / (sqrt(v/s.Correction2) + s.Eps)
	w -= float32(s.LR * (u + float32(s.WeightDecay*w)))
	return element{g, w, m, v}
}

func (s *AdamWScalars) lookahead(m, g float32) float32 {
	return float32(s.NesterovM*m) + float32(s.NesterovG*g)
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// store is how a step's results are rounded.
type store struct {
	weights weightStore
	m, v    draw
}

func newStore(t *AdamWTensors, s *AdamWScalars) store {
	r := &s.Rounding
	stream := func(seed uint64, stochastic bool) draw {
		return draw{stream: Stream{seed, r.Step, t.First}, stochastic: stochastic}
	}
	return store{
		weightStore{t.Weights, t.Low, stream(r.SeedW, r.StochasticWeights)},
		stream(r.SeedM, r.StochasticMoments),
		stream(r.SeedV, r.StochasticMoments),
	}
}

// weightStore reads and writes weights, with the lower halves of a split master if there
// are any.
type weightStore struct {
	weights Floats
	low     []uint16
	draw    draw
}

func (w *weightStore) at(i int) float32 {
	if w.low != nil {
		return Join(w.weights.BF16[i], w.low[i])
	}
	return w.weights.At(i)
}

func (w *weightStore) set(i int, x float32) {
	if w.low != nil {
		w.weights.BF16[i], w.low[i] = Split(x)
		return
	}
	w.weights.set(i, x, &w.draw)
}
