package main

import (
	"github.com/mmcloughlin/avo/operand"
)

// adamW512 holds what the loops need: the scalars, in every lane of a register or in memory.
type adamW512 struct {
	g           *generator
	from        gp // the scalars
	scalars     [scalarCount]vec
	reciprocal2 vec  // of rootCorrection2
	factored    bool // whether v is new already
}

func (g *generator) adamW512(inRegisters ...int) adamW512 {
	a := adamW512{g: g, from: g.number("s"), reciprocal2: g.ZMM()}
	for _, i := range append(inRegisters, rootCorrection2) {
		a.scalars[i] = g.ZMM()
		g.VBROADCASTSS(a.scalar(i), a.scalars[i])
	}
	g.VBROADCASTSS(g.data("word", 0x3f800000), a.reciprocal2)
	g.VDIVPS(a.scalars[rootCorrection2], a.reciprocal2, a.reciprocal2)
	return a
}

func (a adamW512) scalar(i int) mem { return at(a.from, 4*i) }

func (a adamW512) times(i int, x, product vec) {
	if a.scalars[i] == nil {
		a.g.VMULPS_BCST(a.scalar(i), x, product)
	} else {
		a.g.VMULPS(a.scalars[i], x, product)
	}
}

func (a adamW512) addEpsilon(x vec) {
	if a.scalars[epsilon] == nil {
		a.g.VADDPS_BCST(a.scalar(epsilon), x, x)
	} else {
		a.g.VADDPS(a.scalars[epsilon], x, x)
	}
}

// moments makes w, g, m and v new, but for what is subtracted from w.
func (a adamW512) moments(w, g, m, v vec) {
	t := a.g.ZMM()
	a.times(gradScale, g, g)
	a.times(decay, w, w)
	a.times(oneMinusBeta1, g, t)
	a.times(beta1, m, m)
	a.g.VADDPS(t, m, m)
	if a.factored {
		return
	}
	a.times(oneMinusBeta2, g, t)
	a.g.VMULPS(g, t, t)
	a.times(beta2, v, v)
	a.g.VADDPS(t, v, v)
}

// lookahead is what takes m's place in the step.
func (a adamW512) lookahead(g, m vec) vec {
	t, u := a.g.ZMM(), a.g.ZMM()
	a.times(nesterovM, m, t)
	a.times(nesterovG, g, u)
	a.g.VADDPS(u, t, t)
	return t
}

// update is the contract's loop body, on new registers of w, g, m and v. Where something is
// not finite, w is NaN or infinite and no more is promised.
//
// The root is divided by rootCorrection2 as Markstein showed: with the reciprocal y of c
// rounded, q = x*y and r = x - q*c, which is exact, q + r*y rounds to the quotient. It does
// so for every c; the caller sees that its exponent is in range, as that of a root is.
func (a adamW512) update(w, g, m, v pair512, nesterov bool) {
	var root, d, step pair512
	for i := range w {
		root[i], d[i], step[i] = a.g.ZMM(), a.g.ZMM(), a.g.ZMM()
		a.moments(w[i], g[i], m[i], v[i])
		a.g.VSQRTPS(v[i], root[i])
	}
	for i := range w {
		a.g.VMULPS(a.reciprocal2, root[i], d[i])
		a.g.VFNMADD231PS(a.scalars[rootCorrection2], d[i], root[i])
		a.g.VFMADD231PS(a.reciprocal2, root[i], d[i])
		a.addEpsilon(d[i])
		t := m[i]
		if nesterov {
			t = a.lookahead(g[i], m[i])
		}
		a.times(stepSize, t, step[i])
		a.g.VDIVPS(d[i], step[i], step[i])
	}
	for i := range w {
		a.g.VSUBPS(step[i], w[i], w[i])
	}
}

// carefulUpdate is the same for what need not be finite, with the processor's own division.
func (a adamW512) carefulUpdate(w, g, m, v vec, nesterov mask) {
	a.moments(w, g, m, v)
	d, t := a.g.ZMM(), a.lookahead(g, m)
	a.g.VSQRTPS(v, d)
	a.g.VDIVPS(a.scalars[rootCorrection2], d, d)
	a.addEpsilon(d)
	a.g.VBLENDMPS(t, m, nesterov, t)
	a.times(stepSize, t, t)
	a.g.VDIVPS(d, t, t)
	a.g.VSUBPS(t, w, w)
}

