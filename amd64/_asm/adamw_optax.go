package main

import "github.com/mmcloughlin/avo/operand"

// The scalars of optax's order of operations, after the others.
const (
	correction1 = scalarCount + iota
	correction2
	learningRate
	weightDecay
	optaxScalarCount
)

const optaxSignature = "(w, g, m, v []float32, s *[15]float32, nesterov bool) int"

func optaxDoc(name string) string {
	return name + ` is a step of AdamW in optax's order of operations; all have one length. The
scalars are the first fields of reference.AdamWScalars. It returns the number of elements
that are not finite. A call of 50,000 elements takes about 100 µs.

	for i := range w {
		e := s.update(w[i], g[i], m[i], v[i])
		if !e.finite() {
			nonFinite++
		}
		w[i], m[i], v[i] = e.w, e.m, e.v
	}
	return nonFinite`
}

func productDoc(name string) string {
	return name + ` sets dst to a row of the product of two factors; col has its length. A call of
500,000 elements takes about 100 µs.

	for i, c := range col {
		dst[i] = row * c
	}`
}

func adamWOptaxAVX2(g *generator) {
	g.function("AdamWOptaxAVX2", optaxSignature, optaxDoc("AdamWOptaxAVX2"))
	pw, pg, pm, pv, n := g.pointer("w"), g.pointer("g"), g.pointer("m"), g.pointer("v"), g.length("w")
	a := g.adamW(optaxScalarCount)
	ahead, zero, counts := g.YMM(), g.YMM(), g.YMM()
	g.VMOVD(g.flagBits("nesterov"), ahead.AsX())
	g.VPBROADCASTD(ahead.AsX(), ahead)
	g.VXORPS(zero, zero, zero)
	g.VXORPS(counts, counts, counts)
	g.elements(n, func(width int) {
		w, m, v, gr := g.loadFloats(pw, 0, width), g.loadFloats(pm, 0, width), g.loadFloats(pv, 0, width), g.loadFloats(pg, 0, width)
		a.updateOptax(w, gr, m, v, ahead)
		bad := g.YMM()
		g.VXORPS(bad, bad, bad)
		a.probe(bad, zero, w, v, width)
		g.VCMPPS(operand.Imm(3), bad, bad, bad)
		g.VPSUBD(bad, counts, counts)
		for _, x := range []struct {
			of vec
			p  gp
		}{{w, pw}, {m, pm}, {v, pv}} {
			g.storeFloats(x.of, x.p, 0, width)
		}
		for _, p := range []gp{pw, pg, pm, pv} {
			g.advance(p, 4*width)
		}
	}, 8, 1)
	total := g.GP64()
	g.MOVL(g.sumLanes(counts), total.As32())
	g.MOVQ(total, g.result())
	g.end()

	g.function("ProductAVX2", "(dst, col []float32, row float32)", productDoc("ProductAVX2"))
	dst, col, n := g.pointer("dst"), g.pointer("col"), g.length("col")
	row := g.parameter("row")
	g.elements(n, func(width int) {
		y := g.loadFloats(col, 0, width)
		g.VMULPS(row, y, y)
		g.storeFloats(y, dst, 0, width)
		g.advance(dst, 4*width)
		g.advance(col, 4*width)
	}, 8, 1)
	g.end()
}

// updateOptax is the loop body, on new registers of w, g, m and v.
func (a adamW) updateOptax(w, g, m, v, nesterov vec) {
	t, u := a.g.YMM(), a.g.YMM()
	a.g.VMULPS(a.scalar(gradScale), g, g)
	a.g.VMULPS(a.scalar(oneMinusBeta1), g, t)
	a.g.VMULPS(a.scalar(beta1), m, m)
	a.g.VADDPS(t, m, m)
	a.g.VMULPS(g, g, t)
	a.g.VMULPS(a.scalar(oneMinusBeta2), t, t)
	a.g.VMULPS(a.scalar(beta2), v, v)
	a.g.VADDPS(t, v, v)
	a.g.VMULPS(a.scalar(nesterovM), m, t)
	a.g.VMULPS(a.scalar(nesterovG), g, u)
	a.g.VADDPS(u, t, t)
	a.g.VDIVPS(a.scalar(correction1), m, u)
	a.g.VBLENDVPS(nesterov, t, u, u)
	a.g.VDIVPS(a.scalar(correction2), v, t)
	a.g.VSQRTPS(t, t)
	a.g.VADDPS(a.scalar(epsilon), t, t)
	a.g.VDIVPS(t, u, u)
	a.g.VMULPS(a.scalar(weightDecay), w, t)
	a.g.VADDPS(t, u, u)
	a.g.VMULPS(a.scalar(learningRate), u, u)
	a.g.VSUBPS(u, w, w)
}

