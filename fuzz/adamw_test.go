package fuzz

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

func (a *adamWInput) properties(t *testing.T, in *input) {
	want, wantCounts, exact := a.contract()
	got := a.placed(&padded{})
	scalars := a.scalars
	counts, err := kernels.AdamW(&got, &scalars)
	require.NoError(t, err)
	require.Equal(t, wantCounts, counts)
	sameTensors(t, want, got, "the contract's loop")
	a.nearFloat64(t, exact)

	pieces := a.placed(&padded{})
	at := in.cut(pieces.Weights.Len(), a.align())
	sum := kernels.Counts{}
	for _, ends := range [][2]int{{0, at}, {at, pieces.Weights.Len()}} {
		piece := pieces.Slice(ends[0], ends[1])
		c, err := kernels.AdamW(&piece, &scalars)
		require.NoError(t, err)
		sum.Add(c)
	}
	require.Equal(t, counts, sum)
	sameTensors(t, got, pieces, "split")
}

func (a *adamWInput) align() int {
	if !a.tensors.M.Quantized() {
		return 1
	}
	return (&quantizeInput{f: a.tensors.M.Format}).align()
}

func sameTensors(t *testing.T, want, got kernels.AdamWTensors, name string) {
	t.Helper()
	sameFloats(t, masters(want.Weights, want.Low), masters(got.Weights, got.Low), name+": weights")
	sameFloats(t, widened(want.Gradients), widened(got.Gradients), name+": gradients")
	sameMoments(t, want.M, got.M, name+": m")
	sameMoments(t, want.V, got.V, name+": v")
}

func sameMoments(t *testing.T, want, got kernels.Moment, name string) {
	t.Helper()
	sameFloats(t, widened(want.Floats), widened(got.Floats), name)
	require.Equal(t, want.Codes, got.Codes, name)
	sameScales(t, want.Scales, got.Scales, name+" scales")
	sameScales(t, want.Row, got.Row, name+" row factors")
	sameScales(t, want.Col, got.Col, name+" column factors")
}

// masters are the weights in float32, joined from two halves where there are.
func masters(w kernels.Floats, low []uint16) []float32 {
	full := widened(w)
	for i, l := range low {
		full[i] = math.Float32frombits(uint32(int64(w.BF16[i])<<16 + int64(int16(l))))
	}
	return full
}

// stepped is an element before and after its step in float32.
type stepped struct{ w, g, m, v, newW, newM, newV float32 }

func (e stepped) finite() bool {
	g := isFinite(e.g)
	return g && isFinite(e.newW) && isFinite(e.newM) && isFinite(e.newV)
}

// contract is the step as the contract states it, written for reading.
func (a *adamWInput) contract() (kernels.AdamWTensors, kernels.Counts, []stepped) {
	t, s, counts := a.placed(&padded{}), &a.scalars, kernels.Counts{}
	n, group := t.Weights.Len(), 1
	if t.M.Quantized() {
		group = t.M.Format.Block
	}
	w, m, v := masters(t.Weights, t.Low), decoded(t.M, n), decoded(t.V, n)
	elements := make([]stepped, n)
	for i := range elements {
		e := stepped{w: w[i], g: mul(t.Gradients.At(i), s.GradScale), m: m[i]}
		if t.V.Factored() {
			at := int(t.First) + i
			e.v = mul(t.V.Row[at/len(t.V.Col)], t.V.Col[at%len(t.V.Col)])
			e.newV = e.v
		} else {
			e.v = v[i]
		}
		e.step(a, t.V.Factored())
		elements[i] = e
	}
	for lo := 0; lo < n; {
		hi := lo + min(group, n-lo)
		bad := int64(0)
		for _, e := range elements[lo:hi] {
			if !e.finite() {
				bad++
			}
		}
		counts.NonFinite += bad
		if bad > 0 && s.SkipNonFinite {
			counts.SkippedElements += int64(hi - lo)
			if t.M.Quantized() {
				counts.SkippedBlocks++
			}
		} else {
			a.store(t, elements, lo, hi)
		}
		lo = hi
	}
	return t, counts, elements
}

