package main

import "github.com/mmcloughlin/avo/operand"

// flushBits of the control register flush subnormal results and operands to zero.
const flushBits = 0x8040

// prepareFlush keeps the control register as it is, and with subnormals flushed.
func (g *generator) prepareFlush() {
	g.usual = g.AllocLocal(8)
	g.flush = g.usual.Offset(4)
	g.STMXCSR(g.usual)
	bits := g.GP32()
	g.MOVL(g.usual, bits)
	g.ORL(operand.U32(flushBits), bits)
	g.MOVL(bits, g.flush)
}

// rounding is what rounding to bf16 needs.
type rounding struct {
	*generator
	bias      vec
	one, high vec // of tiers with registers to spare
}

func (g *generator) rounding() rounding {
	r, ones := rounding{generator: g, bias: g.vec()}, g.vec()
	if !g.masks {
		g.VPCMPEQD(ones, ones, ones)
		g.VPSRLD(operand.U8(17), ones, r.bias)
		return r
	}
	r.one, r.high = g.vec(), g.vec()
	g.VXORPS(ones, ones, ones) // for avo, which does not know that the next one ignores its inputs
	g.VPTERNLOGD(operand.U8(0xff), ones, ones, ones)
	g.VPSRLD(operand.U8(17), ones, r.bias)
	g.VPSRLD(operand.U8(31), ones, r.one)
	g.VPSLLD(operand.U8(16), ones, r.high)
	return r
}

// nearest rounds to bf16, as a float32. A NaN that arithmetic made stays one when its low
// half is cut off.
func (r rounding) nearest(x vec) {
	rounded := r.vec()
	r.VPSRLD(operand.U8(16), x, rounded)
	if r.masks {
		number := r.K()
		r.VCMPPS(operand.U8(7), x, x, number)
		r.VPANDD(r.one, rounded, rounded)
		r.VPADDD(r.bias, rounded, rounded)
		r.VPADDD(x, rounded, number, x)
		r.VPANDD(r.high, x, x)
		return
	}
	notANumber := r.vec()
	r.VPSLLD(operand.U8(31), rounded, rounded)
	r.VPSRLD(operand.U8(31), rounded, rounded)
	r.VPADDD(r.bias, rounded, rounded)
	r.VPADDD(x, rounded, rounded)
	r.VCMPPS(operand.U8(3), x, x, notANumber)
	r.VBLENDVPS(notANumber, x, rounded, x)
	r.VPSRLD(operand.U8(16), x, x)
	r.VPSLLD(operand.U8(16), x, x)
}

// pair makes pairs of bf16 numbers of the rounded numbers of two rows.
func (r rounding) pair(first, second vec) {
	r.VPSRLD(operand.U8(16), first, first)
	r.VPORD(second, first, first)
}
