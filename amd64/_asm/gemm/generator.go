package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type (
	vec = reg.VecVirtual
	gp  = reg.GPVirtual
	mem = operand.Mem
)

// tier is an instruction set's shape: a strip has width lanes, in vectors of lanes, and
// blocks are worked on in tiles of registers.
type tier struct {
	name, file    string
	width, lanes  int
	block, corner []tile // of a block, and of one on a diagonal
	vector        func(*build.Context) vec
	masks         bool
}

// tile is a part of a block: rows from a first one, and vectors of columns.
type tile struct{ row, rows, vector, vectors int }

// whole makes tiles as wide as a block of two vectors.
func whole(of ...int) (tiles []tile) {
	row := 0
	for _, n := range of {
		tiles = append(tiles, tile{row, n, 0, 2})
		row += n
	}
	return tiles
}

// few is the tile of a block that has no more rows: as many chains as keep two multipliers
// busy.
var few = tile{0, 4, 0, 2}

// A block on a diagonal lacks its lower left quarter.
var (
	avx2 = tier{
		name: "AVX2", file: "avx2", width: 16, lanes: 8, block: whole(6, 5, 5), corner: append(whole(4, 4), tile{8, 8, 1, 1}),
		vector: func(c *build.Context) vec { return c.YMM() },
	}
	avx512 = tier{
		name: "AVX512", file: "avx512", width: 32, lanes: 16, block: whole(12, 10, 10), corner: append(whole(8, 8), tile{16, 16, 1, 1}),
		vector: func(c *build.Context) vec { return c.ZMM() }, masks: true,
	}
)

// generator is avo's context for one tier.
type generator struct {
	*build.Context
	tier
	labels       int
	usual, flush mem // values of the control register
	table        mem // of stages
}

// function begins a function. The documentation ends in the Go loop that it equals.
func (g *generator) function(name, signature, doc string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func" + signature)
	g.Doc(strings.Split(strings.TrimSpace(doc), "\n")...)
	g.Pragma("noescape")
}

func (g *generator) end() {
	g.VZEROUPPER()
	g.RET()
}

func (g *generator) label(name string) string {
	g.labels++
	return fmt.Sprintf("%s%d", name, g.labels)
}

func (g *generator) vec() vec { return g.vector(g.Context) }

func (g *generator) arg(name string) gp { return g.Load(g.Param(name), g.GP64()).(gp) }

// stride loads a number of elements as bytes.
func (g *generator) stride(name string, elementBytes int) gp {
	s := g.arg(name)
	for ; elementBytes > 1; elementBytes /= 2 {
		g.ADDQ(s, s)
	}
	return s
}

func (g *generator) copyOf(p gp) gp {
	q := g.GP64()
	g.MOVQ(p, q)
	return q
}

// broadcast is a float32 argument in every lane.
func (g *generator) broadcast(name string) vec {
	basic, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := g.vec()
	g.VBROADCASTSS(basic.Addr, v)
	return v
}

// loop runs body, which advances its own pointers, while n is at least step.
func (g *generator) loop(n gp, step int, body func()) {
	again, done := g.label("loop"), g.label("done")
	g.CMPQ(n, operand.I32(step))
	g.JB(operand.LabelRef(done))
	g.Label(again)
	body()
	g.SUBQ(operand.I32(step), n)
	g.CMPQ(n, operand.I32(step))
	g.JAE(operand.LabelRef(again))
	g.Label(done)
}

func (g *generator) advance(p gp, bytes int) { g.ADDQ(operand.I32(bytes), p) }

// at is the memory at an offset in float32 from a pointer.
func at(p gp, offset int) mem { return mem{Base: p, Disp: 4 * offset} }
