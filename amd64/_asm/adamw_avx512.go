package main

import (
	"github.com/mmcloughlin/avo/operand"
)

// adamW512 holds what the loops need: the scalars in every lane, but for those of nesterov,
// which stay in memory.
type adamW512 struct {
	*generator
	from        gp // the scalars
	scalars     [nesterovM]vec
	reciprocal2 vec // of rootCorrection2
	round       rounding512
}

func (g *generator) adamW512(paired bool) adamW512 {
	a := adamW512{generator: g, from: g.number("s"), reciprocal2: g.ZMM()}
	for i := range a.scalars {
		a.scalars[i] = g.ZMM()
		g.VBROADCASTSS(a.scalar(i), a.scalars[i])
	}
	g.VBROADCASTSS(g.data("word", 0x3f800000), a.reciprocal2)
	g.VDIVPS(a.scalars[rootCorrection2], a.reciprocal2, a.reciprocal2)
	a.round = g.rounding512(paired)
	return a
}

func (a adamW512) scalar(i int) mem { return at(a.from, 4*i) }

// moments makes w, g, m and v new, but for what is subtracted from w.
func (a adamW512) moments(w, g, m, v vec) {
	t := a.ZMM()
	a.VMULPS(a.scalars[gradScale], g, g)
	a.VMULPS(a.scalars[decay], w, w)
	a.VMULPS(a.scalars[oneMinusBeta1], g, t)
	a.VMULPS(a.scalars[beta1], m, m)
	a.VADDPS(t, m, m)
	a.VMULPS(a.scalars[oneMinusBeta2], g, t)
	a.VMULPS(g, t, t)
	a.VMULPS(a.scalars[beta2], v, v)
	a.VADDPS(t, v, v)
}

// lookahead is what takes m's place in the step.
func (a adamW512) lookahead(g, m vec) vec {
	t, u := a.ZMM(), a.ZMM()
	a.VMULPS_BCST(a.scalar(nesterovM), m, t)
	a.VMULPS_BCST(a.scalar(nesterovG), g, u)
	a.VADDPS(u, t, t)
	return t
}

// update is the contract's loop body, on new registers of w, g, m and v. Where something is
// not finite, w is NaN or infinite and no more is promised.
//
// The root is divided by rootCorrection2 as Markstein showed: with the reciprocal y of c
// rounded, q = x*y and r = x - q*c, which is exact, q + r*y rounds to the quotient. It does
// so for every c; the caller sees that its exponent is in range, as that of a root is.
func (a adamW512) update(w, g, m, v vec, nesterov bool) {
	a.moments(w, g, m, v)
	root, d := a.ZMM(), a.ZMM()
	a.VSQRTPS(v, root)
	a.VMULPS(a.reciprocal2, root, d)
	a.VFNMADD231PS(a.scalars[rootCorrection2], d, root)
	a.VFMADD231PS(a.reciprocal2, root, d)
	a.VADDPS(a.scalars[epsilon], d, d)
	t := m
	if nesterov {
		t = a.lookahead(g, m)
	}
	step := a.ZMM()
	a.VMULPS(a.scalars[stepSize], t, step)
	a.VDIVPS(d, step, step)
	a.VSUBPS(step, w, w)
}

// carefulUpdate is the same for what need not be finite, with the processor's own division.
func (a adamW512) carefulUpdate(w, g, m, v vec, nesterov mask) {
	a.moments(w, g, m, v)
	d, t := a.ZMM(), a.lookahead(g, m)
	a.VSQRTPS(v, d)
	a.VDIVPS(a.scalars[rootCorrection2], d, d)
	a.VADDPS(a.scalars[epsilon], d, d)
	a.VBLENDMPS(t, m, nesterov, t)
	a.VMULPS(a.scalars[stepSize], t, t)
	a.VDIVPS(d, t, t)
	a.VSUBPS(t, w, w)
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
	streams := []stream{
		{weights, g.pointer("w")}, {gradients, g.pointer("g")}, {moments, g.pointer("m")}, {moments, g.pointer("v")},
	}
	n, left, counted := g.length("w"), g.GP64(), g.GP64()
	g.XORQ(counted, counted)
	paired := weights == bfloat16s && gradients == bfloat16s && moments == bfloat16s
	a := g.adamW512(paired)

	plain, ahead, careful, done := g.label("plain"), g.label("nesterov"), g.label("careful"), g.label("finish")
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
			x[i] = s.load32(a.round, paired)
		}
		for half := range 2 {
			a.update(x[0][half], x[1][half], x[2][half], x[3][half], nesterov)
		}
		zero, sum, bad := g.ZMM(), g.ZMM(), g.K()
		g.VPXORD(zero, zero, zero)
		g.VMULPS(zero, x[0][0], sum)
		g.VFMADD231PS(zero, x[0][1], sum)
		g.VCMPPS(operand.Imm(3), sum, sum, bad)
		g.KORTESTW(bad, bad)
		g.JNZ(operand.LabelRef(careful))
		for _, i := range []int{0, 2, 3} {
			streams[i].store32(a.round, x[i], paired)
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
	g.JZ(operand.LabelRef(done))
	g.Label(again)
	lanes := g.firstLanes(g.atMost(left, 16))
	var x [4]vec
	for i, s := range streams {
		x[i] = s.load16(g, lanes)
	}
	a.carefulUpdate(x[0], x[1], x[2], x[3], g.flag("nesterov"))
	bad, found := g.notFinite(x[0], x[3]), g.GP64()
	g.KANDW(lanes, bad, bad)
	g.KMOVW(bad, found.As32())
	g.POPCNTQ(found, found)
	g.ADDQ(found, counted)
	g.KANDW(g.flag("skip"), bad, bad)
	g.KANDNW(lanes, bad, lanes)
	for _, i := range []int{0, 2, 3} {
		streams[i].store16(a.round, x[i], lanes)
	}
	for _, s := range streams {
		g.advance(s.p, 16*s.bytes)
	}
	taken := g.atMost(left, 16)
	g.SUBQ(taken, n)
	g.SUBQ(taken, left)
	g.JNZ(operand.LabelRef(again))
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(done))
	choose()
	g.JMP(operand.LabelRef(ahead))

	g.Label(done)
	g.MOVQ(counted, g.result())
	g.end()
}

