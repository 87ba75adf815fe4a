package main

import "github.com/mmcloughlin/avo/operand"

func factoredAVX512(g *generator) {
	for _, f := range factorFormats {
		b := g.factorBand("FactorBand"+f.suffix+"AVX512", f.format)
		b.scale = g.parameter512("scale")
		lanes := [2]vec{g.ZMM(), g.ZMM()}
		b.rows(lanes[:], func(z vec) { g.VPXORQ(z, z, z) }, func(n gp) { b.rowAVX512(lanes, n) }, func() vec {
			g.VADDPD(lanes[1], lanes[0], lanes[0])
			return g.sumEight(lanes[0])
		})
		g.end()
	}
}

// rowAVX512 adds the squares of n elements of a row.
func (b *factorBand) rowAVX512(lanes [2]vec, n gp) {
	g := b.g
	g.elements512(n, 2, 1, func(of part) {
		for i := range of.registers {
			for half, z := range b.wide512(i, of) {
				sum := at(b.sums, 128*i+64*half)
				g.VFMADD231PD(z, z, lanes[half])
				g.VFMADD213PD(sum, z, z)
				g.VMOVUPD(z, sum)
			}
		}
	}, cursor{b.row, b.format.bytes}, cursor{b.sums, 8})
}

// wide512 are the sixteen elements of register i times the scale, in float64, and zero where
// there is none.
func (b *factorBand) wide512(i int, of part) (halves [2]vec) {
	g := b.g
	halves = [2]vec{g.ZMM(), g.ZMM()}
	if of.whole() && b.format == float32s {
		for half, z := range halves {
			g.VMULPS(at(b.row, 64*i+32*half), b.scale.AsY(), z.AsY())
			g.VCVTPS2PD(z.AsY(), z)
		}
		return halves
	}
	x := stream{b.format, b.row}.load16(g, i, of)
	if of.whole() {
		g.VMULPS(b.scale, x, x)
	} else {
		g.VMULPS_Z(b.scale, x, of.lanes[i], x)
	}
	g.VEXTRACTF64X4(operand.Imm(1), x, halves[1].AsY())
	g.VCVTPS2PD(x.AsY(), halves[0])
	g.VCVTPS2PD(halves[1].AsY(), halves[1])
	return halves
}
