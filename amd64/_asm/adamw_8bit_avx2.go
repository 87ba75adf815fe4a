package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// A block of new values waits in memory until its scales are known and nothing in it has
// been found that is not finite. The arrays are a little apart from each other, since
// stores at equal distances from a page hold up loads.
const (
	scratchBlock = 4096
	scratchArray = 4 * (scratchBlock + 16)
)

func adamW8bitAVX2(g *generator) {
	for _, pair := range pairs {
		weights, gradients := pair[0], pair[1]
		name := fmt.Sprintf("AdamW8bitW%sG%sAVX2", weights.name, gradients.name)
		g.function(name, fmt.Sprintf("(w []%s, g []%s, mCodes, vCodes []uint8, mScales, vScales []float32, block int, mTable, vTable *[256]float32, mCells, vCells []uint32, mDivisor, vDivisor float32, s *[11]float32, nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)", weights.goType, gradients.goType), fmt.Sprintf(`
%s is a step of AdamW on %s weights and %s gradients with moments in
blocks of up to 4096 8-bit codes. Tables, cells and divisors are those of the moments'
codebooks, the scalars the first fields of reference.AdamWScalars. It adds to the counts
the elements that are not finite and, with skip, the elements and the blocks that it leaves
as they were for it. A call of 30,000 elements takes about 60 µs.

	for lo := 0; lo < len(w); lo += block {
		hi := min(lo+block, len(w))
		AdamWF32WF32GF32AVX2(w[lo:hi], g[lo:hi], m, v, s, nesterov, false) // m, v: decoded
		if skip && nonFinite > 0 {
			continue // and store nothing
		}
		QuantizeAVX2(mCodes[lo:hi], mScales[lo/block:], m, block, mDivisor, mCells)
		QuantizeAVX2(vCodes[lo:hi], vScales[lo/block:], v, block, vDivisor, vCells)
	}`, name, weights.prose(), gradients.prose()))
		g.adamW8bit(weights, gradients)
	}
}

// adamW8bit keeps its pointers in the arguments' memory between the passes over a block.
func (g *generator) adamW8bit(weights, gradients format) {
	a := g.adamW(scalarCount)
	groups, length := g.AllocLocal(2*groupBytes), g.AllocLocal(8)
	base := func(slice string) mem { return g.resolve(g.Param(slice).Base()) }
	reload := func(m mem) gp {
		r := g.GP64()
		g.MOVQ(m, r)
		return r
	}
	var outOfLine []func()
	g.blocks(g.length("w"), func(left gp) {
		g.MOVQ(left, length)
		zero, probed, mLargest, vLargest := g.YMM(), g.YMM(), g.YMM(), g.YMM()
		for _, y := range []vec{zero, probed, mLargest, vLargest} {
			g.VXORPS(y, y, y)
		}
		passA := func(nesterov bool) {
			from := blockPointers{reload(base("w")), reload(base("g")), reload(base("mCodes")), reload(base("vCodes"))}
			g.updateBlock(a, weights, gradients, from, left, reload(g.resolve(g.Param("scratch"))), zero, probed, mLargest, vLargest, nesterov)
		}
		plain, updated := g.label("plain"), g.label("updated")
		g.CMPB(g.resolve(g.Param("nesterov")), operand.Imm(0))
		g.JE(operand.LabelRef(plain))
		passA(true)
		g.JMP(operand.LabelRef(updated))
		g.Label(plain)
		passA(false)
		g.Label(updated)

		found, bad, keep, next := g.GP32(), g.label("bad"), g.label("keep"), g.label("next")
		g.VCMPPS(operand.Imm(3), probed, probed, probed)
		g.VMOVMSKPS(probed, found)
		g.TESTL(found, found)
		g.JNZ(operand.LabelRef(bad))
		g.Label(keep)
		g.storeBlock(weights, reload(base("w")), reload(g.resolve(g.Param("scratch"))), reload(length))
		largest := map[string]vec{"m": g.largestLane(mLargest), "v": g.largestLane(vLargest)}
		for i, moment := range []string{"m", "v"} {
			cells := base(moment + "Cells")
			x := reload(g.resolve(g.Param("scratch")))
			g.advance(x, (i+1)*scratchArray)
			e := g.encoder(reload(cells), groups)
			e.encodeBlock(reload(base(moment+"Codes")), x, reload(length), reload(base(moment+"Scales")),
				largest[moment], g.resolve(g.Param(moment+"Divisor")), cells, func() {})
		}
		g.Label(next)
		moved := reload(length)
		g.ADDQ(moved, base("mCodes"))
		g.ADDQ(moved, base("vCodes"))
		for i, slice := range []string{"w", "g"} {
			bytes := g.GP64()
			g.IMUL3Q(operand.Imm(uint64([]format{weights, gradients}[i].bytes)), moved, bytes)
			g.ADDQ(bytes, base(slice))
		}
		g.ADDQ(operand.Imm(4), base("mScales"))
		g.ADDQ(operand.Imm(4), base("vScales"))

		outOfLine = append(outOfLine, func() {
			g.Label(bad)
			counts := reload(g.resolve(g.Param("counts")))
			g.countBlock(a, reload(g.resolve(g.Param("scratch"))), reload(length), zero, counts)
			g.CMPB(g.resolve(g.Param("skip")), operand.Imm(0))
			g.JE(operand.LabelRef(keep))
			g.ADDQ(reload(length), at(counts, 8))
			g.INCQ(at(counts, 16))
			g.JMP(operand.LabelRef(next))
		})
	})
	g.end()
	for _, emit := range outOfLine {
		emit()
	}
}

