package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// decadeEncoder finds codes by arithmetic, as decadeEncoder512 does: 32 at a time.
type decadeEncoder struct {
	g *generator
	decades
	line                         bool // of a table that is one straight line
	thresholds                   gp
	factor, offset, steeper      vec
	slopes, offsets, corrections vec
	scale, multiplier            vec
	kept                         mem // the scale in 8 lanes, for what is near a threshold
	ratio                        mem // what the multiplier is times the scale
	room                         mem // 32 numbers and their codes
	ahead                        int // bytes that numbers are asked for ahead of their coding
	beside                       *[]func()
}

func (g *generator) decadeEncoder(signed bool, thresholds gp) decadeEncoder {
	e := g.encoderRoom(newDecades(signed))
	e.ahead = prefetched
	e.prepare(thresholds)
	return e
}

// encoderRoom is an encoder that has only memory before it is prepared.
func (g *generator) encoderRoom(d decades) decadeEncoder {
	return decadeEncoder{g: g, decades: d, kept: g.AllocLocal(32), room: g.AllocLocal(160), beside: &[]func(){}}
}

// prepare loads what a map with those thresholds needs into registers.
func (e *decadeEncoder) prepare(thresholds gp) {
	g, d, bits := e.g, e.decades, math.Float32bits
	e.thresholds, e.scale, e.multiplier = thresholds, g.YMM(), g.YMM()
	e.factor, e.offset, e.steeper = g.broadcast(bits(indexFactor)), g.broadcast(bits(indexOffset)), g.broadcast(bits(steeper))
	e.slopes, e.offsets, e.corrections = g.eight("slopes", d.slopes), g.eight("offsets", d.offsets), g.eight("corrections", d.corrections)
	e.ratio = g.data("word", bits(decadeScale))
}

// lineEncoder is for a table whose thresholds lie on a line, as codebook.Line's.
func (g *generator) lineEncoder(line, thresholds gp) decadeEncoder {
	e := g.encoderRoom(decades{fraction: 15})
	e.ahead, e.line, e.thresholds, e.ratio = prefetched, true, thresholds, at(line, 0)
	e.scale, e.multiplier, e.offset = g.YMM(), g.YMM(), g.YMM()
	g.VBROADCASTSS(at(line, 4), e.offset)
	return e
}

// eight is 8 numbers in a register.
func (g *generator) eight(name string, values [8]float32) vec {
	var words []uint32
	for _, v := range values {
		words = append(words, math.Float32bits(v))
	}
	return g.wide(name, words...)
}

// everywhere is a 32-bit constant in 8 lanes of memory.
func (g *generator) everywhere(value uint32) mem {
	return g.data("everywhere", value, value, value, value, value, value, value, value)
}

// estimate gives the fixed-point codes of 8 magnitudes.
func (e decadeEncoder) estimate(x vec) vec {
	p, decade, slope, t := x, e.g.YMM(), e.g.YMM(), e.g.YMM()
	if e.line {
		e.g.VFMADD213PS(e.offset, e.multiplier, p)
		e.g.VPADDD(p, p, p)
		return p
	}
	e.g.VMULPS(e.multiplier, p, p)
	if e.signed {
		e.g.VANDPS(e.g.everywhere(0x7fffffff), p, p)
	}
	e.g.VMAXPS(e.g.everywhere(math.Float32bits(e.least*decadeScale)), p, p)
	e.g.VCVTDQ2PS(p, decade)
	e.g.VFMADD213PS(e.offset, e.factor, decade)
	e.g.VPERMPS(e.slopes, decade, slope)
	e.g.VPERMPS(e.offsets, decade, t)
	begin := decade
	e.g.VPERMPS(e.corrections, decade, begin)
	e.g.VFMADD231PS(slope, p, t)
	e.g.VFMADD231PS(e.steeper, t, begin)
	e.g.VMINPS(begin, t, t)
	if e.fraction == 15 {
		e.g.VPADDD(t, t, t)
	}
	return t
}

