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

// control changes how chains, or other operations, treat subnormals.
func (g *generator) control(register mem) {
	if g.bfloat16 {
		g.LDMXCSR(register)
	}
}

// round rounds to bf16. A NaN that arithmetic made stays one when its low half is cut off.
func (g *generator) round(x vec) {
	ones, rounded, notANumber := g.vec(), g.vec(), g.vec()
	g.VPCMPEQD(ones, ones, ones)
	g.VPSRLD(operand.U8(16), x, rounded)
	g.VPSLLD(operand.U8(31), rounded, rounded)
	g.VPSRLD(operand.U8(31), rounded, rounded)
	g.VPSRLD(operand.U8(17), ones, ones)
	g.VPADDD(ones, rounded, rounded)
	g.VPADDD(x, rounded, rounded)
	g.VCMPPS(operand.U8(3), x, x, notANumber)
	g.VBLENDVPS(notANumber, x, rounded, x)
	g.VPSRLD(operand.U8(16), x, x)
	g.VPSLLD(operand.U8(16), x, x)
}