type blockPointers struct{ w, g, mCodes, vCodes gp }

// updateBlock leaves a block's new values in the scratch.
func (g *generator) updateBlock(a adamW, weights, gradients format, from blockPointers, n, scratch gp, zero, probed, mLargest, vLargest vec, nesterov bool) {
	tables := [2]gp{g.number("mTable"), g.number("vTable")}
	scales := [2]vec{g.YMM(), g.YMM()}
	for i, moment := range []string{"m", "v"} {
		p := g.pointer(moment + "Scales")
		g.VBROADCASTSS(at(p, 0), scales[i])
	}
	magnitude := g.broadcast(0x7fffffff)
	g.elements(n, func(width int) {
		m := g.values(from.mCodes, 0, width, tables[0])
		g.VMULPS(scales[0], m, m)
		v := g.values(from.vCodes, 0, width, tables[1])
		g.VMULPS(scales[1], v, v)
		w := g.load(weights, from.w, width)
		a.update(w, g.load(gradients, from.g, width), m, v, nesterov)
		a.probe(probed, zero, w, v, width)
		for i, y := range []vec{w, m, v} {
			g.storeFloats(y, scratch, i*scratchArray, width)
		}
		for _, x := range []struct{ of, largest vec }{{m, mLargest}, {v, vLargest}} {
			size := g.YMM()
			g.VPAND(magnitude, x.of, size)
			if width == 1 {
				g.VPBLENDD(operand.Imm(1), size, zero, size)
			}
			g.VPMAXUD(size, x.largest, x.largest)
		}
		g.advance(from.w, weights.bytes*width)
		g.advance(from.g, gradients.bytes*width)
		g.advance(from.mCodes, width)
		g.advance(from.vCodes, width)
		g.advance(scratch, 4*width)
	}, 8, 1)
}

// storeBlock stores the new weights, which need not be finite.
func (g *generator) storeBlock(weights format, w, scratch, n gp) {
	var r rounding
	if weights == bfloat16s {
		r = g.rounding()
	}
	g.elements(n, func(width int) {
		y := g.loadFloats(scratch, 0, width)
		if weights == bfloat16s {
			g.storeWords(w, 0, width, r.nearest(y))
		} else {
			g.storeFloats(y, w, 0, width)
		}
		g.advance(scratch, 4*width)
		g.advance(w, weights.bytes*width)
	}, 8, 1)
}

// countBlock adds the number of elements that are not finite to the first of the counts.
func (g *generator) countBlock(a adamW, scratch, n gp, zero vec, counts gp) {
	sums := g.YMM()
	g.VPXOR(sums, sums, sums)
	g.elements(n, func(width int) {
		y := g.YMM()
		g.VXORPS(y, y, y)
		a.probe(y, zero, g.loadFloats(scratch, 0, width), g.loadFloats(scratch, 2*scratchArray, width), width)
		g.VCMPPS(operand.Imm(3), y, y, y)
		g.VPSUBD(y, sums, sums)
		g.advance(scratch, 4*width)
	}, 8, 1)
	total := g.GP64()
	g.MOVL(g.sumLanes(sums), total.As32())
	g.ADDQ(total, at(counts, 0))
}
