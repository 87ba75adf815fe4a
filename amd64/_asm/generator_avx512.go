package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type mask = reg.OpmaskVirtual

// broadcast512 is a 32-bit constant in every lane.
func (g *generator) broadcast512(value uint32) vec {
	z := g.ZMM()
	g.VPBROADCASTD(g.data("word", value), z)
	return z
}

// parameter512 is a float32 argument in every lane.
func (g *generator) parameter512(name string) vec {
	z := g.ZMM()
	g.VBROADCASTSS(g.resolve(g.Param(name)), z)
	return z
}

// firstLanes selects the first n of 16 lanes.
func (g *generator) firstLanes(n gp) mask {
	bits, k := g.GP32(), g.K()
	g.MOVL(operand.U32(0xffff), bits)
	g.BZHIL(n.As32(), bits, bits)
	g.KMOVW(bits, k)
	return k
}
