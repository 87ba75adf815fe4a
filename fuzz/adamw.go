package fuzz

import (
	"slices"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var adamWTrials = slices.Concat(
	adamWRows(kernels.OpAdamWFloat32, floatMoments(false)),
	adamWRows(kernels.OpAdamWBF16, floatMoments(true)),
	adamWRows(kernels.OpAdamW8bit, codedMoments(codebook.Dynamic8(), codebook.Dynamic8Unsigned())),
	adamWRows(kernels.OpAdamW4bit, codedMoments(codebook.DE4(), codebook.Linear4())),
	adamWRows(kernels.OpAdamWFactored, factoredMoments))

// storage decodes the moments of a parameter, and the number and position of its
// elements.
type storage func(in *input, t *kernels.AdamWTensors) (n int)

// adamWRows makes the trials of one storage of the moments: all formats of weights and
// gradients.
func adamWRows(ops kernels.AdamWOps, s storage) (list []Trial) {
	for _, weights := range []bool{false, true} {
		for _, gradients := range []bool{false, true} {
			probe := kernels.AdamWTensors{Weights: floatsOf([]float32{}, weights), Gradients: floatsOf([]float32{}, gradients)}
			list = append(list, trials(func(_ *kernels.Op[kernels.AdamWFunc], in *input) *adamWInput {
				return decodeAdamW(in, s, weights, gradients)
			}, ops.Of(&probe))...)
		}
	}
	return list
}

type adamWInput struct {
	tensors kernels.AdamWTensors
	hyper   kernels.AdamWHyper
	scalars kernels.AdamWScalars
}

func decodeAdamW(in *input, moments storage, weights, gradients bool) *adamWInput {
	a := &adamWInput{}
	t := &a.tensors
	t.First = in.first()
	n := moments(in, t)
	t.Weights = floatsOf(in.values("weights", n, nil), weights)
	t.Gradients = floatsOf(in.values("gradients", n, nil), gradients)
	t.Low = in.low(n, weights)
	a.hyper = in.hyper()
	a.scalars = a.hyper.Scalars()
	a.scalars.SkipNonFinite = in.chance(2)
	in.note("skip=%v", a.scalars.SkipNonFinite)
	a.scalars.Rounding = in.rounding()
	return a
}

// low are the lower halves of a split master, or nil.
func (in *input) low(n int, inBF16 bool) []uint16 {
	if !inBF16 || in.chance(2) {
		return nil
	}
	in.note("split master")
	low := make([]uint16, n)
	for i := range low {
		low[i] = uint16(in.random.Uint32())
	}
	return low
}

func (in *input) hyper() kernels.AdamWHyper {
	h := kernels.AdamWHyper{
		LR:          pick(in, []float64{1e-3, 1e-2, 3e-4, 1e-6, 1, 0, 1e-30}),
		Beta1:       pick(in, []float64{0.9, 0.95, 0.5, 0, 0.999, in.random.Float64()}),
		Beta2:       pick(in, []float64{0.999, 0.95, 0.99, 0, 0.99999, in.random.Float64()}),
		Eps:         pick(in, []float64{1e-8, 1e-15, 1e-3, 0, 1e-30}),
		WeightDecay: pick(in, []float64{0, 0.1, 0.01, 1, 1e-5}),
		Step:        pick(in, []int64{1, 2, 3, 10, 100, 1000, 1_000_000, 1 << 40}),
		GradScale:   pick(in, []float64{1, 0.25, 1e-3, 1, in.random.Float64()}),
		Nesterov:    in.chance(4),
		Optax:       in.chance(4),
	}
	in.note("%+v", h)
	return h
}

func (in *input) rounding() (r reference.AdamWRounding) {
	r = reference.AdamWRounding{
		StochasticMoments: in.chance(3), StochasticWeights: in.chance(3),
		SeedM: in.random.Uint64(), SeedV: in.random.Uint64(), SeedW: in.random.Uint64(), Step: in.random.Uint64(),
	}
	in.note("stochastic moments %v weights %v", r.StochasticMoments, r.StochasticWeights)
	return r
}

func floatMoments(inBF16 bool) storage {
	return func(in *input, t *kernels.AdamWTensors) int {
		n := in.length(16)
		t.M.Floats = floatsOf(in.values("m", n, nil), inBF16)
		t.V.Floats = floatsOf(in.magnitudes("v", n, nil), inBF16)
		return n
	}
}

// codedMoments has the usual codebooks most of the time, and any of their size.
func codedMoments(first, second *codebook.Codebook) storage {
	return func(in *input, t *kernels.AdamWTensors) int {
		t.M.Format = in.momentFormat(first)
		t.V.Format = t.M.Format
		t.V.Format.Codebook = second
		if t.M.Format.Codebook != first {
			t.V.Format.Codebook = in.codebook(sameBits(first))
		}
		n := in.length(t.M.Format.Block)
		in.coded("m", n, &t.M, in.values)
		in.coded("v", n, &t.V, in.magnitudes)
		return n
	}
}

// factoredMoments has a matrix of which the piece is a part.
func factoredMoments(in *input, t *kernels.AdamWTensors) int {
	t.M.Format = in.momentFormat(codebook.DE4())
	n := in.length(t.M.Format.Block)
	in.coded("m", n, &t.M, in.values)
	cols := pick(in, []int{1, 2, 3, 16, 17, 64, 100, 128, 1000, 4096})
	t.First = int64(in.below(3 * cols))
	rows := (int(t.First)+n)/cols + 1
	in.note("%d columns from element %d", cols, t.First)
	t.V.Row, t.V.Col = in.magnitudes("row factors", rows, nil), in.magnitudes("column factors", cols, nil)
	return n
}

func (in *input) momentFormat(usual *codebook.Codebook) kernels.Format {
	takes := func(book *codebook.Codebook) bool { return book == usual }
	if in.chance(4) {
		takes = sameBits(usual)
	}
	return in.format(takes)
}

func sameBits(as *codebook.Codebook) func(*codebook.Codebook) bool {
	return func(book *codebook.Codebook) bool { return book.Bits() == as.Bits() }
}

// coded makes the codes and scales of a moment, of such values or of none that were ever
// quantised.
func (in *input) coded(name string, n int, m *kernels.Moment, values func(string, int, *kernels.Format) []float32) {
	if in.chance(3) {
		m.Codes, m.Scales = in.codes(n, m.Format), in.magnitudes(name+" scales", m.Format.Scales(n), nil)
		return
	}
	m.Codes, m.Scales = filled(m.Format.CodeBytes(n)), make([]float32, m.Format.Scales(n))
	reference.Quantize(m.Codes, m.Scales, values(name, n, &m.Format), m.Format)
}

func (a *adamWInput) run(step kernels.AdamWFunc, mem memory) (o output) {
	t := a.placed(mem)
	scalars := a.scalars
	counts := step(&t, &scalars)
	o.weights(t.Weights, t.Low)
	o.floats("gradients", t.Gradients)
	o.moment("m", t.M)
	o.moment("v", t.V)
	o.count("non-finite elements", counts.NonFinite)
	o.count("skipped elements", counts.SkippedElements)
	o.count("skipped blocks", counts.SkippedBlocks)
	return o
}

func (a *adamWInput) placed(mem memory) kernels.AdamWTensors {
	t := a.tensors
	t.Weights, t.Gradients = placeFloats(mem, t.Weights), placeFloats(mem, t.Gradients)
	t.Low = place(mem, t.Low)
	t.M, t.V = placeMoment(mem, t.M), placeMoment(mem, t.V)
	return t
}

func placeMoment(mem memory, m kernels.Moment) kernels.Moment {
	m.Floats = placeFloats(mem, m.Floats)
	m.Codes, m.Scales = place(mem, m.Codes), place(mem, m.Scales)
	m.Row, m.Col = place(mem, m.Row), place(mem, m.Col)
	return m
}

// weights are the weights, or the masters that two halves make.
func (o *output) weights(w kernels.Floats, low []uint16) {
	if low == nil {
		o.floats("weights", w)
		return
	}
	masters := make([]float32, len(low))
	for i := range low {
		masters[i] = reference.Join(w.BF16[i], low[i])
	}
	o.float32s("masters", masters)
}

func (o *output) moment(name string, m kernels.Moment) {
	o.floats(name, m.Floats)
	o.codes(name+" codes", m.Codes)
	o.float32Bits(name+" scales", m.Scales)
	o.float32Bits(name+" row factors", m.Row)
	o.float32Bits(name+" column factors", m.Col)
}
