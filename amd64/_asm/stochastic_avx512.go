package main

import "github.com/mmcloughlin/avo/operand"

// philox512 draws the random bits of 64 elements at a time.
type philox512 struct {
	g      *generator
	keys   mem // two words a round, each in the low half of 64 bits
	steps  [2]vec
	m0, m1 vec
	first  vec // 0 to 7 in 64-bit lanes
	odd    mask
	order  [2]vec // of the two halves of a draw
}

// philox512 prepares a stream: 4x32-10 with key seed.
func (g *generator) philox512(seed, step gp) philox512 {
	p := philox512{
		g: g, keys: g.AllocLocal(philoxRounds * 16), m0: g.broadcast512(philoxM0), m1: g.broadcast512(philoxM1),
		first: g.lanes512(0, 1, 2, 3, 4, 5, 6, 7), odd: g.K(),
		order: [2]vec{g.lanes512(0, 8, 1, 9, 2, 10, 3, 11), g.lanes512(4, 12, 5, 13, 6, 14, 7, 15)},
	}
	key := [2]gp{g.GP64(), g.GP64()}
	g.MOVL(seed.As32(), key[0].As32())
	g.MOVQ(seed, key[1])
	g.SHRQ(operand.Imm(32), key[1])
	for round := range philoxRounds {
		for i, weyl := range []uint32{philoxW0, philoxW1} {
			g.MOVQ(key[i], p.keys.Offset(16*round+8*i))
			g.ADDL(operand.U32(weyl), key[i].As32())
		}
	}
	for i := range p.steps {
		p.steps[i] = g.ZMM()
		g.VPBROADCASTQ(step, p.steps[i])
	}
	g.VPSRLQ(operand.Imm(32), p.steps[1], p.steps[1])
	bits := g.GP32()
	g.MOVL(operand.U32(0xaaaa), bits)
	g.KMOVW(bits, p.odd)
	return p
}

// lanes512 is a constant of 64-bit lanes.
func (g *generator) lanes512(numbers ...uint32) vec {
	var words []uint32
	for _, n := range numbers {
		words = append(words, n, 0)
	}
	z := g.ZMM()
	g.VMOVDQU64(g.data("lanes", words...), z)
	return z
}

// draw gives the half-words of eight groups from group on for each 64 elements, eight a
// group, in order.
//
// Each word has a 64-bit lane. What is left in the upper halves is of no account, since
// VPMULUDQ reads the lower ones.
func (p philox512) draw(group gp, elements int) (draws []vec) {
	counters := make([][4]vec, elements/64)
	for i := range counters {
		x := &counters[i]
		for j := range x {
			x[j] = p.g.ZMM()
		}
		from := p.g.GP64()
		p.g.LEAQ(at(group, 8*i), from)
		p.g.VPBROADCASTQ(from, x[0])
		p.g.VPADDQ(p.first, x[0], x[0])
		p.g.VPSRLQ(operand.Imm(32), x[0], x[1])
		p.g.VMOVDQA64(p.steps[0], x[2])
		p.g.VMOVDQA64(p.steps[1], x[3])
	}
	for round := range philoxRounds {
		for i := range counters {
			p.round(round, &counters[i])
		}
	}
	for _, x := range counters {
		for i := 0; i < 4; i += 2 { // join words 0 and 1, 2 and 3
			p.g.VPSLLQ(operand.Imm(32), x[i+1], x[i+1])
			p.g.VMOVDQA32(x[i+1], p.odd, x[i])
		}
		second := p.g.ZMM()
		p.g.VMOVDQA64(x[0], second)
		p.g.VPERMT2Q(x[2], p.order[0], x[0])
		p.g.VPERMT2Q(x[2], p.order[1], second)
		draws = append(draws, x[0], second)
	}
	return draws
}

