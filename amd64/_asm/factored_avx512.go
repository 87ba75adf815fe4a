package main

import "github.com/mmcloughlin/avo/operand"

func factoredAVX512(g *generator) {
	for _, f := range factorFormats {
		name := "FactorRows" + f.suffix + "AVX512"
		g.function(name, "(means []float32, g []"+f.format.goType+", cols int, scale float32)", factorRowsDoc(name, f.of, f.value))
		s := g.summation512(cursor{g.pointer("g"), f.format.bytes})
		s.scale = g.parameter512("scale")
		g.factorRows(s.chunk)

		name = "FactorSums" + f.suffix + "AVX512"
		g.function(name, "(sums []float64, g []"+f.format.goType+", scale float32)", factorSumsDoc(name, f.format))
		s = g.summation512(cursor{g.pointer("g"), f.format.bytes})
		s.scale = g.parameter512("scale")
		s.chunks(g.pointer("sums"), g.length("sums"), g.length("g"))
		g.end()

		name = "ColumnSquares" + f.suffix + "AVX512"
		g.function(name, "(totals []float64, g []"+f.format.goType+", rows, stride int, scale float32)", columnSquaresDoc(name, f.format))
		scale := g.parameter512("scale")
		c := g.columnSquares(f.format)
		g.elements512(g.length("totals"), 4, 1, func(of part) { c.addAVX512(of, scale) }, cursor{c.totals, 8}, cursor{c.first, f.format.bytes})
		g.end()
	}
}

// addAVX512 adds the squares of columns.
func (c columnSquares) addAVX512(of part, scale vec) {
	sums := make([]vec, 2*of.registers)
	masks := make([]mask, len(sums))
	for i := range sums {
		sums[i] = c.g.ZMM()
		if !of.whole() {
			masks[i] = of.lanes[i/2]
			if i%2 == 1 {
				masks[i] = c.g.K()
				c.g.KSHIFTRW(operand.Imm(8), of.lanes[i/2], masks[i])
			}
		}
	}
	c.eachChunk(lanes512*of.registers*c.format.bytes, func() {
		for _, sum := range sums {
			c.g.VPXORQ(sum, sum, sum)
		}
	}, func(p gp) {
		for i := range of.registers {
			x := c.g.load512(c.format, p, i, of)
			c.g.VMULPS(scale, x, x)
			low, high := x, c.g.ZMM()
			c.g.VEXTRACTF64X4(operand.Imm(1), x, high.AsY())
			c.g.VCVTPS2PD(x.AsY(), low)
			c.g.VCVTPS2PD(high.AsY(), high)
			c.g.VFMADD231PD(low, low, sums[2*i])
			c.g.VFMADD231PD(high, high, sums[2*i+1])
		}
	}, func() {
		for i, sum := range sums {
			if of.whole() {
				c.g.VADDPD(at(c.totals, 64*i), sum, sum)
				c.g.VMOVUPD(sum, at(c.totals, 64*i))
			} else {
				total := c.g.ZMM()
				c.g.VMOVUPD_Z(at(c.totals, 64*i), masks[i], total)
				c.g.VADDPD(total, sum, sum)
				c.g.VMOVUPD(sum, masks[i], at(c.totals, 64*i))
			}
		}
	})
}