const prefetchAhead = 1536

// flag is a boolean argument in every lane.
func (g *generator) flag(name string) mask {
	bits, k := g.GP32(), g.K()
	g.MOVBLZX(g.resolve(g.Param(name)), bits)
	g.NEGL(bits)
	g.KMOVW(bits, k)
	return k
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

// pair512 are 32 elements: 16 and the next 16, or where all streams are bf16 and order does
// not matter, those with even and those with odd index.
type pair512 [2]vec

func (s stream) load32(r rounding512, paired bool) (x pair512) {
	x = pair512{r.ZMM(), r.ZMM()}
	switch {
	case paired:
		r.VPSLLD(operand.Imm(16), at(s.p, 0), x[0])
		r.VPANDD(at(s.p, 0), r.upper, x[1])
	case s.format == bfloat16s:
		for i := range x {
			r.VPMOVZXWD(at(s.p, 32*i), x[i])
			r.VPSLLD(operand.Imm(16), x[i], x[i])
		}
	default:
		for i := range x {
			r.VMOVUPS(at(s.p, 64*i), x[i])
		}
	}
	return x
}

// store32 stores finite numbers.
func (s stream) store32(r rounding512, x pair512, paired bool) {
	switch {
	case paired:
		r.VMOVDQU16(r.interleaved(x), at(s.p, 0))
	case s.format == bfloat16s:
		r.VMOVDQU16(r.consecutive(x), at(s.p, 0))
	default:
		for i := range x {
			r.VMOVUPS(x[i], at(s.p, 64*i))
		}
	}
}

func (s stream) load16(g *generator, lanes mask) vec {
	x := g.ZMM()
	if s.format == bfloat16s {
		g.VPMOVZXWD_Z(at(s.p, 0), lanes, x)
		g.VPSLLD(operand.Imm(16), x, x)
	} else {
		g.VMOVUPS_Z(at(s.p, 0), lanes, x)
	}
	return x
}

func (s stream) store16(r rounding512, x vec, lanes mask) {
	if s.format == bfloat16s {
		r.VPMOVDW(r.nearest(x), lanes, at(s.p, 0))
	} else {
		r.VMOVUPS(x, lanes, at(s.p, 0))
	}
}

// rounding512 rounds to bf16.
type rounding512 struct {
	*generator
	half, one vec // a word, in every 32-bit lane

	upperWords vec // the index of the upper half of each lane of two registers

	upper, ones, tie vec // of 16-bit lanes
	oddWords         mask
}

func (g *generator) rounding512(paired bool) rounding512 {
	r := rounding512{generator: g, half: g.broadcast512(0x7fff), one: g.broadcast512(1)}
	if paired {
		r.upper, r.ones, r.tie, r.oddWords = g.broadcast512(0xffff0000), g.broadcast512(0x00010001), g.broadcast512(0x80008000), g.K()
		odd := g.GP32()
		g.MOVL(operand.U32(0xaaaaaaaa), odd)
		g.KMOVD(odd, r.oddWords)
	} else {
		var index [16]uint32
		for i := range uint32(16) {
			index[i] = (4*i+3)<<16 | (4*i + 1)
		}
		r.upperWords = g.ZMM()
		g.VMOVDQU32(g.data("upperWords", index[:]...), r.upperWords)
	}
	return r
}

// up adds to finite numbers what rounds them when the lower half is cut off.
func (r rounding512) up(x vec) vec {
	y := r.ZMM()
	r.VPSRLD(operand.Imm(16), x, y)
	r.VPANDD(r.one, y, y)
	r.VPADDD(r.half, y, y)
	r.VPADDD(x, y, y)
	return y
}

// nearest rounds each lane, which may be NaN, into its low half.
func (r rounding512) nearest(x vec) vec {
	y, nan := r.up(x), r.K()
	r.VPSRLD(operand.Imm(16), y, y)
	r.VCMPPS(operand.Imm(3), x, x, nan)
	r.VPSRLD(operand.Imm(16), x, nan, y)
	r.VPORD_BCST(r.data("word", 0x0040), y, nan, y)
	return y
}

// consecutive rounds 32 finite numbers.
func (r rounding512) consecutive(x pair512) vec {
	low, high := r.up(x[0]), r.up(x[1])
	r.VPERMT2W(high, r.upperWords, low)
	return low
}

// interleaved rounds 16 finite numbers with even index and 16 with odd index, by 16-bit
// arithmetic: up where the lower half, or one more if the upper half is odd, is above a tie.
func (r rounding512) interleaved(x pair512) vec {
	upper, lower, odd, up := r.ZMM(), r.ZMM(), r.ZMM(), r.K()
	r.VPSRLD(operand.Imm(16), x[0], upper)
	r.VMOVDQU16(x[1], r.oddWords, upper)
	r.VPSLLD(operand.Imm(16), x[1], lower)
	r.VPBLENDMW(lower, x[0], r.oddWords, lower)
	r.VPANDD(r.ones, upper, odd)
	r.VPADDUSW(odd, lower, lower)
	r.VPCMPUW(operand.Imm(6), r.tie, lower, up)
	r.VPADDW(r.ones, upper, up, upper)
	return upper
}
