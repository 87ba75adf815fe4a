package reference

// MuonScalars are the numbers of a Muon step, each computed in float64 and rounded once.
type MuonScalars struct {
	GradScale     float32 // multiplies each gradient: the clip coefficient, or 1
	OldMomentum   float32 // m = OldMomentum*m + NewGradient*g
	NewGradient   float32
	DirectionM    float32 // the direction is (DirectionM*m + DirectionG*g) / Divisor
	DirectionG    float32
	Divisor       float32
	Decay         float32 // w = Decay*w - StepSize*(Scale*o + WeightDecay*w)
	Scale         float32
	WeightDecay   float32
	StepSize      float32
	Rounding      MuonRounding
	SkipNonFinite bool
}

// MuonRounding says how the step stores bf16 weights.
type MuonRounding struct {
	StochasticWeights bool
	SeedW, Step       uint64
}

// MuonTensors is one parameter, or a piece of one, and all that its step reads and
// writes.
type MuonTensors struct {
	Weights   Floats
	Low       []uint16 // the lower halves of a split master, or nil
	Gradients Floats
	Momentum  Moment
	Update    []float32 // the orthogonalised direction
	First     int64     // the position of element 0 in its whole parameter
}

// Slice returns elements lo to hi-1; lo is a multiple of the momentum's block.
func (t MuonTensors) Slice(lo, hi int) MuonTensors {
	t.Weights = t.Weights.Slice(lo, hi)
	t.Gradients = t.Gradients.Slice(lo, hi)
	if t.Low != nil {
		t.Low = t.Low[lo:hi]
	}
	if t.Update != nil {
		t.Update = t.Update[lo:hi]
	}
	t.Momentum = t.Momentum.Slice(lo, hi)
	t.First += int64(lo)
	return t
}

// MuonDirection sets dst to the direction that Muon orthogonalises, of the momentum as
// it will be after this gradient. Nothing is stored.
func MuonDirection(dst []float32, t MuonTensors, s *MuonScalars) {
	for i := range dst {
		m, g := t.momentum(s, i)
		dst[i] = (float32(s.DirectionM*m) + float32(s.DirectionG*g)) / s.Divisor
	}
}

// momentum is the new momentum of element i, before it is stored, and its gradient.
func (t *MuonTensors) momentum(s *MuonScalars, i int) (m, g float32) {
	g = t.Gradients.At(i) * s.GradScale
	return float32(s.OldMomentum*t.Momentum.At(i)) + float32(s.NewGradient*g), g
}

// MuonUpdate stores the new momentum, and updates the weights by the orthogonalised
// direction in t.Update.
func MuonUpdate(t MuonTensors, s *MuonScalars) {
	if t.Momentum.Quantized() {
		for b := range t.Momentum.Scales {
			t.storeBlock(s, b)
		}
	} else {
		for i := range t.Weights.Len() {
			m, _ := t.momentum(s, i)
			t.Momentum.set(i, m, nil)
		}
	}
	w := weightStore{t.Weights, t.Low, draw{stream: Stream{s.Rounding.SeedW, s.Rounding.Step, t.First}, stochastic: s.Rounding.StochasticWeights}}
	for i := range t.Weights.Len() {
		old := w.at(i)
		update := float32(s.Scale*t.Update[i]) + float32(s.WeightDecay*old)
		w.set(i, float32(s.Decay*old)-float32(s.StepSize*update))
	}
}

func (t *MuonTensors) storeBlock(s *MuonScalars, b int) {
	f, n := t.Momentum.Format, t.Weights.Len()
	lo := b * f.Block
	hi := lo + min(f.Block, n-lo)
	largest := float32(0)
	for i := lo; i < hi; i++ {
		m, _ := t.momentum(s, i)
		largest = max(largest, magnitude(m))
	}
	scale := f.scale(largest)
	for i := lo; i < hi; i++ {
		m, _ := t.momentum(s, i)
		t.Momentum.encode(i, m, scale)
	}
	t.Momentum.finishBlock(b, scale, n)
}