// notFinite selects the lanes of which w or v is not finite, which is so where g or m is not.
func (g *generator) notFinite(w, v vec) mask {
	const nanOrInfinity = 0x99
	k, other := g.K(), g.K()
	g.VFPCLASSPSZ(operand.Imm(nanOrInfinity), w, k)
	g.VFPCLASSPSZ(operand.Imm(nanOrInfinity), v, other)
	g.KORW(other, k, k)
	return k
}

func adamWFloat32AVX512(g *generator) { adamWElements512(g, float32s) }
func adamWBF16AVX512(g *generator)    { adamWElements512(g, bfloat16s) }

func adamWElements512(g *generator, moments format) {
	for _, pair := range pairs {
		g.adamWFunction("AVX512", pair[0], pair[1], moments)
		g.adamWLoops512(pair[0], pair[1], moments)
	}
}

// adamWLoops512 steps 32 elements at a time. The last ones, and those where something is
// not finite, are stepped carefully, 16 or fewer at a time.
func (g *generator) adamWLoops512(weights, gradients, moments format) {
	left, counted := g.GP64(), g.GP64()
	g.XORQ(counted, counted)
	a := g.adamW512(gradScale, decay, beta1, oneMinusBeta1, beta2, oneMinusBeta2, epsilon, stepSize)
	b := bfloats512{halves: halves{g: g}}
	if weights == bfloat16s || gradients == bfloat16s || moments == bfloat16s {
		b = g.bfloats512(weights == float32s || gradients == float32s || moments == float32s)
	}

	parameter, end := g.label("parameter"), g.label("end")
	g.Label(parameter)
	call := g.nextCall(end)
	streams := []stream{
		{weights, g.word(call, weightsOfCall)}, {gradients, g.word(call, gradientsOfCall)},
		{moments, g.word(call, mOfCall)}, {moments, g.word(call, vOfCall)},
	}
	n := g.word(call, lengthOfCall)

	plain, ahead, careful := g.label("plain"), g.label("nesterov"), g.label("careful")
	choose := func() {
		g.CMPB(g.resolve(g.Param("nesterov")), operand.Imm(0))
		g.JE(operand.LabelRef(plain))
	}
	fast := func(start string, nesterov bool) {
		g.Label(start)
		g.MOVQ(n, left)
		g.CMPQ(n, operand.Imm(32))
		g.JB(operand.LabelRef(careful))
		g.MOVL(operand.U32(32), left.As32())
		var x [4]pair512
		for i, s := range streams {
			g.PREFETCHT0(at(s.p, prefetchAhead))
			if s.bytes == 4 {
				g.PREFETCHT0(at(s.p, prefetchAhead+64))
			}
			x[i] = s.load32(b, 0)
		}
		a.update(x[0], x[1], x[2], x[3], nesterov)
		zero, sum, bad := g.ZMM(), g.ZMM(), g.K()
		g.VPXORD(zero, zero, zero)
		g.VMULPS(zero, x[0][0], sum)
		g.VFMADD231PS(zero, x[0][1], sum)
		g.VCMPPS(operand.Imm(3), sum, sum, bad)
		g.KORTESTW(bad, bad)
		g.JNZ(operand.LabelRef(careful))
		for _, i := range []int{0, 2, 3} {
			streams[i].store32(b, x[i])
		}
		for _, s := range streams {
			g.advance(s.p, 32*s.bytes)
		}
		g.SUBQ(operand.Imm(32), n)
		g.JMP(operand.LabelRef(start))
	}
	choose()
	fast(ahead, true)
	fast(plain, false)

	g.Label(careful)
	g.TESTQ(left, left)
	again := g.label("again")
	g.JZ(operand.LabelRef(parameter))
	g.Label(again)
	lanes := part{1, []mask{g.firstLanes(g.atMost(left, 16))}, nil}
	var x [4]vec
	for i, s := range streams {
		x[i] = s.load16(g, 0, lanes)
	}
	a.carefulUpdate(x[0], x[1], x[2], x[3], g.flag("nesterov"))
	bad, found := g.notFinite(x[0], x[3]), g.GP64()
	g.KANDW(lanes.lanes[0], bad, bad)
	g.KMOVW(bad, found.As32())
	g.POPCNTQ(found, found)
	g.ADDQ(found, counted)
	g.KANDW(g.flag("skip"), bad, bad)
	g.KANDNW(lanes.lanes[0], bad, lanes.lanes[0])
	for _, i := range []int{0, 2, 3} {
		streams[i].store16(g, x[i], lanes)
	}
	for _, s := range streams {
		g.advance(s.p, 16*s.bytes)
	}
	taken := g.atMost(left, 16)
	g.SUBQ(taken, n)
	g.SUBQ(taken, left)
	g.JNZ(operand.LabelRef(again))
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(parameter))
	choose()
	g.JMP(operand.LabelRef(ahead))

	g.Label(end)
	g.MOVQ(counted, g.result())
	g.end()
}