func (p philox512) round(round int, x *[4]vec) {
	product0, product1 := p.g.ZMM(), p.g.ZMM()
	p.g.VPMULUDQ(p.m0, x[0], product0)
	p.g.VPMULUDQ(p.m1, x[2], product1)
	const upper = 0xf5 // a shuffle, since shifts and products share a port
	p.g.VPSHUFD(operand.Imm(upper), product1, x[0])
	p.g.VPSHUFD(operand.Imm(upper), product0, x[2])
	const xor3 = 0x96
	p.g.VPTERNLOGQ_BCST(operand.Imm(xor3), p.keys.Offset(16*round), x[1], x[0])
	p.g.VPTERNLOGQ_BCST(operand.Imm(xor3), p.keys.Offset(16*round+8), x[3], x[2])
	x[1], x[3] = product1, product0
}

// stochasticRounding512 holds the constants of rounding by random bits.
type stochasticRounding512 struct {
	halves
	mix                                 vec // the order of mixed half-words
	magnitude, largest, infinity, quiet vec // in every half-word
	ones                                vec
	rare                                *[]func()
}

func (g *generator) stochasticRounding512() stochasticRounding512 {
	r := stochasticRounding512{
		halves: g.halves(), mix: g.mixedOrder(), magnitude: g.broadcast512(0x7fff7fff), largest: g.broadcast512(0x7f7f7f7f),
		infinity: g.broadcast512(0x7f807f80), quiet: g.broadcast512(0x00400040), ones: g.broadcast512(0xffffffff), rare: new([]func()),
	}
	return r
}

// mixedOrder takes half-words in turn from the first 16 and from the last.
func (g *generator) mixedOrder() vec {
	z := g.ZMM()
	var words []uint32
	for i := range uint32(lanes512) {
		words = append(words, i|(i+lanes512)<<16)
	}
	g.VMOVDQU64(g.data("mix", words...), z)
	return z
}

// round rounds the lanes of a and b with 32 random half-words, to 32 half-words.
//
// The upper half-word of a number is what truncation makes of it; it goes up where the
// lower one and the random bits have a carry.
func (r stochasticRounding512) round(a, b, random vec) vec {
	lower, upper := r.mixLower(a, b), r.mixUpper(a, b)
	sum, size, up, special := r.g.ZMM(), r.g.ZMM(), r.g.K(), r.g.K()
	r.g.VPERMW(random, r.mix, random)
	r.g.VPADDW(random, lower, sum)
	const less, notLess, greater = 1, 5, 6
	r.g.VPCMPUW(operand.Imm(less), lower, sum, up)
	r.g.VPANDD(r.magnitude, upper, size)
	r.g.VPCMPUW(operand.Imm(notLess), r.largest, size, special)
	r.g.KORTESTD(special, special)
	isSpecial, resume := r.g.label("special"), r.g.label("resume")
	r.g.JNZ(operand.LabelRef(isSpecial))
	r.g.Label(resume)
	r.g.VPSUBW(r.ones, upper, up, upper)
	z := r.sort(upper)

	*r.rare = append(*r.rare, func() { // the largest stay finite, and a NaN becomes quiet
		r.g.Label(isSpecial)
		nan, fraction, quiet := r.g.K(), r.g.K(), r.g.ZMM()
		r.g.KANDND(up, special, up)
		r.g.VPTESTMW(lower, lower, fraction)
		r.g.VPCMPEQW(r.infinity, size, fraction, fraction)
		r.g.VPCMPUW(operand.Imm(greater), r.infinity, size, nan)
		r.g.KORD(fraction, nan, nan)
		r.g.VPORD(r.quiet, upper, quiet)
		r.g.VMOVDQU16(quiet, nan, upper)
		r.g.JMP(operand.LabelRef(resume))
	})
	return z
}

// endRare ends the function, with what seldom runs behind it.
func (r stochasticRounding512) endRare() {
	r.g.end()
	for _, emit := range *r.rare {
		emit()
	}
}