func adamWOptaxAVX512(g *generator) {
	g.function("AdamWOptaxAVX512", optaxSignature, optaxDoc("AdamWOptaxAVX512"))
	pw, pg, pm, pv, n := g.pointer("w"), g.pointer("g"), g.pointer("m"), g.pointer("v"), g.length("w")
	s, counted, ahead := g.number("s"), g.GP64(), g.flag("nesterov")
	g.XORL(counted.As32(), counted.As32())
	g.elements512(n, 1, 1, func(of part) {
		w, m, v, gr := g.loadFloats512(pw, 0, of), g.loadFloats512(pm, 0, of), g.loadFloats512(pv, 0, of), g.loadFloats512(pg, 0, of)
		g.updateOptax512(s, w, gr, m, v, ahead)
		bad, found := g.notFinite(w, v), g.GP64()
		if !of.whole() {
			g.KANDW(of.lanes[0], bad, bad)
		}
		g.KMOVW(bad, found.As32())
		g.POPCNTQ(found, found)
		g.ADDQ(found, counted)
		g.storeFloats512(w, pw, 0, of)
		g.storeFloats512(m, pm, 0, of)
		g.storeFloats512(v, pv, 0, of)
	}, cursor{pw, 4}, cursor{pg, 4}, cursor{pm, 4}, cursor{pv, 4})
	g.MOVQ(counted, g.result())
	g.end()

	g.function("ProductAVX512", "(dst, col []float32, row float32)", productDoc("ProductAVX512"))
	dst, col, n := g.pointer("dst"), g.pointer("col"), g.length("col")
	row := g.parameter512("row")
	g.elements512(n, 4, 1, func(of part) {
		for i := range of.registers {
			z := g.loadFloats512(col, i, of)
			g.VMULPS(row, z, z)
			g.storeFloats512(z, dst, i, of)
		}
	}, cursor{dst, 4}, cursor{col, 4})
	g.end()
}

func (g *generator) updateOptax512(s gp, w, gr, m, v vec, nesterov mask) {
	t, u := g.ZMM(), g.ZMM()
	scalar := func(i int) mem { return at(s, 4*i) }
	g.VMULPS_BCST(scalar(gradScale), gr, gr)
	g.VMULPS_BCST(scalar(oneMinusBeta1), gr, t)
	g.VMULPS_BCST(scalar(beta1), m, m)
	g.VADDPS(t, m, m)
	g.VMULPS(gr, gr, t)
	g.VMULPS_BCST(scalar(oneMinusBeta2), t, t)
	g.VMULPS_BCST(scalar(beta2), v, v)
	g.VADDPS(t, v, v)
	g.VMULPS_BCST(scalar(nesterovM), m, t)
	g.VMULPS_BCST(scalar(nesterovG), gr, u)
	g.VADDPS(u, t, t)
	g.VDIVPS_BCST(scalar(correction1), m, u)
	g.VMOVAPS(t, nesterov, u)
	g.VDIVPS_BCST(scalar(correction2), v, t)
	g.VSQRTPS(t, t)
	g.VADDPS_BCST(scalar(epsilon), t, t)
	g.VDIVPS(t, u, u)
	g.VMULPS_BCST(scalar(weightDecay), w, t)
	g.VADDPS(t, u, u)
	g.VMULPS_BCST(scalar(learningRate), u, u)
	g.VSUBPS(u, w, w)
}
