package fuzz

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

// newMomentum is the momentum after the step and the scaled gradients, in float32.
func (m *muonInput) newMomentum() (momentum, gradients []float32) {
	momentum, gradients = decoded(m.tensors.Momentum, len(m.tensors.Update)), widened(m.tensors.Gradients)
	for i := range momentum {
		gradients[i] = mul(gradients[i], m.scalars.GradScale)
		momentum[i] = add(mul(m.scalars.OldMomentum, momentum[i]), mul(m.scalars.NewGradient, gradients[i]))
	}
	return momentum, gradients
}

func (m *muonDirectionInput) properties(t *testing.T, in *input) {
	want, gradients := m.newMomentum()
	for i, g := range gradients {
		want[i] = div(add(mul(m.scalars.DirectionM, want[i]), mul(m.scalars.DirectionG, g)), m.scalars.Divisor)
	}
	got := make([]float32, len(want))
	require.NoError(t, kernels.MuonDirection(got, &m.tensors, &m.scalars))
	sameFloats(t, want, got, "direction")
}

// The storage of the step is AdamW's, without what it does about v.
func (m *muonUpdateInput) properties(t *testing.T, in *input) {
	momentum, _ := m.newMomentum()
	s := &m.scalars
	a := &adamWInput{}
	a.scalars.Rounding = kernels.AdamWRounding{
		StochasticWeights: s.Rounding.StochasticWeights, SeedW: s.Rounding.SeedW, Step: s.Rounding.Step,
	}
	placed := m.placed(&padded{})
	want := kernels.AdamWTensors{
		Weights: placed.Weights, Low: placed.Low, Gradients: placed.Gradients, M: placed.Momentum, First: placed.First,
	}
	want.V.Floats = kernels.Float32s(make([]float32, len(momentum)))
	elements := make([]stepped, len(momentum))
	for i, old := range masters(want.Weights, want.Low) {
		update := add(mul(s.Scale, m.tensors.Update[i]), mul(s.WeightDecay, old))
		elements[i] = stepped{newW: sub(mul(s.Decay, old), mul(s.StepSize, update)), newM: momentum[i]}
	}
	group := 1
	if want.M.Quantized() {
		group = want.M.Format.Block
	}
	for lo := 0; lo < len(elements); {
		hi := lo + min(group, len(elements)-lo)
		a.store(want, elements, lo, hi)
		lo = hi
	}

	got := m.placed(&padded{})
	require.NoError(t, kernels.MuonUpdate(&got, s))
	sameMuon(t, want, got, "the contract's loop")

	pieces := m.placed(&padded{})
	align := 1
	if want.M.Quantized() {
		align = want.M.Format.Block
	}
	at := in.cut(len(elements), align)
	for _, ends := range [][2]int{{0, at}, {at, len(elements)}} {
		piece := pieces.Slice(ends[0], ends[1])
		require.NoError(t, kernels.MuonUpdate(&piece, s))
	}
	sameMuon(t, want, pieces, "split")
}

func sameMuon(t *testing.T, want kernels.AdamWTensors, got kernels.MuonTensors, name string) {
	t.Helper()
	sameFloats(t, masters(want.Weights, want.Low), masters(got.Weights, got.Low), name+": weights")
	sameMoments(t, want.M, got.Momentum, name+": momentum")
}
