package main

import "github.com/mmcloughlin/avo/operand"

// The words of kernels' adamWCall.
const (
	weightsOfCall   = 0
	gradientsOfCall = 2
	mOfCall         = 3
	vOfCall         = 4
	mScalesOfCall   = 5
	vScalesOfCall   = 6
	lengthOfCall    = 7
	wordsOfCall     = 11
)

// nextCall takes the first parameter away, or goes to end where there is none.
func (g *generator) nextCall(end string) gp {
	base, call := g.resolve(g.Param("parameters").Base()), g.GP64()
	g.SUBQ(operand.Imm(1), g.resolve(g.Param("parameters").Len()))
	g.JB(operand.LabelRef(end))
	g.MOVQ(base, call)
	g.ADDQ(operand.Imm(8*wordsOfCall), base)
	return call
}

// word is one of a call.
func (g *generator) word(call gp, word int) gp { return g.reload(at(call, 8*word)) }

// places are where in memory the pointers into a parameter are kept.
type places map[string]mem

func (g *generator) places(names ...string) places {
	p := places{}
	for _, name := range names {
		p[name] = g.AllocLocal(8)
	}
	return p
}

// take copies those that are a call's.
func (p places) take(g *generator, call gp) {
	for _, w := range []struct {
		name string
		word int
	}{
		{"w", weightsOfCall}, {"g", gradientsOfCall}, {"mCodes", mOfCall}, {"vCodes", vOfCall}, {"mScales", mScalesOfCall}, {"vScales", vScalesOfCall},
	} {
		if place, ok := p[w.name]; ok {
			g.MOVQ(g.word(call, w.word), place)
		}
	}
}

// passBlock moves them over a block of 8-bit codes.
func (p places) passBlock(g *generator, length mem, weights, gradients format) {
	moved := g.reload(length)
	g.ADDQ(moved, p["mCodes"])
	g.ADDQ(moved, p["vCodes"])
	for i, slice := range []string{"w", "g"} {
		bytes := g.GP64()
		g.IMUL3Q(operand.Imm(uint64([]format{weights, gradients}[i].bytes)), moved, bytes)
		g.ADDQ(bytes, p[slice])
	}
	g.ADDQ(operand.Imm(4), p["mScales"])
	g.ADDQ(operand.Imm(4), p["vScales"])
}

// reload is what was kept in memory.
func (g *generator) reload(m mem) gp {
	r := g.GP64()
	g.MOVQ(m, r)
	return r
}
