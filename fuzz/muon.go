package fuzz

import (
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

var muonTrials = muonRows()

// muonRows makes the trials in the order of the rows' two dimensions.
func muonRows() (list []Trial) {
	storages := []func(in *input, n int) kernels.Moment{
		func(in *input, n int) kernels.Moment { return in.momentum(n, false) },
		func(in *input, n int) kernels.Moment { return in.momentum(n, true) },
		(*input).codedMomentum,
	}
	for i, momentum := range storages {
		for j, op := range kernels.OpMuonDirection[i] {
			list = append(list, trials(func(_ *kernels.Op[kernels.MuonDirectionFunc], in *input) *muonDirectionInput {
				return &muonDirectionInput{in.muon(momentum, false, j == 1)}
			}, op)...)
		}
		for j, op := range kernels.OpMuonUpdate[i] {
			weights, gradients := j == 1 || j == 2, j == 1 || j == 3
			list = append(list, trials(func(_ *kernels.Op[kernels.MuonUpdateFunc], in *input) *muonUpdateInput {
				return &muonUpdateInput{in.muon(momentum, weights, gradients)}
			}, op)...)
		}
	}
	return list
}

type muonInput struct {
	tensors kernels.MuonTensors
	scalars kernels.MuonScalars
}

func (in *input) muon(momentum func(*input, int) kernels.Moment, weights, gradients bool) muonInput {
	m := muonInput{}
	t := &m.tensors
	n := in.length(128)
	t.First = in.first()
	t.Momentum = momentum(in, n)
	t.Weights = floatsOf(in.values("weights", n, nil), weights)
	t.Low = in.low(n, weights)
	t.Gradients = floatsOf(in.values("gradients", n, nil), gradients)
	t.Update = in.values("update", n, nil)
	factor := func(usual ...float32) float32 { return pick(in, append(usual, float32(in.random.NormFloat64()))) }
	m.scalars = kernels.MuonScalars{
		GradScale:   factor(1, 0.25, 1e-3),
		OldMomentum: factor(0.95, 0.9, 0), NewGradient: factor(1, 0.05, 0.1),
		DirectionM: factor(0.95, 1, 0), DirectionG: factor(0.05, 1, 0), Divisor: factor(1, 0.1),
		Decay: factor(1, 0.999), Scale: factor(1, 0.2, 6.4), WeightDecay: factor(0, 0.1), StepSize: factor(0.02, 1e-3, 0),
	}
	m.scalars.Rounding = kernels.MuonRounding{
		StochasticWeights: in.chance(3), SeedW: in.random.Uint64(), Step: in.random.Uint64(),
	}
	in.note("%+v", m.scalars)
	return m
}

func (in *input) momentum(n int, inBF16 bool) kernels.Moment {
	return kernels.Moment{Floats: floatsOf(in.values("momentum", n, nil), inBF16)}
}

func (in *input) codedMomentum(n int) kernels.Moment {
	m := kernels.Moment{Format: in.momentFormat(codebook.Dynamic8())}
	in.coded("momentum", n, &m, in.values)
	return m
}

func (m *muonInput) placed(mem memory) kernels.MuonTensors {
	t := m.tensors
	t.Weights, t.Low, t.Gradients = placeFloats(mem, t.Weights), place(mem, t.Low), placeFloats(mem, t.Gradients)
	t.Momentum, t.Update = placeMoment(mem, t.Momentum), place(mem, t.Update)
	return t
}

func (o *output) muon(t kernels.MuonTensors) {
	o.weights(t.Weights, t.Low)
	o.floats("gradients", t.Gradients)
	o.moment("momentum", t.Momentum)
	o.float32Bits("update", t.Update)
}

type muonDirectionInput struct{ muonInput }

func (m *muonDirectionInput) run(direction kernels.MuonDirectionFunc, mem memory) (o output) {
	t, scalars := m.placed(mem), m.scalars
	dst := place(mem, make([]float32, len(t.Update)))
	direction(dst, t, &scalars)
	o.float32s("direction", dst)
	o.muon(t)
	return o
}

type muonUpdateInput struct{ muonInput }

func (m *muonUpdateInput) run(update kernels.MuonUpdateFunc, mem memory) (o output) {
	t, scalars := m.placed(mem), m.scalars
	update(t, &scalars)
	o.muon(t)
	return o
}
