package main

import "github.com/mmcloughlin/avo/operand"

const (
	philoxM0, philoxM1 = 0xd2511f53, 0xcd9e8d57
	philoxW0, philoxW1 = 0x9e3779b9, 0xbb67ae85
	philoxRounds       = 10
)

// philox draws the random bits of 64 elements at a time.
type philox struct {
	g      *generator
	keys   mem // two words a round, each in the low half of a 64-bit lane, broadcast
	steps  [2]vec
	m0, m1 vec
}

// philox prepares a stream: 4x32-10 with key seed.
func (g *generator) philox(seed, step gp) philox {
	p := philox{g: g, keys: g.AllocLocal(philoxRounds * 64)}
	key := [2]gp{g.GP64(), g.GP64()}
	g.MOVL(seed.As32(), key[0].As32())
	g.MOVQ(seed, key[1])
	g.SHRQ(operand.Imm(32), key[1])
	for round := range philoxRounds {
		for i, weyl := range []uint32{philoxW0, philoxW1} {
			y := g.YMM()
			g.VMOVQ(key[i], y.AsX())
			g.VPBROADCASTQ(y.AsX(), y)
			g.VMOVDQU(y, p.keys.Offset(64*round+32*i))
			g.ADDL(operand.U32(weyl), key[i].As32())
		}
	}
	for i := range p.steps {
		p.steps[i] = g.YMM()
		g.VMOVQ(step, p.steps[i].AsX())
		g.VPBROADCASTQ(p.steps[i].AsX(), p.steps[i])
	}
	g.VPSRLQ(operand.Imm(32), p.steps[1], p.steps[1])
	p.m0, p.m1 = g.broadcast(philoxM0), g.broadcast(philoxM1)
	return p
}

// draw stores the 64 half-words of groups group … group+7, eight a group, in order.
//
// Each word has a 64-bit lane. What is left in the upper halves is of no account, since
// VPMULUDQ reads the lower ones.
func (p philox) draw(group gp, draws mem) {
	for half := range 2 {
		var x [4]vec
		for i := range x {
			x[i] = p.g.YMM()
		}
		p.g.VMOVQ(group, x[0].AsX())
		p.g.VPBROADCASTQ(x[0].AsX(), x[0])
		p.g.VPADDQ(p.g.lanes(4*half), x[0], x[0])
		p.g.VPSRLQ(operand.Imm(32), x[0], x[1])
		p.g.VMOVDQA(p.steps[0], x[2])
		p.g.VMOVDQA(p.steps[1], x[3])
		for round := range philoxRounds {
			product0, product1 := p.g.YMM(), p.g.YMM()
			p.g.VPMULUDQ(p.m0, x[0], product0)
			p.g.VPMULUDQ(p.m1, x[2], product1)
			p.g.VPXOR(p.keys.Offset(64*round), x[1], x[1])
			p.g.VPXOR(p.keys.Offset(64*round+32), x[3], x[3])
			p.g.VPSRLQ(operand.Imm(32), product1, x[0])
			p.g.VPSRLQ(operand.Imm(32), product0, x[2])
			p.g.VPXOR(x[1], x[0], x[0])
			p.g.VPXOR(x[3], x[2], x[2])
			x[1], x[3] = product1, product0
		}
		for i := 0; i < 4; i += 2 { // join words 0 and 1, 2 and 3
			p.g.VPSLLQ(operand.Imm(32), x[i+1], x[i+1])
			p.g.VPBLENDD(operand.Imm(0xaa), x[i+1], x[i], x[i])
		}
		even, odd := p.g.YMM(), p.g.YMM()
		p.g.VPUNPCKLQDQ(x[2], x[0], even)
		p.g.VPUNPCKHQDQ(x[2], x[0], odd)
		to := draws.Offset(64 * half)
		p.g.VMOVDQU(even.AsX(), to)
		p.g.VMOVDQU(odd.AsX(), to.Offset(16))
		p.g.VEXTRACTI128(operand.Imm(1), even, to.Offset(32))
		p.g.VEXTRACTI128(operand.Imm(1), odd, to.Offset(48))
	}
}

// lanes is the constant first, first+1, … in 64-bit lanes.
func (g *generator) lanes(first int) mem {
	return g.data("lanes", uint32(first), 0, uint32(first+1), 0, uint32(first+2), 0, uint32(first+3), 0)
}

// stochasticRounding holds the constants of rounding by random bits.
type stochasticRounding struct {
	g                                   *generator
	magnitude, infinity, largest, quiet vec
}

func (g *generator) stochasticRounding() stochasticRounding {
	return stochasticRounding{g, g.broadcast(0x7fffffff), g.broadcast(0x7f800000), g.broadcast(0x7f7fffff), g.broadcast(0x00400000)}
}

// round rounds each lane of x with the random bits in the low half of the lane.
func (g stochasticRounding) round(x, random vec) vec {
	size, special, y, nan := g.g.YMM(), g.g.YMM(), g.g.YMM(), g.g.YMM()
	g.g.VPAND(g.magnitude, x, size)
	g.g.VPADDD(random, size, y)
	g.g.VPMINSD(g.largest, y, y)
	g.g.VPCMPGTD(g.infinity, size, nan)
	g.g.VPCMPGTD(g.largest, size, special)
	g.g.VPAND(g.quiet, nan, nan)
	g.g.VPOR(nan, size, nan) // the magnitude, quiet
	g.g.VPBLENDVB(special, nan, y, y)
	g.g.VPXOR(size, x, size) // the sign
	g.g.VPOR(size, y, y)
	g.g.VPSRLD(operand.Imm(16), y, y)
	return y
}

func stochasticAVX2(g *generator) {
	g.function("StochasticAVX2", "(dst []uint16, src []float32, seed uint64, step uint64, first uint64)", `
StochasticAVX2 rounds to bf16 by random bits; dst has the length of src. A call of 100,000
elements takes about 50 µs.

	for i, x := range src {
		dst[i] = uint16(bf16.Stochastic(x, bf16.RandomBits(seed, step, first+uint64(i))))
	}`)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	p := g.philox(g.number("seed"), g.number("step"))
	r := g.stochasticRounding()
	group, from := g.number("first"), g.GP64()
	g.MOVQ(group, from)
	g.SHRQ(operand.Imm(3), group)
	g.ANDQ(operand.Imm(7), from)
	draws := g.AllocLocal(128)

	again, done := g.label("draw"), g.label("done")
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(done))
	g.Label(again)
	for line := 0; line < 256; line += 64 {
		g.PREFETCHT0(at(src, prefetched+line))
	}
	p.draw(group, draws)
	g.ADDQ(operand.Imm(8), group)
	random, taken := g.GP64(), g.GP64()
	g.LEAQ(draws.Idx(from, 2), random)
	g.MOVL(operand.U32(64), taken.As32())
	g.SUBQ(from, taken)
	g.CMPQ(taken, n)
	g.CMOVQHI(n, taken)
	g.SUBQ(taken, n)
	g.XORQ(from, from)
	g.elements(taken, func(width int) {
		lanes := min(width, 8)
		var y []vec
		for i := 0; i < width; i += 8 {
			y = append(y, r.round(g.loadFloats(src, 4*i, lanes), g.loadWords(random, 2*i, lanes)))
		}
		g.storeWords(dst, 0, lanes, y...)
		g.advance(src, 4*width)
		g.advance(dst, 2*width)
		g.advance(random, 2*width)
	}, 16, 8, 1)
	g.TESTQ(n, n)
	g.JNZ(operand.LabelRef(again))
	g.Label(done)
	g.end()
}
