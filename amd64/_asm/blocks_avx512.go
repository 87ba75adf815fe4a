package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// coder512 codes blocks, 64 numbers at a time. What it needs of a block it makes of the
// block's scale and of the multiplier, which are in every lane.
type coder512 interface {
	block() block512
	prepare()                               // after scale and multiplier are there
	whole(codes, x, n gp, adjust func(vec)) // while n is 64 or more; adjusts numbers
	rest(codes, x, n gp, adjust func(vec))  // n is 1 to 63
}

// block512 is a block's scale and another number over it.
type block512 struct {
	scale, multiplier vec
	ratio             mem     // what the multiplier is times the scale, if there is one
	least, larger     float32 // blocks of a scale below least are multiplied by larger, a power of two
	ahead             int     // bytes that numbers are asked for ahead of their coding
	beside            *[]func()
}

func (g *generator) block512(least, larger float32, ratio mem) block512 {
	return block512{g.ZMM(), g.ZMM(), ratio, least, larger, 0, &[]func(){}}
}

func (b block512) block() block512 { return b }

func (b block512) multiplies() bool { return b.ratio.Base != nil }

// multiply makes the multiplier of the scale.
func (b block512) multiply(g *generator) {
	if !b.multiplies() {
		return
	}
	g.VMOVSS(b.ratio, b.multiplier.AsX())
	g.VDIVSS(b.scale.AsX(), b.multiplier.AsX(), b.multiplier.AsX())
	g.VBROADCASTSS(b.multiplier.AsX(), b.multiplier)
}

// encode512 codes n numbers of a block whose scale is known, and moves all three.
func (g *generator) encode512(c coder512, codes, x, n gp) {
	b := c.block()
	small, done := g.label("small"), g.label("done")
	if b.least > 0 {
		bits := g.GP32()
		g.VMOVD(b.scale.AsX(), bits)
		g.CMPL(bits, operand.U32(math.Float32bits(b.least)))
		g.JB(operand.LabelRef(small))
	}
	groups := func(adjust func(vec)) {
		b.multiply(g)
		c.prepare()
		c.whole(codes, x, n, adjust)
		none := operand.LabelRef(g.label("none"))
		g.TESTQ(n, n)
		g.JZ(none)
		c.rest(codes, x, n, adjust)
		g.LEAQ(mem{Base: x, Index: n, Scale: 4}, x)
		g.XORQ(n, n)
		g.Label(string(none))
	}
	groups(func(vec) {})
	g.Label(done)
	if b.least > 0 {
		*b.beside = append(*b.beside, func() {
			g.Label(small) // nothing is rounded
			larger := g.data("word", math.Float32bits(b.larger))
			g.VMULPS_BCST(larger, b.scale, b.scale)
			groups(func(z vec) { g.VMULPS_BCST(larger, z, z) })
			g.JMP(operand.LabelRef(done))
		})
	}
}

// load64 loads 64 numbers, and asks for those that are some bytes ahead.
func (g *generator) load64(x gp, adjust func(vec), ahead int) (z [4]vec) {
	for i := range z {
		if ahead > 0 {
			g.PREFETCHT0(at(x, ahead+64*i))
		}
		z[i] = g.ZMM()
		g.VMOVUPS(at(x, 64*i), z[i])
		adjust(z[i])
	}
	return z
}

// loadFirst64 loads n of 64 numbers, and zeros.
func (g *generator) loadFirst64(x, n gp, adjust func(vec)) (z [4]vec) {
	lanes := g.GP64()
	g.MOVQ(operand.I64(-1), lanes)
	g.BZHIQ(n, lanes, lanes)
	for i := range z {
		k := g.K()
		g.KMOVW(lanes.As32(), k)
		g.SHRQ(operand.Imm(lanes512), lanes)
		z[i] = g.ZMM()
		g.VMOVUPS_Z(at(x, 64*i), k, z[i])
		adjust(z[i])
	}
	return z
}

// store64 stores the codes of 64 numbers, past the caches where streamed is not 0.
func (g *generator) store64(y vec, codes gp, streamed mem, beside *[]func()) {
	if streamed.Base == nil {
		g.VMOVDQU64(y, at(codes, 0))
		return
	}
	past, stored := g.label("past"), g.label("stored")
	g.CMPB(streamed, operand.U8(0))
	g.JNE(operand.LabelRef(past))
	g.VMOVDQU64(y, at(codes, 0))
	g.Label(stored)
	*beside = append(*beside, func() {
		g.Label(past)
		g.VMOVNTDQ(y, at(codes, 0))
		g.JMP(operand.LabelRef(stored))
	})
}

