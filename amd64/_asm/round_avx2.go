package main

import "github.com/mmcloughlin/avo/operand"

// rounding holds the constants of rounding to bf16.
type rounding struct {
	g                *generator
	half, one, quiet vec
}

func (g *generator) rounding() rounding {
	return rounding{g, g.broadcast(0x7fff), g.broadcast(1), g.broadcast(0x0040)}
}

// nearest rounds each lane of x to bf16, which it leaves in the lane's low half.
func (g rounding) nearest(x vec) vec {
	high, nan, y := g.g.YMM(), g.g.YMM(), g.g.YMM()
	g.g.VPSRLD(operand.Imm(16), x, high)
	g.g.VCMPPS(operand.Imm(3), x, x, nan) // unordered
	g.g.VPAND(g.one, high, y)
	g.g.VPADDD(g.half, x, x)
	g.g.VPADDD(x, y, y)
	g.g.VPSRLD(operand.Imm(16), y, y)
	g.g.VPOR(g.quiet, high, high)
	g.g.VPBLENDVB(nan, high, y, y)
	return y
}

// storeNearest rounds numbers none of which is NaN to bf16 and stores them.
func (g rounding) storeNearest(x vec, p gp, offset, width int) {
	y := g.g.YMM()
	g.g.VPSRLD(operand.Imm(16), x, y)
	g.g.VPAND(g.one, y, y)
	g.g.VPADDD(g.half, y, y)
	g.g.VPADDD(x, y, y)
	if width == 1 {
		g.g.VPEXTRW(operand.Imm(1), y.AsX(), at(p, offset))
		return
	}
	const a, b = 0x07060302, 0x0f0e0b0a // the upper half-words
	g.g.VPSHUFB(g.g.data("upper", a, b, 0, 0, a, b, 0, 0), y, y)
	g.g.VPERMQ(operand.Imm(0x08), y, y)
	g.g.VMOVDQU(y.AsX(), at(p, offset))
}

// truncate cuts each lane of x to bf16, which it leaves in the lane's low half.
func (g rounding) truncate(x vec) vec {
	nan := g.g.YMM()
	g.g.VCMPPS(operand.Imm(3), x, x, nan)
	g.g.VPAND(g.quiet, nan, nan)
	g.g.VPSRLD(operand.Imm(16), x, x)
	g.g.VPOR(nan, x, x)
	return x
}

func roundAVX2(g *generator) {
	g.narrow("RoundAVX2", `
RoundAVX2 rounds to bf16, to nearest with ties to even; dst has the length of src. A
call of a million elements takes about 100 µs.

	for i, x := range src {
		dst[i] = uint16(bf16.FromFloat32(x))
	}`, rounding.nearest)
	g.narrow("TruncateAVX2", `
TruncateAVX2 rounds to bf16 towards zero; dst has the length of src. A call of a million
elements takes about 100 µs.

	for i, x := range src {
		dst[i] = uint16(bf16.Truncate(x))
	}`, rounding.truncate)

	g.function("WidenAVX2", "(dst []float32, src []uint16)", `
WidenAVX2 widens bf16, exactly; dst has the length of src. A call of a million elements
takes about 100 µs.

	for i, x := range src {
		dst[i] = bf16.BF16(x).Float32()
	}`)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		for i := 0; i < width; i += 8 {
			g.storeFloats(g.loadBF16(src, 2*i, lanes), dst, 4*i, lanes)
		}
		g.advance(src, 2*width)
		g.advance(dst, 4*width)
	}, 32, 8, 1)
	g.end()
}

func (g *generator) narrow(name, doc string, round func(rounding, vec) vec) {
	g.function(name, "(dst []uint16, src []float32)", doc)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	r := g.rounding()
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		for i := 0; i < width; i += 16 {
			y := []vec{round(r, g.loadFloats(src, 4*i, lanes))}
			if i+8 < width {
				y = append(y, round(r, g.loadFloats(src, 4*i+32, lanes)))
			}
			g.storeWords(dst, 2*i, lanes, y...)
		}
		g.advance(src, 4*width)
		g.advance(dst, 2*width)
	}, 32, 8, 1)
	g.end()
}