// codes gives the codes of the 32 numbers at x.
func (e decadeEncoder) codes(x gp, adjust func(vec)) vec {
	var t [4]vec
	load := func(i int) vec {
		y := e.g.YMM()
		e.g.VMOVUPS(at(x, 32*i), y)
		adjust(y)
		return y
	}
	for i := range t {
		t[i] = e.estimate(load(i))
	}
	least, other := e.g.YMM(), e.g.YMM()
	e.g.VPMINUW(t[1], t[0], least)
	e.g.VPMINUW(t[3], t[2], other)
	e.g.VPMINUW(other, least, least)
	near := other
	e.g.VMOVDQU(e.g.everywhere(e.near()), near) // of the lower halves of lanes
	e.g.VPSUBUSW(least, near, near)
	e.g.VPTEST(near, near)
	compare, compared := e.g.label("compare"), e.g.label("compared")
	e.g.JNZ(operand.LabelRef(compare))
	e.g.Label(compared)
	*e.beside = append(*e.beside, func() {
		e.g.Label(compare)
		for i := range t {
			e.compare(func() vec { return load(i) }, t[i])
		}
		e.g.JMP(operand.LabelRef(compared))
	})
	for i := range t {
		e.g.VPSRLD(operand.Imm(16), t[i], t[i])
	}
	for i := 0; i < 4; i += 2 {
		e.g.VPACKUSDW(t[i+1], t[i], t[i])
		e.g.VPAND(e.g.everywhere(0x00ff00ff), t[i], t[i])
	}
	y := t[0]
	e.g.VPACKUSWB(t[2], y, y)
	if e.signed {
		e.signs(x, y)
	}
	order := e.g.wide("order", 0, 4, 1, 5, 2, 6, 3, 7)
	e.g.VPERMD(y, order, y)
	return y
}

// signs makes codes of magnitudes' codes and the signs of the numbers at x.
func (e decadeEncoder) signs(x gp, y vec) {
	a, b, lower := e.g.YMM(), e.g.YMM(), e.g.YMM()
	e.g.VMOVDQU(at(x, 0), a)
	e.g.VPACKSSDW(at(x, 32), a, a)
	e.g.VMOVDQU(at(x, 64), b)
	e.g.VPACKSSDW(at(x, 96), b, b)
	e.g.VPACKSSWB(b, a, a)
	e.g.VMOVDQU(e.g.everywhere(0x7f7f7f7f), lower)
	e.g.VPADDB(lower, y, b)
	e.g.VPSUBUSB(y, lower, lower)
	e.g.VPBLENDVB(a, lower, b, y)
}

// compare finishes the codes that are near a threshold by comparing the quotient with it.
func (e decadeEncoder) compare(load func() vec, t vec) {
	near, low, bits := e.g.YMM(), e.g.YMM(), e.g.GP32()
	none := operand.LabelRef(e.g.label("none"))
	e.g.VPSLLD(operand.Imm(16), t, low)
	e.g.VPMINUD(e.g.everywhere(e.near()<<16-1), low, near)
	e.g.VPCMPEQD(low, near, near)
	e.g.VMOVMSKPS(near, bits)
	e.g.TESTL(bits, bits)
	e.g.JZ(none)
	r, threshold, gathered, code := load(), e.g.YMM(), e.g.YMM(), low
	e.g.VDIVPS(e.kept, r, r)
	e.g.VPSRLD(operand.Imm(16), t, code)
	e.g.VMOVAPS(near, gathered)
	e.g.VPXOR(threshold, threshold, threshold)
	e.g.VGATHERDPS(gathered, mem{Base: e.thresholds, Index: code, Scale: 4, Disp: 4 * e.firstThreshold()}, threshold)
	below := code
	if e.line {
		e.g.VCMPPS(operand.Imm(0x1d), r, threshold, below) // not below
	} else { // the sign last, which decides at the threshold
		sign := gathered
		e.g.VPSRLD(operand.Imm(31), r, sign)
		e.g.VPADDD(r, r, r)
		e.g.VPOR(sign, r, r)
		e.g.VPADDD(threshold, threshold, threshold)
		e.g.VPMAXUD(r, threshold, r)
		e.g.VPCMPEQD(r, threshold, below)
	}
	e.g.VPAND(near, below, below)
	e.g.VPSLLD(operand.Imm(16), below, below)
	e.g.VPADDD(below, t, t)
	e.g.Label(string(none))
}

// firstThreshold is the index of code 0's lower threshold, less what is above the code in
// a fixed-point number.
func (d decades) firstThreshold() int {
	above := int(math.Float32bits(magicDecades) >> d.fraction)
	if d.signed {
		return 126 - above
	}
	return -1 - above
}

// encode codes n numbers of a block whose scale is known, and moves all three.
func (e decadeEncoder) encode(codes, x, n gp) {
	small, done := e.g.label("small"), e.g.label("done")
	bits := e.g.GP32()
	e.g.VMOVD(e.scale.AsX(), bits)
	e.g.CMPL(bits, operand.U32(math.Float32bits(smallestDecadeScale)))
	e.g.JB(operand.LabelRef(small))
	e.groups(codes, x, n, func(vec) {})
	e.g.Label(done)
	*e.beside = append(*e.beside, func() {
		e.g.Label(small) // both are multiplied by a power of two, and neither is rounded
		larger := e.g.everywhere(math.Float32bits(1 / smallestDecadeScale))
		e.g.VMULPS(larger, e.scale, e.scale)
		e.groups(codes, x, n, func(y vec) { e.g.VMULPS(larger, y, y) })
		e.g.JMP(operand.LabelRef(done))
	})
}

