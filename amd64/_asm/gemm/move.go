package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// transposeWords makes the transposition of one block of 32-bit words.
func (g *generator) transposeWords() {
	name := "TransposeBlock" + g.name
	g.function(name, "(dst *float32, dStride int, src *float32, sStride int)", fmt.Sprintf(`
%[1]s transposes a block of %[2]dx%[2]d elsewhere.

	for i := range %[2]d {
		for j := range %[2]d {
			dst[j*dStride+i] = src[i*sStride+j]
		}
	}`, name, g.width))
	dst, dStride := g.arg("dst"), g.stride("dStride", 4)
	src, sStride := g.arg("src"), g.stride("sStride", 4)
	g.transposition(g.width, dst, src, sStride, func(to gp, words []vec) {
		for _, row := range words {
			g.VMOVUPS(row, at(to, 0))
			g.ADDQ(dStride, to)
		}
	})
	g.end()
}

// mirrorBlock makes the symmetric block of one that is known on and above its diagonal.
func (g *generator) mirrorBlock() {
	name := "MirrorBlock" + g.name
	g.function(name, "(d *float32, dStride int)", fmt.Sprintf(`
%[1]s copies what a block of %[2]dx%[2]d has above its diagonal below it.

	for i := range %[2]d {
		for j := range i {
			d[i*dStride+j] = d[j*dStride+i]
		}
	}`, name, g.width))
	d, stride := g.arg("d"), g.stride("dStride", 4)
	below := g.rowPointer(d, stride, g.lanes)
	transpose := func(from gp, column int) []vec {
		if g.lanes == 16 {
			return g.transpose16(from, stride, [4]int{0, 1, 2, 3}, 4, column)
		}
		return g.transpose8(from, stride, column)
	}
	store := func(to gp, column int, words []vec, lanes func(row int) int) {
		to = g.copyOf(to)
		for i, row := range words {
			if n := lanes(i); n > 0 {
				g.storeFirst(row, at(to, column), n)
			}
			g.ADDQ(stride, to)
		}
	}
	all, triangle := func(int) int { return g.lanes }, func(row int) int { return row }
	store(d, 0, transpose(d, 0), triangle)
	store(below, 0, transpose(d, g.lanes), all)
	store(below, g.lanes, transpose(below, g.lanes), triangle)
	g.end()
}

// storeFirst stores the first n lanes.
func (g *generator) storeFirst(x vec, to mem, n int) {
	first := uint64(1)<<n - 1
	switch {
	case n == g.lanes:
		g.VMOVUPS(x, to)
	case g.masks:
		bits, mask := g.GP32(), g.K()
		g.MOVL(operand.U32(first), bits)
		g.KMOVW(bits, mask)
		g.VMOVUPS(x, mask, to)
	default:
		g.VBLENDPS(operand.U8(0xff&^first), to, x, x)
		g.VMOVUPS(x, to)
	}
}

// transposePairs makes the transposition of one block of pairs of rows.
func (g *generator) transposePairs() {
	name := "TransposePairs" + g.name
	g.function(name, "(dst *float32, dStride int, src *float32, sStride int)", fmt.Sprintf(`
%[1]s transposes a block of %[2]dx%[2]d bf16 numbers that are kept in pairs of
rows, the first in the low half. Strides are from one pair of rows to the next.

	for i := range %[2]d {
		for j := range %[2]d {
			setNumber(&dst[j/2*dStride+i], j%%2, number(src[i/2*sStride+j], i%%2))
		}
	}`, name, g.width))
	dst, dStride := g.arg("dst"), g.stride("dStride", 4)
	src, sStride := g.arg("src"), g.stride("sStride", 4)
	for j := 0; j < g.width; j += g.lanes {
		words := g.transpose16(src, sStride, [4]int{0, 1, 8, 9}, 2, j)
		for w := 0; w < len(words); w += 2 {
			low, high := g.vec(), g.vec()
			g.VPUNPCKLWD(words[w+1], words[w], low)
			g.VPUNPCKHWD(words[w+1], words[w], high)
			g.VMOVUPS(low, at(dst, 0))
			g.VMOVUPS(high, at(dst, g.lanes))
			g.ADDQ(dStride, dst)
		}
	}
	g.end()
}

