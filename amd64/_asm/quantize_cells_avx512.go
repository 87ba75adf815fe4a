package main

import (
	"github.com/mmcloughlin/avo/operand"
)

// cellEncoder512 finds codes in a table of cells as encoder does, 64 at a time, with gathers.
type cellEncoder512 struct {
	g *generator
	block512
	entries                               gp // of the cell of zero, so that an upper part is an index
	shift, magnitude, smallest, side, low vec
	turn, order                           vec
	all                                   mask
	streamed                              mem
}

func (g *generator) cellEncoder512(cells gp, streamed mem) cellEncoder512 {
	e := cellEncoder512{
		g: g, block512: g.block512(0, 1, mem{}), entries: g.GP64(),
		shift: g.ZMM(), magnitude: g.broadcast512(0x7fffffff), smallest: g.ZMM(), side: g.ZMM(), low: g.ZMM(),
		turn: g.turnedBytes(), order: g.ZMM(), all: g.selected(0xffff), streamed: streamed,
	}
	e.ahead = prefetched
	g.VMOVDQU32(g.data("transposed", transposed...), e.order)
	g.VPBROADCASTD(at(cells, 4*cellShift), e.shift)
	g.VPBROADCASTD(at(cells, 4*cellSmallest), e.smallest)
	g.VPBROADCASTD(at(cells, 4*cellSide), e.side)
	g.VPTERNLOGD(operand.U8(0xff), e.low, e.low, e.low)
	g.VPSLLVD(e.shift, e.low, e.low)
	g.VPTERNLOGD(operand.U8(0x0f), e.low, e.low, e.low) // its complement

	first, upper := g.GP64(), g.ZMM()
	g.VPSRLVD(e.shift, e.smallest, upper)
	g.VMOVD(upper.AsX(), first.As32())
	g.SHLQ(operand.Imm(2), first)
	g.LEAQ(at(cells, 4*cellEntries), e.entries)
	g.SUBQ(first, e.entries)
	return e
}

func (e cellEncoder512) prepare() {}

// encode gives the codes of x, which it spoils.
func (e cellEncoder512) encode(x vec) vec {
	negative, all, low, entry := e.g.K(), e.g.K(), e.g.ZMM(), e.g.ZMM()
	e.g.VDIVPS(e.scale, x, x)
	e.g.VPMOVD2M(x, negative)
	e.g.VPANDD(e.magnitude, x, x)
	e.g.VPMAXSD(e.smallest, x, x)
	e.g.VPANDD(e.low, x, low)
	e.g.VPANDND(e.low, x, negative, low)
	e.g.VPSRLVD(e.shift, x, x)
	e.g.VPADDD(e.side, x, negative, x)
	e.g.KMOVW(e.all, all)
	e.g.VPXORD(entry, entry, entry)
	e.g.VPGATHERDD(mem{Base: e.entries, Index: x, Scale: 4}, all, entry)
	e.g.VPADDD(low, entry, entry)
	e.g.VPSRLVD(e.shift, entry, entry)
	return entry
}

func (e cellEncoder512) codes(x [4]vec) vec {
	for i := range x {
		x[i] = e.encode(x[i])
		if i > 0 {
			e.g.VPSLLD(operand.Imm(uint64(8*i)), x[i], x[i])
		}
	}
	y := x[0]
	e.g.VPTERNLOGD(operand.U8(0xfe), x[2], x[1], y) // any of the three
	e.g.VPORD(x[3], y, y)
	e.g.VPSHUFB(e.turn, y, y)
	e.g.VPERMD(y, e.order, y)
	return y
}

func (e cellEncoder512) whole(codes, x, n gp, adjust func(vec)) {
	e.g.wholeBytes512(e.block512, e.codes, e.streamed, codes, x, n, adjust)
}

func (e cellEncoder512) rest(codes, x, n gp, adjust func(vec)) {
	e.g.restBytes512(e.codes, codes, x, n, adjust)
}
