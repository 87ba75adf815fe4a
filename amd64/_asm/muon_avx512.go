package main

// muon512 holds the scalars of the step.
type muon512 struct {
	g       *generator
	scalars [muonScalars]vec
}

func (g *generator) muon512(scalars ...int) muon512 {
	m, s := muon512{g: g}, g.number("s")
	for _, i := range scalars {
		m.scalars[i] = g.ZMM()
		g.VBROADCASTSS(at(s, 4*i), m.scalars[i])
	}
	return m
}

// momentum scales g and makes the old momentum m the new one.
func (m muon512) momentum(old, g vec) {
	m.g.VMULPS(m.scalars[muonGradScale], g, g)
	m.sum(muonOldMomentum, old, muonNewGradient, g, old)
}

// sum sets to to x and y each times a scalar, added. It may be x or y.
func (m muon512) sum(i int, x vec, j int, y, to vec) {
	t := m.g.ZMM()
	m.g.VMULPS(m.scalars[j], y, t)
	m.g.VMULPS(m.scalars[i], x, to)
	m.g.VADDPS(t, to, to)
}

func muonAVX512(g *generator) {
	eachMuon("AVX512", func(name, signature string, momentum, gradients format) {
		g.function(name, signature, muonDirectionDoc(name, momentum, gradients))
		dst, pm, pg, n := g.pointer("dst"), g.pointer("m"), g.pointer("g"), g.length("dst")
		m := g.muon512(muonGradScale, muonOldMomentum, muonNewGradient, muonDirectionM, muonDirectionG, muonDivisor)
		g.elements512(n, 2, 1, func(of part) {
			for i := range of.registers {
				z, gradient := g.load512(momentum, pm, i, of), g.load512(gradients, pg, i, of)
				m.momentum(z, gradient)
				m.sum(muonDirectionM, z, muonDirectionG, gradient, z)
				g.VDIVPS(m.scalars[muonDivisor], z, z)
				g.storeFloats512(z, dst, i, of)
			}
		}, cursor{dst, 4}, cursor{pm, momentum.bytes}, cursor{pg, gradients.bytes})
		g.end()
	}, func(name, signature string, weights, gradients, momentum format) {
		g.function(name, signature, muonUpdateDoc(name, weights, gradients, momentum))
		pw, pg, pm, po, n := g.pointer("w"), g.pointer("g"), g.pointer("m"), g.pointer("o"), g.length("w")
		m := g.muon512(muonGradScale, muonOldMomentum, muonNewGradient, muonDecay, muonScale, muonWeightDecay, muonStepSize)
		storeMomentum, storeWeights := g.storing512(momentum), g.storing512(weights)
		g.elements512(n, 2, 2, func(of part) {
			var momenta, w [2]vec
			for i := range momenta {
				momenta[i] = g.load512(momentum, pm, i, of)
				m.momentum(momenta[i], g.load512(gradients, pg, i, of))
			}
			storeMomentum(momenta, pm, 0, of)
			for i := range w {
				w[i] = g.load512(weights, pw, i, of)
				o := g.loadFloats512(po, i, of)
				m.sum(muonScale, o, muonWeightDecay, w[i], o)
				g.VMULPS(m.scalars[muonDecay], w[i], w[i])
				g.VMULPS(m.scalars[muonStepSize], o, o)
				g.VSUBPS(o, w[i], w[i])
			}
			storeWeights(w, pw, 0, of)
		}, cursor{pw, weights.bytes}, cursor{pg, gradients.bytes}, cursor{pm, momentum.bytes}, cursor{po, 4})
		g.end()
	})
}
