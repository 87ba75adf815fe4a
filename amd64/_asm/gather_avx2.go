package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gather loads 8 words, one at a time: on most processors this beats a gather, and
// blends leave the shuffle unit to others.
func (g *generator) gather(from func(i int) mem) vec {
	low, high := g.YMM(), g.YMM()
	for i, y := range []reg.Register{low.AsX(), high.AsX()} {
		g.VMOVD(from(4*i), y)
		for j := 1; j < 4; j++ {
			one := g.XMM()
			g.VPBROADCASTD(from(4*i+j), one)
			g.VPBLENDD(operand.Imm(1<<j), one, y, y)
		}
	}
	g.VINSERTI128(operand.Imm(1), high.AsX(), low, low)
	return low
}

// values loads the values of 8 codes, or of 1, from a table of 256.
func (g *generator) values(codes gp, offset, width int, table gp) vec {
	value := func(code gp) mem { return mem{Base: table, Index: code, Scale: 4} }
	if width == 1 {
		code, y := g.GP64(), g.YMM()
		g.MOVBLZX(at(codes, offset), code.As32())
		g.VMOVSS(value(code), y.AsX())
		return y
	}
	var second gp
	return g.gather(func(i int) mem {
		if i%2 == 0 {
			second = g.GP64()
			first := g.GP64()
			g.MOVWLZX(at(codes, offset+i), second.As32())
			g.MOVBLZX(second.As8(), first.As32())
			g.SHRL(operand.Imm(8), second.As32())
			return value(first)
		}
		return value(second)
	})
}
