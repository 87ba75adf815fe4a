package main

import "github.com/mmcloughlin/avo/operand"

func splitAVX512(g *generator) {
	g.function("SplitAVX512", "(weights, low []uint16, src []float32)", `
SplitAVX512 stores float32 masters as bf16 weights and their 16-bit differences; all have one
length. A call of 500,000 elements takes about 100 µs.

	for i, x := range src {
		weight, rest := reference.Split(x)
		weights[i], low[i] = uint16(weight), rest
	}`)
	weights, low, src, n := g.pointer("weights"), g.pointer("low"), g.pointer("src"), g.length("src")
	h, quiet, upper := g.halves(), g.broadcast512(0x00400000), g.broadcast512(0xffff0000)
	g.elements512(n, 4, 2, func(of part) {
		for i := 0; i < of.registers; i += 2 {
			var x [2]vec
			for j := range x {
				x[j] = g.loadFloats512(src, i+j, of)
				const eitherAndThird = 0xa8
				g.VPTERNLOGD(operand.Imm(eitherAndThird), upper, quiet, g.unordered(x[j]), x[j])
			}
			rest := h.sort(h.mixLower(x[0], x[1]))
			weight := h.sort(h.mixUpper(x[0], x[1]))
			up := g.ZMM()
			g.VPSRLW(operand.Imm(15), rest, up)
			g.VPADDW(up, weight, weight)
			g.storePair(weight, weights, i/2, of)
			g.storePair(rest, low, i/2, of)
		}
	}, cursor{weights, 2}, cursor{low, 2}, cursor{src, 4})
	g.end()

	g.function("JoinAVX512", "(dst []float32, weights, low []uint16)", `
JoinAVX512 gives back the masters that SplitAVX512 stored; all have one length. A call of
500,000 elements takes about 100 µs.

	for i := range dst {
		dst[i] = reference.Join(bf16.BF16(weights[i]), low[i])
	}`)
	dst, n := g.pointer("dst"), g.length("dst")
	weights, low = g.pointer("weights"), g.pointer("low")
	g.elements512(n, 4, 1, func(of part) {
		for i := range of.registers {
			rest, z := g.ZMM(), g.loadBF16512(weights, i, of)
			if of.whole() {
				g.VPMOVSXWD(at(low, 32*i), rest)
			} else {
				g.VPMOVSXWD_Z(at(low, 32*i), of.lanes[i], rest)
			}
			g.VPADDD(rest, z, z)
			g.storeFloats512(z, dst, i, of)
		}
	}, cursor{dst, 4}, cursor{weights, 2}, cursor{low, 2})
	g.end()
}
