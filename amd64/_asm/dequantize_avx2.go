package main

import "github.com/mmcloughlin/avo/operand"

func dequantizeAVX2(g *generator) {
	g.function("DequantizeAVX2", "(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32)", `
DequantizeAVX2 decodes blocks of 8-bit codes; codes has the length of dst. A call of
200,000 elements takes about 100 µs.

	for i, code := range codes {
		dst[i] = table[code] * scales[i/block]
	}`)
	dst, codes, scales, table := g.pointer("dst"), g.pointer("codes"), g.pointer("scales"), g.number("table")
	g.blocks(g.length("dst"), func(n gp) {
		scale := g.YMM()
		g.VBROADCASTSS(at(scales, 0), scale)
		g.elements(n, func(width int) {
			lanes := min(width, 8)
			for i := 0; i < width; i += 8 {
				y := g.values(codes, i, lanes, table)
				g.VMULPS(scale, y, y)
				g.storeFloats(y, dst, 4*i, lanes)
			}
			g.advance(codes, width)
			g.advance(dst, 4*width)
		}, 32, 8, 1)
		g.advance(scales, 4)
	})
	g.end()
}

// blocks runs body with the length of each block of the argument block, the last of what
// is left of n.
func (g *generator) blocks(n gp, body func(length gp)) {
	again, done := g.label("block"), g.label("finished")
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(done))
	g.Label(again)
	length := g.GP64()
	g.MOVQ(g.resolve(g.Param("block")), length)
	g.CMPQ(length, n)
	g.CMOVQGT(n, length)
	g.SUBQ(length, n)
	body(length)
	g.TESTQ(n, n)
	g.JNZ(operand.LabelRef(again))
	g.Label(done)
}