func decoded(m kernels.Moment, n int) []float32 {
	if !m.Quantized() {
		return widened(m.Floats)
	}
	x, codes := make([]float32, n), unpacked(m.Codes, m.Format)
	for i := range x {
		x[i] = mul(m.Format.Codebook.Table()[codes[i]], m.Scales[i/m.Format.Block])
	}
	return x
}

func (e *stepped) step(a *adamWInput, factored bool) {
	s, h := &a.scalars, &a.hyper
	e.newM = add(mul(s.Beta1, e.m), mul(s.OneMinusBeta1, e.g))
	switch {
	case factored:
		e.newV = e.v
	case h.Optax:
		e.newV = add(mul(s.Beta2, e.v), mul(s.OneMinusBeta2, mul(e.g, e.g)))
	default:
		e.newV = add(mul(s.Beta2, e.v), mul(mul(s.OneMinusBeta2, e.g), e.g))
	}
	direction := e.newM
	if h.Nesterov {
		direction = add(mul(s.NesterovM, e.newM), mul(s.NesterovG, e.g))
	}
	if h.Optax {
		if !h.Nesterov {
			direction = div(direction, s.Correction1)
		}
		u := div(direction, add(root(div(e.newV, s.Correction2)), s.Eps))
		e.newW = sub(e.w, mul(s.LR, add(u, mul(s.WeightDecay, e.w))))
		return
	}
	w := e.w
	if h.WeightDecay != 0 {
		w = mul(w, s.Decay)
	}
	d := add(div(root(e.newV), s.RootCorrection2), s.Eps)
	e.newW = sub(w, div(mul(s.StepSize, direction), d))
}

// store rounds elements lo to hi-1, a block or one element, to their storage.
func (a *adamWInput) store(t kernels.AdamWTensors, elements []stepped, lo, hi int) {
	r := &a.scalars.Rounding
	put := func(x kernels.Floats, i int, v float32, stochastic bool, seed uint64) {
		switch {
		case x.BF16 == nil:
			x.F32[i] = v
		case stochastic:
			x.BF16[i] = bf16.Stochastic(v, bf16.RandomBits(seed, r.Step, uint64(t.First)+uint64(i)))
		default:
			x.BF16[i] = nearest(v)
		}
	}
	m, v := make([]float32, hi-lo), make([]float32, hi-lo)
	for i := lo; i < hi; i++ {
		e := elements[i]
		m[i-lo], v[i-lo] = e.newM, e.newV
		if t.Low == nil {
			put(t.Weights, i, e.newW, r.StochasticWeights, r.SeedW)
		} else {
			split(t, i, e.newW)
		}
		if !t.M.Quantized() {
			put(t.M.Floats, i, e.newM, r.StochasticMoments, r.SeedM)
			put(t.V.Floats, i, e.newV, r.StochasticMoments, r.SeedV)
		}
	}
	if t.M.Quantized() {
		storeBlock(t.M, lo, m, len(elements))
	}
	if t.V.Quantized() {
		storeBlock(t.V, lo, v, len(elements))
	}
}

// split stores the nearest bf16, ties away from zero, and what is missing to the master.
func split(t kernels.AdamWTensors, i int, master float32) {
	if master != master {
		t.Weights.BF16[i], t.Low[i] = nearest(master), 0
		return
	}
	bits := int64(math.Float32bits(master))
	weight := bits >> 16
	if bits&0xffff >= 0x8000 {
		weight++
	}
	t.Weights.BF16[i], t.Low[i] = bf16.BF16(weight), uint16(bits-weight<<16)
}

// storeBlock writes the block of a moment that begins at element lo of n.
func storeBlock(m kernels.Moment, lo int, x []float32, n int) {
	s := searchOf(m.Format.Codebook)
	scale, codes, _ := s.encode(x, m.Format.Headroom)
	m.Scales[lo/m.Format.Block] = scale
	if m.Format.Codebook.Bits() == 8 {
		copy(m.Codes[lo:], codes)
		return
	}
	if hi := lo + len(x); hi == n && n%2 == 1 {
		codes = append(codes, s.zero())
	}
	for i, code := range codes {
		at := lo + i
		shift := at % 2 * 4
		if m.Format.Nibble == 1 {
			shift = 4 - shift
		}
		m.Codes[at/2] = m.Codes[at/2]&^(15<<shift) | code<<shift
	}
}