// wholeBytes512 is whole of a coder to bytes.
func (g *generator) wholeBytes512(b block512, coded func([4]vec) vec, streamed mem, codes, x, n gp, adjust func(vec)) {
	g.loop(n, 64, func() {
		g.store64(coded(g.load64(x, adjust, b.ahead)), codes, streamed, b.beside)
		g.advance(x, 256)
		g.advance(codes, 64)
	})
}

// restBytes512 is its rest.
func (g *generator) restBytes512(coded func([4]vec) vec, codes, x, n gp, adjust func(vec)) {
	g.VMOVDQU8(coded(g.loadFirst64(x, n, adjust)), g.first(n), at(codes, 0))
	g.ADDQ(n, codes)
}

// fewBlocks are scaled at a time where a block is no longer than fewLongest, which keeps
// them in the first-level cache until they are coded.
const fewBlocks, fewLongest = 4, 512

// quantizeBlocks512 codes the blocks of the argument x, stores their scales, and returns the
// number of those that are not finite; zeros does a block that is zero or not finite, and
// moves x. The largest magnitudes are sought some blocks ahead of the codes.
func (g *generator) quantizeBlocks512(codes, scales, x gp, c coder512, zeros func(length gp)) {
	poisoned, n := g.result(), g.length("x")
	g.MOVQ(operand.U32(0), poisoned)
	later := g.AllocLocal(8) // elements after those that are done one block at a time
	few := g.label("fewAtATime")
	g.Label(few)
	g.fewBlocks512(codes, scales, x, n, later, c)

	length := g.GP64()
	again, finished := g.label("block"), g.label("finished")
	next := func(values gp, length gp) vec {
		left := g.GP64()
		g.MOVQ(g.resolve(g.Param("block")), length)
		g.CMPQ(length, n)
		g.CMOVQGT(n, length)
		g.SUBQ(length, n)
		g.MOVQ(length, left)
		from := g.GP64()
		g.MOVQ(values, from)
		g.LEAQ(mem{Base: values, Index: length, Scale: 4}, values)
		return g.absmax512(from, left, g.resolve(g.Param("least")))
	}
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(finished))
	values, largest := g.GP64(), g.XMM()
	g.MOVQ(x, values)
	g.VMOVAPS(next(values, length), largest)

	g.Label(again)
	following, nextLength, last := g.XMM(), g.GP64(), operand.LabelRef(g.label("last"))
	g.XORL(nextLength.As32(), nextLength.As32())
	g.TESTQ(n, n)
	g.JZ(last)
	g.VMOVAPS(next(values, nextLength), following)
	g.Label(string(last))
	g.scaleBlock(largest, c.block().scale, scales, g.resolve(g.Param("divisor")), func() { g.INCQ(poisoned) },
		func() { g.encode512(c, codes, x, length) }, func() { zeros(length) })
	g.advance(scales, 4)
	g.VMOVAPS(following, largest)
	g.MOVQ(nextLength, length)
	g.TESTQ(length, length)
	g.JNZ(operand.LabelRef(again))
	g.Label(finished)
	g.MOVQ(later, n)
	g.TESTQ(n, n)
	g.JNZ(operand.LabelRef(few))
}

