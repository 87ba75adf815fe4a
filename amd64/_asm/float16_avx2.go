package main

import "github.com/mmcloughlin/avo/operand"

// nearestEven is the rounding of VCVTPS2PH.
const nearestEven = 0

const (
	widenFloat16Doc = ` widens binary16, exactly, but a NaN becomes quiet; dst has the length of
src. A call of a million elements takes about 100 µs.

	for i, h := range src {
		dst[i] = float16.ToFloat32(h)
	}`
	roundFloat16Doc = ` rounds to binary16, to nearest with ties to even; dst has the length of
src. A call of a million elements takes about 100 µs.

	for i, x := range src {
		dst[i] = float16.FromFloat32(x)
	}`
)

func float16AVX2(g *generator) {
	g.function("WidenFloat16AVX2", "(dst []float32, src []uint16)", "WidenFloat16AVX2"+widenFloat16Doc)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		for i := 0; i < width; i += 8 {
			y := g.YMM()
			if lanes == 1 {
				h := g.GP32()
				g.MOVWLZX(at(src, 0), h)
				g.VMOVD(h, y.AsX())
				g.VCVTPH2PS(y.AsX(), y.AsX())
			} else {
				g.VCVTPH2PS(at(src, 2*i), y)
			}
			g.storeFloats(y, dst, 4*i, lanes)
		}
		g.advance(src, 2*width)
		g.advance(dst, 4*width)
	}, 32, 8, 1)
	g.end()

	g.function("RoundFloat16AVX2", "(dst []uint16, src []float32)", "RoundFloat16AVX2"+roundFloat16Doc)
	dst, src, n = g.pointer("dst"), g.pointer("src"), g.length("src")
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		for i := 0; i < width; i += 8 {
			y := g.loadFloats(src, 4*i, lanes)
			if lanes == 1 {
				h := g.GP32()
				g.VCVTPS2PH(operand.Imm(nearestEven), y.AsX(), y.AsX())
				g.VMOVD(y.AsX(), h)
				g.MOVW(h.As16(), at(dst, 0))
			} else {
				g.VCVTPS2PH(operand.Imm(nearestEven), y, at(dst, 2*i))
			}
		}
		g.advance(src, 4*width)
		g.advance(dst, 2*width)
	}, 32, 8, 1)
	g.end()
}