// nearFloat64 holds float32 steps against the textbook's formulas in float64, where
// nothing is so large or small that float32 loses it, and v is no difference. It returns
// how many it held.
func (a *adamWInput) nearFloat64(t *testing.T, elements []stepped) (held int) {
	h := a.hyper
	c1, c2 := 1-math.Pow(h.Beta1, float64(h.Step)), 1-math.Pow(h.Beta2, float64(h.Step))
	if h.Optax { // its corrections alone are computed in float32
		c2 = float64(a.scalars.Correction2)
		if !h.Nesterov {
			c1 = float64(a.scalars.Correction1)
		}
	}
	next := 1 - math.Pow(h.Beta1, float64(h.Step+1))
	for i, e := range elements {
		w, g, m, v := float64(e.w), float64(a.tensors.Gradients.At(i))*float64(a.scalars.GradScale), float64(e.m), float64(e.v)
		parts := math.Abs(h.Beta1*m) + math.Abs((1-h.Beta1)*g)
		m = h.Beta1*m + (1-h.Beta1)*g
		if !a.tensors.V.Factored() {
			v = h.Beta2*v + (1-h.Beta2)*g*g
		}
		direction, directionParts := m/c1, parts/c1
		if h.Nesterov {
			direction = h.Beta1/next*m + (1-h.Beta1)/c1*g
			directionParts = h.Beta1/next*parts + math.Abs((1-h.Beta1)/c1*g)
		}
		d := math.Sqrt(v/c2) + h.Eps
		want := w*(1-h.LR*h.WeightDecay) - h.LR*direction/d
		if e.v < 0 || !ordinary(w, g, g*g, float64(e.m), float64(e.v), m, v, direction, d, direction/d, h.LR*direction, h.LR*direction/d, h.LR*h.WeightDecay) {
			continue
		}
		held++
		scale := math.Abs(w) + math.Abs(h.LR*directionParts/d)
		equal(t, true, math.Abs(float64(e.newW)-want) <= 0x1p-20*scale, "w[%d]: %v, in float64 %v", i, e.newW, want)
		equal(t, true, math.Abs(float64(e.newM)-m) <= 0x1p-22*parts, "m[%d]: %v, in float64 %v", i, e.newM, m)
		equal(t, true, math.Abs(float64(e.newV)-v) <= 0x1p-21*math.Abs(v), "v[%d]: %v, in float64 %v", i, e.newV, v)
	}
	return held
}

// ordinary: zero, or far from where float32 ends.
func ordinary(list ...float64) bool {
	for _, x := range list {
		if x != 0 && !(math.Abs(x) > 0x1p-90 && math.Abs(x) < 0x1p90) {
			return false
		}
	}
	return true
}

// TestAdamWIsNearFloat64 has numbers that float32 does not lose.
func TestAdamWIsNearFloat64(t *testing.T) {
	held := 0
	for data := range first(60, Cases(5)) {
		in := newInput(data)
		numbers := func(scale float64) kernels.Floats {
			x := make([]float32, 500)
			for i := range x {
				x[i] = float32(in.random.NormFloat64() * scale)
			}
			return kernels.Float32s(x)
		}
		a := &adamWInput{hyper: in.hyper()}
		a.scalars = a.hyper.Scalars()
		a.tensors.Weights, a.tensors.Gradients = numbers(1), numbers(1e-3)
		a.tensors.M.Floats, a.tensors.V.Floats = numbers(1e-3), numbers(1e-6)
		for i, v := range a.tensors.V.F32 {
			a.tensors.V.F32[i] = abs(v)
		}
		_, _, elements := a.contract()
		held += a.nearFloat64(t, elements)
	}
	require.Greater(t, held, 10_000)
}
