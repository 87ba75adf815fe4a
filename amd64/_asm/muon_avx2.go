package main

import "fmt"

// The order of Muon's scalars.
const (
	muonGradScale = iota
	muonOldMomentum
	muonNewGradient
	muonDirectionM
	muonDirectionG
	muonDivisor
	muonDecay
	muonScale
	muonWeightDecay
	muonStepSize
	muonScalars
)

func muonDirectionDoc(name string, momentum, gradients format) string {
	return fmt.Sprintf(`
%s gives the direction that Muon orthogonalises, of %s momentum and
%s gradients; all have one length. The scalars are the first fields of
reference.MuonScalars. A call of 100,000 elements takes about 100 µs.

	for i := range dst {
		scaled := %s * s.GradScale
		m := s.OldMomentum*%s + s.NewGradient*scaled
		dst[i] = (s.DirectionM*m + s.DirectionG*scaled) / s.Divisor
	}`, name, momentum.prose(), gradients.prose(), gradients.widened("g[i]"), momentum.widened("m[i]"))
}

func muonUpdateDoc(name string, weights, gradients, momentum format) string {
	stored := func(f format, x string) string {
		if f == bfloat16s {
			return "uint16(bf16.FromFloat32(" + x + "))"
		}
		return x
	}
	return fmt.Sprintf(`
%s stores %s momentum and updates %s weights by the
orthogonalised direction of their %s gradients; all have one length. The scalars are
the first fields of reference.MuonScalars. A call of 100,000 elements takes about 100 µs.

	for i := range w {
		m[i] = %s
		old := %s
		update := s.Scale*o[i] + s.WeightDecay*old
		w[i] = %s
	}`, name, momentum.prose(), weights.prose(), gradients.prose(),
		stored(momentum, "s.OldMomentum*"+momentum.widened("m[i]")+" + s.NewGradient*("+gradients.widened("g[i]")+"*s.GradScale)"),
		weights.widened("w[i]"), stored(weights, "s.Decay*old - s.StepSize*update"))
}

// eachMuon calls direction and update for the formats that they come in.
func eachMuon(suffix string, direction func(name, signature string, momentum, gradients format),
	update func(name, signature string, weights, gradients, momentum format)) {
	for _, momentum := range []format{float32s, bfloat16s} {
		for _, gradients := range []format{float32s, bfloat16s} {
			direction(fmt.Sprintf("MuonDirectionM%sG%s%s", momentum.name, gradients.name, suffix),
				fmt.Sprintf("(dst []float32, m []%s, g []%s, s *[%d]float32)", momentum.goType, gradients.goType, muonScalars), momentum, gradients)
		}
		for _, pair := range pairs {
			update(fmt.Sprintf("MuonUpdateM%sW%sG%s%s", momentum.name, pair[0].name, pair[1].name, suffix),
				fmt.Sprintf("(w []%s, g []%s, m []%s, o []float32, s *[%d]float32)", pair[0].goType, pair[1].goType, momentum.goType, muonScalars),
				pair[0], pair[1], momentum)
		}
	}
}

// muon holds the scalars of the step.
type muon struct {
	g       *generator
	scalars [muonScalars]vec
}

func (g *generator) muon(scalars ...int) muon {
	m, s := muon{g: g}, g.number("s")
	for _, i := range scalars {
		m.scalars[i] = g.YMM()
		g.VBROADCASTSS(at(s, 4*i), m.scalars[i])
	}
	return m
}

// momentum scales g and makes the old momentum m the new one.
func (m muon) momentum(old, g vec) {
	m.g.VMULPS(m.scalars[muonGradScale], g, g)
	m.sum(muonOldMomentum, old, muonNewGradient, g, old)
}

// sum sets to to x and y each times a scalar, added. It may be x or y.
func (m muon) sum(i int, x vec, j int, y, to vec) {
	t := m.g.YMM()
	m.g.VMULPS(m.scalars[j], y, t)
	m.g.VMULPS(m.scalars[i], x, to)
	m.g.VADDPS(t, to, to)
}

func muonAVX2(g *generator) {
	eachMuon("AVX2", func(name, signature string, momentum, gradients format) {
		g.function(name, signature, muonDirectionDoc(name, momentum, gradients))
		dst, pm, pg, n := g.pointer("dst"), g.pointer("m"), g.pointer("g"), g.length("dst")
		m := g.muon(muonGradScale, muonOldMomentum, muonNewGradient, muonDirectionM, muonDirectionG, muonDivisor)
		g.elements(n, func(width int) {
			y, gradient := g.load(momentum, pm, width), g.load(gradients, pg, width)
			m.momentum(y, gradient)
			m.sum(muonDirectionM, y, muonDirectionG, gradient, y)
			g.VDIVPS(m.scalars[muonDivisor], y, y)
			g.storeFloats(y, dst, 0, width)
			g.advance(dst, 4*width)
			g.advance(pm, momentum.bytes*width)
			g.advance(pg, gradients.bytes*width)
		}, 8, 1)
		g.end()
	}, func(name, signature string, weights, gradients, momentum format) {
		g.function(name, signature, muonUpdateDoc(name, weights, gradients, momentum))
		pw, pg, pm, po, n := g.pointer("w"), g.pointer("g"), g.pointer("m"), g.pointer("o"), g.length("w")
		m := g.muon(muonGradScale, muonOldMomentum, muonNewGradient, muonDecay, muonScale, muonWeightDecay, muonStepSize)
		var r rounding
		if weights == bfloat16s || momentum == bfloat16s {
			r = g.rounding()
		}
		g.elements(n, func(width int) {
			y := g.load(momentum, pm, width)
			m.momentum(y, g.load(gradients, pg, width))
			r.storeAll(g, momentum, []vec{y}, pm, width)
			w, o := g.load(weights, pw, width), g.loadFloats(po, 0, width)
			m.sum(muonScale, o, muonWeightDecay, w, o)
			g.VMULPS(m.scalars[muonDecay], w, w)
			g.VMULPS(m.scalars[muonStepSize], o, o)
			g.VSUBPS(o, w, w)
			r.storeAll(g, weights, []vec{w}, pw, width)
			g.advance(pw, weights.bytes*width)
			g.advance(pg, gradients.bytes*width)
			g.advance(pm, momentum.bytes*width)
			g.advance(po, 4*width)
		}, 8, 1)
		g.end()
	})
}
