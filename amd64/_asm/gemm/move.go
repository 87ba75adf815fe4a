package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// transpose makes the transposition of one block.
func (g *generator) transpose() {
	name := "TransposeBlock" + g.name
	g.function(name, "(dst *float32, dStride int, src *float32, sStride int)", fmt.Sprintf(`
%[1]s transposes a block of %[2]dx%[2]d elsewhere.

	for i := range %[2]d {
		for j := range %[2]d {
			dst[j*dStride+i] = src[i*sStride+j]
		}
	}`, name, g.width))
	dst, dStride := g.arg("dst"), g.stride("dStride")
	src, sStride := g.arg("src"), g.stride("sStride")
	for range g.width / 8 {
		out := g.copyOf(dst)
		for j := 0; j < g.width; j += 8 {
			in := g.copyOf(src)
			var y []vec
			for i := range 8 {
				row := g.YMM()
				g.VMOVUPS(at(in, j), row)
				y = append(y, row)
				if i < 7 {
					g.ADDQ(sStride, in)
				}
			}
			for _, row := range g.transpose8(y) {
				g.VMOVUPS(row, at(out, 0))
				g.ADDQ(dStride, out)
			}
		}
		g.advance(dst, 32)
		for range 8 {
			g.ADDQ(sStride, src)
		}
	}
	g.end()
}

// transpose8 transposes 8 registers of 8 floats.
func (g *generator) transpose8(y []vec) []vec {
	pairs := make([]vec, 8)
	for i := 0; i < 8; i += 2 {
		pairs[i], pairs[i+1] = g.YMM(), g.YMM()
		g.VUNPCKLPS(y[i+1], y[i], pairs[i])
		g.VUNPCKHPS(y[i+1], y[i], pairs[i+1])
	}
	quads := make([]vec, 8)
	for i := 0; i < 8; i += 4 {
		for h := range 2 {
			low, high := g.YMM(), g.YMM()
			g.VUNPCKLPD(pairs[i+2+h], pairs[i+h], low)
			g.VUNPCKHPD(pairs[i+2+h], pairs[i+h], high)
			quads[i+2*h], quads[i+2*h+1] = low, high
		}
	}
	rows := make([]vec, 8)
	for i := range 4 {
		rows[i], rows[i+4] = g.YMM(), g.YMM()
		g.VINSERTF128(operand.U8(1), quads[i+4].AsX(), quads[i], rows[i])
		g.VPERM2F128(operand.U8(0x31), quads[i+4], quads[i], rows[i+4])
	}
	return rows
}

// rows makes the copy of rows as wide as a strip.
func (g *generator) rows() {
	name := "CopyRows" + g.name
	g.function(name, "(rows int, dst *float32, dStride int, src *float32, sStride int)", fmt.Sprintf(`
%[1]s copies rows of %[2]d elements.

	for i := range rows {
		for j := range %[2]d {
			dst[i*dStride+j] = src[i*sStride+j]
		}
	}`, name, g.width))
	rows := g.arg("rows")
	dst, dStride := g.arg("dst"), g.stride("dStride")
	src, sStride := g.arg("src"), g.stride("sStride")
	g.loop(rows, 1, func() {
		for j := 0; j < g.width; j += g.lanes {
			y := g.vec()
			g.VMOVUPS(at(src, j), y)
			g.VMOVUPS(y, at(dst, j))
		}
		g.ADDQ(sStride, src)
		g.ADDQ(dStride, dst)
	})
	g.end()
}

// normalize makes the copy of a block into a strip that divides it by a norm.
func (g *generator) normalize() {
	name, rounding := "NormalizeBlock"+g.name, ""
	if g.bfloat16 {
		rounding = "\n\t\t\tdst[i*16+j] = bf16.FromFloat32(dst[i*16+j]).Float32()"
	}
	g.function(name, "(dst, src *float32, sStride int, first, second, divisor float32)", fmt.Sprintf(`
%[1]s scales a block of %[2]dx%[2]d on the way to consecutive memory.

	for i := range %[2]d {
		for j := range %[2]d {
			dst[i*%[2]d+j] = float32(float32(src[i*sStride+j]*first)*second) / divisor%[3]s
		}
	}`, name, g.width, rounding))
	dst := g.arg("dst")
	src, sStride := g.arg("src"), g.stride("sStride")
	first, second, divisor := g.broadcast("first"), g.broadcast("second"), g.broadcast("divisor")
	rows := g.GP64()
	g.MOVQ(operand.I32(g.width), rows)
	g.loop(rows, 1, func() {
		for j := 0; j < g.width; j += g.lanes {
			y := g.vec()
			g.VMULPS(at(src, j), first, y)
			g.VMULPS(second, y, y)
			g.VDIVPS(divisor, y, y)
			if g.bfloat16 {
				g.round(y)
			}
			g.VMOVUPS(y, at(dst, j))
		}
		g.ADDQ(sStride, src)
		g.advance(dst, 4*g.width)
	})
	g.end()
}