// transposition transposes words of rows, as many as a strip is wide: store gets those
// of a vector's rows and lanes at a time, and moves to.
func (g *generator) transposition(columns int, dst, src, sStride gp, store func(to gp, words []vec)) {
	for lane := 0; lane < g.width; lane += g.lanes {
		to := g.copyOf(dst)
		for j := 0; j < columns; j += g.lanes {
			if g.lanes == 16 {
				store(to, g.transpose16(src, sStride, [4]int{0, 1, 2, 3}, 4, j))
			} else {
				store(to, g.transpose8(src, sStride, j))
			}
		}
		if lane+g.lanes < g.width {
			g.advance(dst, 4*g.lanes)
			for range g.lanes {
				g.ADDQ(sStride, src)
			}
		}
	}
}

// transpose8 transposes 8 rows of 8 words.
func (g *generator) transpose8(src, sStride gp, column int) []vec {
	in := g.copyOf(src)
	y := make([]vec, 8)
	for i := range y {
		y[i] = g.YMM()
		g.VMOVUPS(at(in, column), y[i])
		if i < 7 {
			g.ADDQ(sStride, in)
		}
	}
	quads := g.quads(y)
	rows := make([]vec, 8)
	for i := range 4 {
		rows[i], rows[i+4] = g.YMM(), g.YMM()
		g.VINSERTF128(operand.U8(1), quads[i+4].AsX(), quads[i], rows[i])
		g.VPERM2F128(operand.U8(0x31), quads[i+4], quads[i], rows[i+4])
	}
	return rows
}

// transpose16 transposes 16 rows of 16 words. Loads put a quarter of four rows into a
// register, so that the transposition is one within quarters: those of rows q, q+step, …
// for each q of first.
func (g *generator) transpose16(src, sStride gp, first [4]int, step, column int) []vec {
	base, triple := make([]gp, 4), g.GP64()
	g.LEAQ(mem{Base: sStride, Index: sStride, Scale: 2}, triple)
	for i := range base {
		base[i] = g.copyOf(src)
		if i < 3 {
			src = g.GP64()
			g.LEAQ(mem{Base: base[i], Index: sStride, Scale: 4}, src)
		}
	}
	chunk := func(row, quarter int) mem {
		m := mem{Base: base[row/4], Disp: 4*column + 16*quarter}
		switch row % 4 {
		case 1:
			m.Index, m.Scale = sStride, 1
		case 2:
			m.Index, m.Scale = sStride, 2
		case 3:
			m.Index, m.Scale = triple, 1
		}
		return m
	}
	for row := range 16 { // what the block beside this one needs
		g.PREFETCHT0(chunk(row, 4*g.width/16))
	}
	words := []vec{}
	for quarter := range 4 {
		y := make([]vec, 4)
		for i, row := range first {
			y[i] = g.ZMM()
			g.VBROADCASTF32X4(chunk(row, quarter), y[i])
			for lane := 1; lane < 4; lane++ {
				g.VINSERTF32X4(operand.U8(lane), chunk(row+lane*step, quarter), y[i], y[i])
			}
		}
		words = append(words, g.quads(y)...)
	}
	return words
}

// quads transposes 4x4 words in each quarter of each four registers.
func (g *generator) quads(y []vec) []vec {
	pairs := make([]vec, len(y))
	for i := 0; i < len(y); i += 2 {
		pairs[i], pairs[i+1] = g.vec(), g.vec()
		g.VUNPCKLPS(y[i+1], y[i], pairs[i])
		g.VUNPCKHPS(y[i+1], y[i], pairs[i+1])
	}
	quads := make([]vec, len(y))
	for i := 0; i < len(y); i += 4 {
		for h := range 2 {
			low, high := g.vec(), g.vec()
			g.VUNPCKLPD(pairs[i+2+h], pairs[i+h], low)
			g.VUNPCKHPD(pairs[i+2+h], pairs[i+h], high)
			quads[i+2*h], quads[i+2*h+1] = low, high
		}
	}
	return quads
}

