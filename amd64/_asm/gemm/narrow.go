package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// The moves between bf16 matrices, and strips and blocks of float32 or of pairs.

func (g *generator) widenRows() {
	g.rows("WidenRows", "dst *float32, dStride int, src *uint16, sStride int", `
%[1]s widens rows of %[2]d bf16 numbers.

	for i := range rows {
		for j := range %[2]d {
			dst[i*dStride+j] = bf16.BF16(src[i*sStride+j]).Float32()
		}
	}`, 4, 2, func(dst, src gp) {
		for j := 0; j < g.width; j += g.lanes {
			y := g.vec()
			g.VPMOVZXWD(mem{Base: src, Disp: 2 * j}, y)
			g.VPSLLD(operand.U8(16), y, y)
			g.VMOVUPS(y, at(dst, j))
		}
	})
}

func (g *generator) narrowRows() {
	r := rounding{}
	g.rows("NarrowRows", "dst *uint16, dStride int, src *float32, sStride int", `
%[1]s rounds rows of %[2]d numbers that arithmetic made to bf16.

	for i := range rows {
		for j := range %[2]d {
			dst[i*dStride+j] = uint16(bf16.FromFloat32(src[i*sStride+j]))
		}
	}`, 2, 4, func(dst, src gp) {
		if r.generator == nil {
			r = g.rounding()
		}
		words := []vec{}
		for j := 0; j < g.width; j += g.lanes {
			y := g.vec()
			g.VMOVUPS(at(src, j), y)
			r.nearest(y)
			g.VPSRLD(operand.U8(16), y, y)
			words = append(words, y)
		}
		if g.masks {
			for i, y := range words {
				g.VPMOVDW(y, mem{Base: dst, Disp: 2 * i * g.lanes})
			}
			return
		}
		packed := g.vec()
		g.VPACKUSDW(words[1], words[0], packed)
		g.VPERMQ(operand.U8(0xd8), packed, packed)
		g.VMOVUPS(packed, at(dst, 0))
	})
}

// widenTransposed makes the transposition of one block of bf16 numbers to float32.
func (g *generator) widenTransposed() {
	name := "TransposeWiden" + g.name
	g.function(name, "(dst *float32, dStride int, src *uint16, sStride int)", fmt.Sprintf(`
%[1]s transposes a block of %[2]dx%[2]d and widens it.

	for i := range %[2]d {
		for j := range %[2]d {
			dst[j*dStride+i] = bf16.BF16(src[i*sStride+j]).Float32()
		}
	}`, name, g.width))
	dst, dStride := g.arg("dst"), g.stride("dStride", 4)
	src, sStride := g.arg("src"), g.stride("sStride", 2)
	g.transposition(g.width/2, dst, src, sStride, func(to gp, words []vec) {
		for _, pair := range words {
			low, high := g.vec(), g.vec()
			g.VPSLLD(operand.U8(16), pair, low)
			g.VPSRLD(operand.U8(16), pair, high)
			g.VPSLLD(operand.U8(16), high, high)
			for _, row := range []vec{low, high} {
				g.VMOVUPS(row, at(to, 0))
				g.ADDQ(dStride, to)
			}
		}
	})
	g.end()
}

// pairTransposed makes the transposition of bf16 rows into pairs.
func (g *generator) pairTransposed() {
	name := "TransposePair" + g.name
	g.function(name, "(dst *float32, dStride int, src *uint16, sStride int)", fmt.Sprintf(`
%[1]s transposes %[2]d rows of %[3]d bf16 numbers into pairs of rows, the
first in the low half.

	for i := range %[2]d {
		for j := range %[3]d {
			setNumber(&dst[j/2*dStride+i], j%%2, src[i*sStride+j])
		}
	}`, name, g.width, 2*g.width))
	dst, dStride := g.arg("dst"), g.stride("dStride", 4)
	src, sStride := g.arg("src"), g.stride("sStride", 2)
	g.transposition(g.width, dst, src, sStride, func(to gp, words []vec) {
		for _, row := range words {
			g.VMOVUPS(row, at(to, 0))
			g.ADDQ(dStride, to)
		}
	})
	g.end()
}

func (g *generator) pairRows() {
	name := "PairRows" + g.name
	g.function(name, "(rows int, dst *float32, dStride int, src *uint16, sStride int)", fmt.Sprintf(`
%[1]s makes pairs of 2*rows rows of %[2]d bf16 numbers, the first in the low
half.

	for i := range rows {
		for j := range %[2]d {
			setNumber(&dst[i*dStride+j], 0, src[2*i*sStride+j])
			setNumber(&dst[i*dStride+j], 1, src[(2*i+1)*sStride+j])
		}
	}`, name, g.width))
	rows := g.arg("rows")
	dst, dStride := g.arg("dst"), g.stride("dStride", 4)
	src, sStride := g.arg("src"), g.stride("sStride", 2)
	g.loop(rows, 1, func() {
		for j := 0; j < g.width; j += g.lanes {
			first, second := g.vec(), g.vec()
			g.VPMOVZXWD(mem{Base: src, Disp: 2 * j}, first)
			g.VPMOVZXWD(mem{Base: src, Index: sStride, Scale: 1, Disp: 2 * j}, second)
			g.VPSLLD(operand.U8(16), second, second)
			g.VPORD(second, first, first)
			g.VMOVUPS(first, at(dst, j))
		}
		g.ADDQ(sStride, src)
		g.ADDQ(sStride, src)
		g.ADDQ(dStride, dst)
	})
	g.end()
}

func (g *generator) unpairRows() {
	name := "UnpairRows" + g.name
	g.function(name, "(rows int, dst *float32, dStride int, src *float32, sStride int)", fmt.Sprintf(`
%[1]s widens 2*rows rows of %[2]d bf16 numbers that are in pairs.

	for i := range rows {
		for j := range %[2]d {
			dst[2*i*dStride+j] = number(src[i*sStride+j], 0)
			dst[(2*i+1)*dStride+j] = number(src[i*sStride+j], 1)
		}
	}`, name, g.width))
	rows := g.arg("rows")
	dst, dStride := g.arg("dst"), g.stride("dStride", 4)
	src, sStride := g.arg("src"), g.stride("sStride", 4)
	g.loop(rows, 1, func() {
		for j := 0; j < g.width; j += g.lanes {
			pair, first := g.vec(), g.vec()
			g.VMOVUPS(at(src, j), pair)
			g.VPSLLD(operand.U8(16), pair, first)
			g.VPSRLD(operand.U8(16), pair, pair)
			g.VPSLLD(operand.U8(16), pair, pair)
			g.VMOVUPS(first, at(dst, j))
			g.VMOVUPS(pair, mem{Base: dst, Index: dStride, Scale: 1, Disp: 4 * j})
		}
		g.ADDQ(sStride, src)
		g.ADDQ(dStride, dst)
		g.ADDQ(dStride, dst)
	})
	g.end()
}