const prefetchAhead = 512

// flag is a boolean argument in every lane.
func (g *generator) flag(name string) mask {
	k := g.K()
	g.KMOVW(g.flagBits(name), k)
	return k
}

// flagBits is a boolean argument in every bit.
func (g *generator) flagBits(name string) gp {
	bits := g.GP32()
	g.MOVBLZX(g.resolve(g.Param(name)), bits)
	g.NEGL(bits)
	return bits
}

// atMost is the lesser of n and limit.
func (g *generator) atMost(n gp, limit uint32) gp {
	least := g.GP64()
	g.MOVL(operand.U32(limit), least.As32())
	g.CMPQ(n, least)
	g.CMOVQLT(n, least)
	return least
}

// stream is an argument's memory and the format of its numbers.
type stream struct {
	format
	p gp
}

// pair512 are 32 elements in two registers.
type pair512 [2]vec

// load32 loads registers first and first+1.
func (s stream) load32(b bfloats512, first int) (x pair512) {
	x = pair512{b.g.ZMM(), b.g.ZMM()}
	if s.format == bfloat16s {
		b.load(at(s.p, 32*first), x)
		return x
	}
	for i := range x {
		b.g.VMOVUPS(at(s.p, 64*(first+i)), x[i])
	}
	return x
}

// store32 stores finite numbers.
func (s stream) store32(b bfloats512, x pair512) {
	if s.format == bfloat16s {
		b.store(x, at(s.p, 0))
		return
	}
	for i := range x {
		b.g.VMOVUPS(x[i], at(s.p, 64*i))
	}
}

// load16 loads register i of a part.
func (s stream) load16(g *generator, i int, of part) vec {
	if s.format == bfloat16s {
		return g.loadBF16512(s.p, i, of)
	}
	return g.loadFloats512(s.p, i, of)
}

func (s stream) store16(g *generator, x vec, of part) {
	if s.format == bfloat16s {
		y := g.rounding512().nearest(x)
		g.VPSRLD(operand.Imm(16), y, y)
		g.VPMOVDW(y, of.lanes[0], at(s.p, 0))
	} else {
		g.storeFloats512(x, s.p, 0, of)
	}
}

// bfloats512 widens and rounds 32 bf16 numbers at a time: into one register those with even
// index and into another those with odd index, or, where float32 numbers come with them, the
// first 16 and the last.
type bfloats512 struct {
	halves
	upper, ones, ties vec
	inOrder           bool
	mix               vec // the order of loads
}

func (g *generator) bfloats512(inOrder bool) bfloats512 {
	b := bfloats512{halves: g.halves(), upper: g.broadcast512(0xffff0000), ones: g.broadcast512(0x00010001), ties: g.broadcast512(0x80008000), inOrder: inOrder}
	if inOrder {
		b.mix = g.mixedOrder()
	}
	return b
}

func (b bfloats512) load(p mem, x pair512) {
	if b.inOrder {
		mixed := b.g.ZMM()
		b.g.VPERMW(p, b.mix, mixed)
		b.g.VPSLLD(operand.Imm(16), mixed, x[0])
		b.g.VPANDD(b.upper, mixed, x[1])
		return
	}
	b.g.VPSLLD(operand.Imm(16), p, x[0])
	b.g.VPANDD(p, b.upper, x[1])
}

// store rounds finite numbers, by 16-bit arithmetic: up where the lower half, or one more if
// the upper half is odd, is above a tie. It spoils x.
func (b bfloats512) store(x pair512, p mem) {
	lower, upper := b.mixLower(x[0], x[1]), b.mixUpper(x[0], x[1])
	odd, up := b.g.ZMM(), b.g.K()
	b.g.VPANDD(b.ones, upper, odd)
	b.g.VPADDUSW(odd, lower, lower)
	const greater = 6
	b.g.VPCMPUW(operand.Imm(greater), b.ties, lower, up)
	b.g.VPADDW(b.ones, upper, up, upper)
	if b.inOrder {
		upper = b.sort(upper)
	}
	b.g.VMOVDQU16(upper, p)
}
