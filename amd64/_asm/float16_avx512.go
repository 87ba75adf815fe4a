package main

import (
	"strings"

	"github.com/mmcloughlin/avo/operand"
)

func float16AVX512(g *generator) {
	streaming := strings.NewReplacer("the length of\nsrc.", "the length of\nsrc. With stream, dst goes past the caches.")
	g.function("WidenFloat16AVX512", "(dst []float32, src []uint16, stream bool)", "WidenFloat16AVX512"+streaming.Replace(widenFloat16Doc))
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	widen := func(store func(z vec, i int, of part)) func(part) {
		return func(of part) {
			for i := range of.registers {
				z := g.ZMM()
				if of.whole() {
					g.VCVTPH2PS(at(src, 32*i), z)
				} else {
					g.VCVTPH2PS_Z(at(src, 32*i), of.lanes[i], z)
				}
				store(z, i, of)
			}
		}
	}
	plain := widen(func(z vec, i int, of part) { g.storeFloats512(z, dst, i, of) })
	cursors := []cursor{{dst, 4}, {src, 2}}
	g.streamed512(n, 4, 1, plain, widen(func(z vec, i int, _ part) { g.VMOVNTPS(z, at(dst, 64*i)) }), cursors...)
	g.elements512(n, 4, 1, plain, cursors...)
	g.end()

	g.function("RoundFloat16AVX512", "(dst []uint16, src []float32, stream bool)", "RoundFloat16AVX512"+streaming.Replace(roundFloat16Doc))
	dst, src, n = g.pointer("dst"), g.pointer("src"), g.length("src")
	round := func(store func(z vec, pair int, of part)) func(part) {
		return func(of part) {
			for i := 0; i < of.registers; i += 2 {
				low, high := g.loadFloats512(src, i, of), g.loadFloats512(src, i+1, of)
				g.VCVTPS2PH(operand.Imm(nearestEven), low, low.AsY())
				g.VCVTPS2PH(operand.Imm(nearestEven), high, high.AsY())
				g.VINSERTI64X4(operand.Imm(1), high.AsY(), low, low)
				store(low, i/2, of)
			}
		}
	}
	plain = round(func(z vec, pair int, of part) { g.storePair(z, dst, pair, of) })
	cursors = []cursor{{dst, 2}, {src, 4}}
	g.streamed512(n, 4, 2, plain, round(func(z vec, pair int, _ part) { g.VMOVNTDQ(z, at(dst, 64*pair)) }), cursors...)
	g.elements512(n, 4, 2, plain, cursors...)
	g.end()
}