// rows makes a copy of rows as wide as a strip.
func (g *generator) rows(name, signature, loop string, dBytes, sBytes int, row func(dst, src gp)) {
	name += g.name
	g.function(name, "(rows int, "+signature+")", fmt.Sprintf(loop, name, g.width))
	rows := g.arg("rows")
	dst, dStride := g.arg("dst"), g.stride("dStride", dBytes)
	src, sStride := g.arg("src"), g.stride("sStride", sBytes)
	g.loop(rows, 1, func() {
		for at := 0; at < g.width*sBytes; at += 64 {
			g.PREFETCHT0(mem{Base: src, Index: sStride, Scale: 8, Disp: at})
		}
		row(dst, src)
		g.ADDQ(sStride, src)
		g.ADDQ(dStride, dst)
	})
	g.end()
}

func (g *generator) copyRows() {
	g.rows("CopyRows", "dst *float32, dStride int, src *float32, sStride int", `
%[1]s copies rows of %[2]d elements.

	for i := range rows {
		for j := range %[2]d {
			dst[i*dStride+j] = src[i*sStride+j]
		}
	}`, 4, 4, func(dst, src gp) {
		for j := 0; j < g.width; j += g.lanes {
			y := g.vec()
			g.VMOVUPS(at(src, j), y)
			g.VMOVUPS(y, at(dst, j))
		}
	})
}

// normalize makes the copy of a block into a strip that divides it by a norm.
func (g *generator) normalize(c chain) {
	name := "NormalizeBlock" + c.name + g.name
	remark, store := "", "dst[i*%[2]d+j] = x"
	switch {
	case c.dotted:
		remark = "\nNumbers are rounded to bf16, and those of two rows make pairs."
		store = "setNumber(&dst[i/2*%[2]d+j], i%%2, bf16.FromFloat32(x))"
	case c.rounded:
		store = "dst[i*%[2]d+j] = bf16.FromFloat32(x).Float32()"
	}
	g.function(name, "(dst, src *float32, sStride int, first, second, divisor float32)", fmt.Sprintf(`
%[1]s scales a block of %[2]dx%[2]d on the way to consecutive memory.`+remark+`

	for i := range %[2]d {
		for j := range %[2]d {
			x := float32(float32(src[i*sStride+j]*first)*second) / divisor
			`+store+`
		}
	}`, name, g.width))
	dst := g.arg("dst")
	src, sStride := g.arg("src"), g.stride("sStride", 4)
	first, second, divisor := g.broadcast("first"), g.broadcast("second"), g.broadcast("divisor")
	r := rounding{}
	if c.rounded {
		r = g.rounding()
	}
	quotient := func(from mem) vec {
		y := g.vec()
		g.VMULPS(from, first, y)
		g.VMULPS(second, y, y)
		g.VDIVPS(divisor, y, y)
		if c.rounded {
			r.nearest(y)
		}
		return y
	}
	left, step := g.GP64(), 1
	g.MOVQ(operand.I32(g.width), left)
	if c.dotted {
		step = 2
	}
	g.loop(left, step, func() {
		for j := 0; j < g.width; j += g.lanes {
			y := quotient(at(src, j))
			if c.dotted {
				r.pair(y, quotient(mem{Base: src, Index: sStride, Scale: 1, Disp: 4 * j}))
			}
			g.VMOVUPS(y, at(dst, j))
		}
		for range step {
			g.ADDQ(sStride, src)
		}
		g.advance(dst, 4*g.width)
	})
	g.end()
}