// fewBlocks512 codes blocks while there are some of ordinary scales, if they are short and
// multiples of 64, and moves all four. One division is for the scales of all. It leaves in n
// the elements that are to be done one block at a time, and in later those after them.
func (g *generator) fewBlocks512(codes, scales, x, n gp, later mem, c coder512) {
	b := c.block()
	done, ordinary := operand.LabelRef(g.label("few")), operand.LabelRef(g.label("ordinary"))
	g.MOVQ(operand.U32(0), later)
	bits, few, values := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(g.resolve(g.Param("block")), few)
	g.TESTQ(operand.U32(63), few)
	g.JNZ(done)
	g.CMPQ(few, operand.U32(fewLongest))
	g.JHI(done)
	g.SHLQ(operand.Imm(2), few)
	g.CMPQ(n, few)
	g.JB(done)
	magnitude, largest, following := g.broadcast512(0x7fffffff), g.XMM(), g.XMM()
	multipliers := g.AllocLocal(4 * fewBlocks)
	g.MOVQ(x, values)
	g.VMOVAPS(g.fewAbsmax512(values, magnitude), largest)

	again, last := g.label("again"), operand.LabelRef(g.label("last"))
	g.Label(again)
	left := g.GP64()
	g.MOVQ(n, left)
	g.SUBQ(few, left)
	g.CMPQ(left, few)
	g.JB(last)
	g.VMOVAPS(g.fewAbsmax512(values, magnitude), following)
	g.Label(string(last))

	divisor, size, unusual := g.XMM(), g.XMM(), g.K()
	least := max(math.Float32bits(b.least), 1)
	g.VBROADCASTSS(g.resolve(g.Param("divisor")), divisor)
	g.VDIVPS(divisor, largest, largest)
	g.VPSUBD_BCST(g.data("word", least), largest, size)
	g.VPCMPUD_BCST(operand.Imm(5), g.data("word", math.Float32bits(float32(math.Inf(1)))-least), size, unusual) // not below
	g.KMOVW(unusual, bits.As32())
	g.TESTL(bits.As32(), bits.As32())
	g.JZ(ordinary)
	g.SUBQ(few, n)
	g.MOVQ(n, later)
	g.MOVQ(few, n)
	g.JMP(done)
	g.Label(string(ordinary))
	g.VMOVUPS(largest, at(scales, 0))
	if b.multiplies() {
		ratio := g.ZMM()
		g.VBROADCASTSS(b.ratio, ratio)
		g.VDIVPS(largest, ratio.AsX(), size)
		g.VMOVUPS(size, multipliers)
	}
	index := g.GP64()
	g.XORL(index.As32(), index.As32())
	block := g.label("block")
	g.Label(block)
	length := g.GP64()
	g.MOVQ(g.resolve(g.Param("block")), length)
	g.VBROADCASTSS(at(scales, 0), b.scale)
	if b.multiplies() {
		g.VBROADCASTSS(multipliers.Idx(index, 4), b.multiplier)
	}
	c.prepare()
	c.whole(codes, x, length, func(vec) {})
	g.advance(scales, 4)
	g.INCQ(index)
	g.CMPQ(index, operand.Imm(fewBlocks))
	g.JB(operand.LabelRef(block))
	g.SUBQ(few, n)
	g.VMOVAPS(following, largest)
	g.CMPQ(n, few)
	g.JAE(operand.LabelRef(again))
	g.Label(string(done))
}

// fewAbsmax512 are the largest magnitudes of blocks, in order; it moves values.
func (g *generator) fewAbsmax512(values gp, magnitude vec) vec {
	var largest [fewBlocks]vec
	for i := range largest {
		largest[i] = g.ZMM()
		g.VBROADCASTSS(g.resolve(g.Param("least")), largest[i])
		length := g.GP64()
		g.MOVQ(g.resolve(g.Param("block")), length)
		g.loop(length, 64, func() {
			var z [4]vec
			for j := range z {
				z[j] = g.ZMM()
				g.VPANDD(at(values, 64*j), magnitude, z[j])
			}
			g.VPMAXUD(z[1], z[0], z[0])
			g.VPMAXUD(z[3], z[2], z[2])
			g.VPMAXUD(z[2], z[0], z[0])
			g.VPMAXUD(z[0], largest[i], largest[i])
			g.advance(values, 256)
		})
	}
	join := func(a, b vec) vec { // halves of each
		even, odd := g.ZMM(), g.ZMM()
		g.VSHUFI32X4(operand.Imm(0x88), b, a, even)
		g.VSHUFI32X4(operand.Imm(0xdd), b, a, odd)
		g.VPMAXUD(odd, even, even)
		return even
	}
	z, other, order := join(join(largest[0], largest[1]), join(largest[2], largest[3])), g.ZMM(), g.ZMM()
	for _, turn := range []uint64{0x4e, 0xb1} {
		g.VPSHUFD(operand.Imm(turn), z, other)
		g.VPMAXUD(other, z, z)
	}
	g.VMOVDQU32(g.data("transposed", transposed...), order)
	g.VPERMD(z, order, z)
	return z.AsX().(vec)
}