func stochasticAVX512(g *generator) {
	g.function("StochasticAVX512", "(dst []uint16, src []float32, seed uint64, step uint64, first uint64, stream bool)", `
StochasticAVX512 rounds to bf16 by random bits; dst has the length of src. With stream, dst
goes past the caches where its address is a multiple of 64 and first one of 8. A call of
200,000 elements takes about 50 µs.

	for i, x := range src {
		dst[i] = uint16(bf16.Stochastic(x, bf16.RandomBits(seed, step, first+uint64(i))))
	}`)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	p := g.philox512(g.number("seed"), g.number("step"))
	r := g.stochasticRounding512()
	group, from := g.number("first"), g.GP64()
	g.MOVQ(group, from)
	g.SHRQ(operand.Imm(3), group)
	g.ANDQ(operand.Imm(7), from)
	cursors := []cursor{{dst, 2}, {src, 4}}

	// Where the first group has begun already, and where the last does not end, the bits
	// wait in memory.
	draws := g.AllocLocal(128 + 64)
	partial, whole, rest, done := g.label("partial"), g.label("whole"), g.label("rest"), g.label("done")
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(done))
	g.TESTQ(from, from)
	g.JZ(operand.LabelRef(whole))
	g.Label(partial)
	for i, z := range p.draw(group, 64) {
		g.VMOVDQU64(z, draws.Offset(64*i))
	}
	g.ADDQ(operand.Imm(8), group)
	random, taken := g.GP64(), g.GP64()
	g.LEAQ(draws.Idx(from, 2), random)
	g.MOVL(operand.U32(64), taken.As32())
	g.SUBQ(from, taken)
	g.CMPQ(taken, n)
	g.CMOVQHI(n, taken)
	g.SUBQ(taken, n)
	var ends []gp
	for _, c := range cursors {
		end := g.GP64()
		g.LEAQ(mem{Base: c.gp, Index: taken, Scale: uint8(c.bytes)}, end)
		ends = append(ends, end)
	}
	g.elements512(taken, 2, 2, func(of part) {
		bits := g.ZMM()
		g.VMOVDQU64(at(random, 0), bits)
		g.storePair(r.round(g.loadFloats512(src, 0, of), g.loadFloats512(src, 1, of), bits), dst, 0, of)
	}, append(cursors, cursor{random, 2})...)
	for i, c := range cursors {
		g.MOVQ(ends[i], c.gp)
	}
	g.XORL(from.As32(), from.As32())

	const many = 128 // two draws, which do not wait for each other's rounds
	g.Label(whole)
	all := part{registers: many / lanes512}
	groups := func(store func(z vec, pair int)) {
		again := g.label("again")
		g.Label(again)
		g.CMPQ(n, operand.U32(many))
		g.JB(operand.LabelRef(rest))
		for i, bits := range p.draw(group, many) {
			for line := 0; line < 128; line += 64 {
				g.PREFETCHT0(at(src, prefetched+128*i+line))
			}
			store(r.round(g.loadFloats512(src, 2*i, all), g.loadFloats512(src, 2*i+1, all), bits), i)
		}
		g.ADDQ(operand.Imm(many/8), group)
		g.advanceAll(cursors, many)
		g.SUBQ(operand.U32(many), n)
		g.JMP(operand.LabelRef(again))
	}
	cached := operand.LabelRef(g.label("cached"))
	g.CMPB(g.resolve(g.Param("stream")), operand.U8(0))
	g.JE(cached)
	g.TESTQ(operand.U32(63), dst)
	g.JNZ(cached)
	groups(func(z vec, pair int) { g.VMOVNTDQ(z, at(dst, 64*pair)) })
	g.Label(string(cached))
	groups(func(z vec, pair int) { g.storePair(z, dst, pair, all) })
	g.Label(rest)
	g.TESTQ(n, n)
	g.JNZ(operand.LabelRef(partial))
	g.Label(done)
	unfenced := operand.LabelRef(g.label("unfenced"))
	g.CMPB(g.resolve(g.Param("stream")), operand.U8(0))
	g.JE(unfenced)
	g.SFENCE()
	g.Label(string(unfenced))
	r.endRare()
}