func (e decadeEncoder) groups(codes, x, n gp, adjust func(vec)) {
	e.g.VMOVUPS(e.scale, e.kept)
	e.g.VMOVSS(e.ratio, e.multiplier.AsX())
	e.g.VDIVSS(e.scale.AsX(), e.multiplier.AsX(), e.multiplier.AsX())
	e.g.VBROADCASTSS(e.multiplier.AsX(), e.multiplier)
	e.g.loop(n, 32, func() {
		for line := 0; line < 128 && e.ahead > 0; line += 64 {
			e.g.PREFETCHT0(at(x, e.ahead+line))
		}
		e.g.VMOVDQU(e.codes(x, adjust), at(codes, 0))
		e.g.advance(x, 128)
		e.g.advance(codes, 32)
	})
	none := operand.LabelRef(e.g.label("none"))
	e.g.TESTQ(n, n)
	e.g.JZ(none)
	zero, room, i := e.g.YMM(), e.g.GP64(), e.g.GP64()
	e.g.LEAQ(e.room, room)
	e.g.VPXOR(zero, zero, zero)
	for offset := 0; offset < 128; offset += 32 {
		e.g.VMOVDQU(zero, at(room, offset))
	}
	word := e.g.GP32()
	e.g.MOVQ(n, i)
	e.g.loop(i, 1, func() {
		e.g.MOVL(mem{Base: x, Index: i, Scale: 4, Disp: -4}, word)
		e.g.MOVL(word, mem{Base: room, Index: i, Scale: 4, Disp: -4})
	})
	e.g.VMOVDQU(e.codes(room, adjust), at(room, 128))
	e.g.MOVQ(n, i)
	e.g.loop(i, 1, func() {
		e.g.MOVB(mem{Base: room, Index: i, Scale: 1, Disp: 127}, word.As8())
		e.g.MOVB(word.As8(), mem{Base: codes, Index: i, Scale: 1, Disp: -1})
	})
	e.g.LEAQ(mem{Base: x, Index: n, Scale: 4}, x)
	e.g.ADDQ(n, codes)
	e.g.Label(string(none))
}

func quantizeDecadesAVX2(g *generator) {
	for _, f := range []struct {
		name, of string
		signed   bool
	}{
		{"QuantizeDynamic8AVX2", "codebook.Dynamic8()", true},
		{"QuantizeDynamic8UnsignedAVX2", "codebook.Dynamic8Unsigned()", false},
	} {
		g.function(f.name, "(codes []uint8, scales, x []float32, block int, divisor, least float32, thresholds *[255]float32) int", f.name+`
codes x in blocks with the codes of `+f.of+`, whose thresholds it takes. It is
QuantizeAVX2 of that codebook. A call of 200,000 elements takes about 100 µs.`)
		g.quantizeBytes(func() decadeEncoder { return g.decadeEncoder(f.signed, g.number("thresholds")) }, func(code gp) {
			g.MOVL(operand.U32(newDecades(f.signed).zero()), code.As32())
		})
	}
	g.function("QuantizeLineAVX2", "(codes []uint8, scales, x []float32, block int, divisor, least float32, line *[3]uint32, thresholds *[255]float32) int", `
QuantizeLineAVX2 is QuantizeAVX2 of a codebook with a Line, which it takes, and its
thresholds. A call of 300,000 elements takes about 100 µs.`)
	g.quantizeBytes(func() decadeEncoder { return g.lineEncoder(g.number("line"), g.number("thresholds")) }, func(code gp) {
		g.MOVQ(g.resolve(g.Param("line")), code)
		g.MOVL(at(code, 8), code.As32())
	})
}

// quantizeBytes is the body of a function that stores a byte a number; zero loads the code of
// zero.
func (g *generator) quantizeBytes(encoder func() decadeEncoder, zero func(code gp)) {
	codes, scales, x := g.pointer("codes"), g.pointer("scales"), g.pointer("x")
	e := encoder()
	g.quantizeBlocks(x, scales, e.scale, func(length gp) { e.encode(codes, x, length) }, func(length gp) {
		code := g.GP64()
		zero(code)
		g.LEAQ(mem{Base: x, Index: length, Scale: 4}, x)
		g.fill(codes, length, code)
	})
	g.end()
	g.besides(e.beside)
}
