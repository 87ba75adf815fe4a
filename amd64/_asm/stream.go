package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// streamPiece is how much of a stream is moved in a row: the unit of its size.
const streamPiece = 256

func streamAVX2(g *generator) {
	g.stream("StreamAVX2", 32, func() vec { return g.YMM() }, streamMoves{
		load:        func(m mem, x vec) { g.VMOVDQU(m, x) },
		store:       func(x vec, m mem) { g.VMOVDQU(x, m) },
		nonTemporal: func(x vec, m mem) { g.VMOVNTDQ(x, m) },
		ones:        func(x vec) { g.VPCMPEQD(x, x, x) },
	})
}

func streamAVX512(g *generator) {
	g.stream("StreamAVX512", 64, func() vec { return g.ZMM() }, streamMoves{
		load:        func(m mem, x vec) { g.VMOVDQU64(m, x) },
		store:       func(x vec, m mem) { g.VMOVDQU64(x, m) },
		nonTemporal: func(x vec, m mem) { g.VMOVNTDQ(x, m) },
		ones:        func(x vec) { g.VPTERNLOGD(operand.U8(0xff), x, x, x) },
	})
}

type streamMoves struct {
	load               func(mem, vec)
	store, nonTemporal func(vec, mem)
	ones               func(vec)
}

// stream makes the loop that operations which move bytes are measured against.
func (g *generator) stream(name string, width int, register func() vec, move streamMoves) {
	g.function(name, "(streams []*byte, sizes, kinds []int, first, last int)", fmt.Sprintf(`
%s goes through arrays side by side as fast as the processor can: what the speed of
operations is compared with. In each step it moves sizes[i] bytes of streams[i], a multiple
of 256: reads them where kinds[i] is 0, writes them where it is 1, and where it is 2 does
both in place; where it is 3 it writes them with non-temporal stores, which want addresses
that are multiples of 64. There is a stream or more. A hundred thousand bytes take about 10 µs.

	for step := first; step < last; step++ {
		for i, p := range streams {
			x := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), step*sizes[i])), sizes[i])
			for j := range x {
				if kinds[i] == 1 || kinds[i] == 3 {
					x[j] = 0xff
				}
			}
		}
	}`, name))
	streams, sizes, kinds := g.pointer("streams"), g.pointer("sizes"), g.pointer("kinds")
	count, step, last := g.length("streams"), g.number("first"), g.number("last")
	ones := register() // some processors are quicker with zeros
	move.ones(ones)

	nextStep, nextStream, done := g.label("step"), g.label("stream"), g.label("done")
	write, inPlace, nonTemporal, end := g.label("write"), g.label("inplace"), g.label("nontemporal"), g.label("end")
	i, p, n, kind := g.GP64(), g.GP64(), g.GP64(), g.GP64()
	pieces := func(body func(offset int)) {
		g.loop(n, 1, func() {
			for offset := 0; offset < streamPiece; offset += width {
				body(offset)
			}
			g.advance(p, streamPiece)
		})
		g.JMP(operand.LabelRef(end))
	}

	g.Label(nextStep)
	g.CMPQ(step, last)
	g.JGE(operand.LabelRef(done))
	g.XORQ(i, i)
	g.Label(nextStream)
	g.MOVQ(mem{Base: sizes, Index: i, Scale: 8}, n)
	g.MOVQ(step, p)
	g.IMULQ(n, p)
	g.ADDQ(mem{Base: streams, Index: i, Scale: 8}, p)
	g.SHRQ(operand.U8(8), n) // to pieces
	g.MOVQ(mem{Base: kinds, Index: i, Scale: 8}, kind)
	for value, label := range []string{1: write, 2: inPlace, 3: nonTemporal} {
		if value > 0 {
			g.CMPQ(kind, operand.Imm(uint64(value)))
			g.JEQ(operand.LabelRef(label))
		}
	}
	pieces(func(offset int) { move.load(at(p, offset), register()) })
	g.Label(write)
	pieces(func(offset int) { move.store(ones, at(p, offset)) })
	g.Label(inPlace)
	pieces(func(offset int) {
		x := register()
		move.load(at(p, offset), x)
		move.store(x, at(p, offset))
	})
	g.Label(nonTemporal)
	pieces(func(offset int) { move.nonTemporal(ones, at(p, offset)) })
	g.Label(end)
	g.INCQ(i)
	g.CMPQ(i, count)
	g.JLT(operand.LabelRef(nextStream))
	g.INCQ(step)
	g.JMP(operand.LabelRef(nextStep))
	g.Label(done)
	g.SFENCE()
	g.end()
}
