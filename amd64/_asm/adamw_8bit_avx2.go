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
		g.function(name, "(parameters [][11]uintptr, block int, mTable, vTable *[256]float32, mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32, nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)", fmt.Sprintf(`
%s is a step of AdamW on parameters of %s weights and
%s gradients with moments in blocks of up to 4096 codes of codebook.Dynamic8() and
codebook.Dynamic8Unsigned(), whose tables and thresholds it takes. A parameter is kernels'
adamWCall. The scalars are the first fields of reference.AdamWScalars. It adds to the counts
the elements that are not finite and, with skip, the elements and the blocks that it leaves
as they were for it. A call of 50,000 elements takes about 100 µs.

	for lo := 0; lo < len(w); lo += block { // of each parameter
		hi := min(lo+block, len(w))
		AdamWF32WF32GF32AVX2(w[lo:hi], g[lo:hi], m, v, s, nesterov, false) // m, v: decoded
		if skip && nonFinite > 0 {
			continue // and store nothing
		}
		QuantizeDynamic8AVX2(mCodes[lo:hi], mScales[lo/block:], m, block, mDivisor, mThresholds)
		QuantizeDynamic8UnsignedAVX2(vCodes[lo:hi], vScales[lo/block:], v, block, vDivisor, vThresholds)
	}`, name, weights.prose(), gradients.prose()))
		g.adamW8bit(weights, gradients)
	}
}

// adamW8bit passes over a block as adamW8bit512 does.
func (g *generator) adamW8bit(weights, gradients format) {
	a := g.adamW(scalarCount)
	length, second := g.AllocLocal(8), g.AllocLocal(8)
	places := g.places("w", "g", "mCodes", "vCodes", "mScales", "vScales")
	scratch := func() gp { return g.number("scratch") }
	encoders := []decadeEncoder{g.encoderRoom(newDecades(true)), g.encoderRoom(newDecades(false))}
	var outOfLine []func()
	parameter, finished := g.label("parameter"), g.label("end")
	g.Label(parameter)
	call := g.nextCall(finished)
	places.take(g, call)
	g.blocks(g.word(call, lengthOfCall), func(left gp) {
		g.MOVQ(left, length)
		zero, probed, mLargest, vLargest := g.YMM(), g.YMM(), g.YMM(), g.YMM()
		for _, y := range []vec{zero, probed, mLargest, vLargest} {
			g.VXORPS(y, y, y)
		}
		passA := func(nesterov bool) {
			from := blockPointers{g.reload(places["w"]), g.reload(places["g"]), g.reload(places["mCodes"]), g.reload(places["vCodes"])}
			scales := [2]vec{g.YMM(), g.YMM()}
			for i, moment := range []string{"mScales", "vScales"} {
				g.VBROADCASTSS(at(g.reload(places[moment]), 0), scales[i])
			}
			g.updateBlock(a, weights, gradients, from, scales, left, scratch(), zero, probed, mLargest, vLargest, nesterov)
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
		g.storeBlock(weights, g.reload(places["w"]), scratch(), g.reload(length))
		g.VMOVSS(g.largestLane(vLargest), second) // no register is left for it
		largest := g.largestLane(mLargest)
		for i, moment := range []string{"m", "v"} {
			codes, x, n := g.reload(places[moment+"Codes"]), scratch(), g.reload(length)
			g.advance(x, (i+1)*scratchArray)
			e := encoders[i]
			e.prepare(g.number(moment + "Thresholds"))
			if i == 1 {
				g.VMOVSS(second, largest.AsX())
			}
			g.scaleBlock(largest, e.scale, g.reload(places[moment+"Scales"]), g.resolve(g.Param(moment+"Divisor")), func() {},
				func() { e.encode(codes, x, n) },
				func() {
					zero := g.GP64()
					g.MOVL(operand.U32(e.decades.zero()), zero.As32())
					g.fill(codes, n, zero)
				})
		}
		g.Label(next)
		places.passBlock(g, length, weights, gradients)

		outOfLine = append(outOfLine, func() {
			g.Label(bad)
			counts := g.reload(g.resolve(g.Param("counts")))
			g.countBlock(a, scratch(), g.reload(length), zero, counts)
			g.CMPB(g.resolve(g.Param("skip")), operand.Imm(0))
			g.JE(operand.LabelRef(keep))
			g.ADDQ(g.reload(length), at(counts, 8))
			g.INCQ(at(counts, 16))
			g.JMP(operand.LabelRef(next))
		})
	})
	g.JMP(operand.LabelRef(parameter))
	g.Label(finished)
	g.end()
	for _, emit := range outOfLine {
		emit()
	}
	for _, e := range encoders {
		g.besides(e.beside)
	}
}

type blockPointers struct{ w, g, mCodes, vCodes gp }

// updateBlock leaves a block's new values in the scratch.
func (g *generator) updateBlock(a adamW, weights, gradients format, from blockPointers, scales [2]vec, n, scratch gp, zero, probed, mLargest, vLargest vec, nesterov bool) {
	tables := [2]gp{g.number("mTable"), g.number("vTable")}
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
