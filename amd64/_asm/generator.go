package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type (
	vec = reg.VecVirtual
	gp  = reg.GPVirtual
	mem = operand.Mem
)

// generator is avo's context with what the kernels share.
type generator struct {
	*build.Context
	constants map[string]mem
	labels    int
}

// function begins a function. The documentation ends in the Go loop that it equals.
func (g *generator) function(name, signature, doc string) {
	g.Function(name)
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

// pointer loads the address of a slice, length its length.
func (g *generator) pointer(slice string) gp {
	return g.Load(g.Param(slice).Base(), g.GP64()).(gp)
}

func (g *generator) length(slice string) gp {
	return g.Load(g.Param(slice).Len(), g.GP64()).(gp)
}

// loop runs body, which advances its own pointers, while n is at least step.
func (g *generator) loop(n gp, step int, body func()) {
	again, done := g.label("loop"), g.label("done")
	g.CMPQ(n, operand.Imm(uint64(step)))
	g.JB(operand.LabelRef(done))
	g.Label(again)
	body()
	g.SUBQ(operand.Imm(uint64(step)), n)
	g.CMPQ(n, operand.Imm(uint64(step)))
	g.JAE(operand.LabelRef(again))
	g.Label(done)
}

// elements runs body over n elements in steps of the widths, widest first.
func (g *generator) elements(n gp, body func(width int), widths ...int) {
	for _, width := range widths {
		g.loop(n, width, func() { body(width) })
	}
}

// advance moves a pointer.
func (g *generator) advance(pointer gp, bytes int) {
	g.ADDQ(operand.U32(uint32(bytes)), pointer)
}

// at is the memory at an offset in bytes from a pointer.
func at(pointer gp, offset int) mem { return mem{Base: pointer, Disp: offset} }

// data is a constant in memory, made of 32-bit words.
func (g *generator) data(name string, words ...uint32) mem {
	for _, w := range words {
		name += fmt.Sprintf("_%x", w)
	}
	m, ok := g.constants[name]
	if !ok {
		m = g.StaticGlobal(name)
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for _, w := range words {
			g.AppendDatum(operand.U32(w))
		}
		g.constants[name] = m
	}
	return m
}

// broadcast is a 32-bit constant in every lane.
func (g *generator) broadcast(value uint32) vec {
	y := g.YMM()
	g.VPBROADCASTD(g.data("word", value), y)
	return y
}

// number loads an integer argument.
func (g *generator) number(name string) gp {
	return g.Load(g.Param(name), g.GP64()).(gp)
}

// parameter is a float32 argument in every lane.
func (g *generator) parameter(name string) vec {
	y := g.YMM()
	g.VBROADCASTSS(g.resolve(g.Param(name)), y)
	return y
}

// result is the place of the only result.
func (g *generator) result() mem { return g.resolve(g.ReturnIndex(0)) }

// resolve is the place of an argument or result.
func (g *generator) resolve(c gotypes.Component) mem {
	basic, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return basic.Addr
}

// loadFloats loads 8 floats, or 1 with zeros above it.
func (g *generator) loadFloats(p gp, offset, width int) vec {
	y := g.YMM()
	if width == 1 {
		g.VMOVSS(at(p, offset), y.AsX())
	} else {
		g.VMOVUPS(at(p, offset), y)
	}
	return y
}

func (g *generator) storeFloats(y vec, p gp, offset, width int) {
	if width == 1 {
		g.VMOVSS(y.AsX(), at(p, offset))
	} else {
		g.VMOVUPS(y, at(p, offset))
	}
}

// loadWords loads 8 numbers of 16 bits, or 1, each into the low half of a lane.
func (g *generator) loadWords(p gp, offset, width int) vec {
	y := g.YMM()
	if width == 1 {
		r := g.GP32()
		g.MOVWLZX(at(p, offset), r)
		g.VMOVD(r, y.AsX())
	} else {
		g.VPMOVZXWD(at(p, offset), y)
	}
	return y
}

// loadBF16 widens 8 bf16 numbers, or 1.
func (g *generator) loadBF16(p gp, offset, width int) vec {
	y := g.loadWords(p, offset, width)
	g.VPSLLD(operand.Imm(16), y, y)
	return y
}

// storeWords stores the low half of each lane: of two registers 16 numbers, of one 8, or 1.
func (g *generator) storeWords(p gp, offset, width int, y ...vec) {
	switch {
	case width == 1:
		r := g.GP32()
		g.VMOVD(y[0].AsX(), r)
		g.MOVW(r.As16(), at(p, offset))
	case len(y) == 1:
		high := g.XMM()
		g.VEXTRACTI128(operand.Imm(1), y[0], high)
		g.VPACKUSDW(high, y[0].AsX(), high)
		g.VMOVDQU(high, at(p, offset))
	default:
		packed := g.YMM()
		g.VPACKUSDW(y[1], y[0], packed)
		g.VPERMQ(operand.Imm(0xd8), packed, packed)
		g.VMOVDQU(packed, at(p, offset))
	}
}
