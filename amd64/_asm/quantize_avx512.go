package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// prefetched is how far ahead of its numbers a quantiser asks for them, in bytes.
const prefetched = 16 << 10

// decadeEncoder512 finds codes of a dynamic 8-bit map by arithmetic, 64 at a time.
type decadeEncoder512 struct {
	g *generator
	decades
	thresholds                     gp
	least, factor, offset, steeper vec
	slopes, offsets, corrections   vec
	window                         vec // of fractions that are near a threshold
	zero, shuffle, order           vec
	evenWords, oddWords, oddBytes  mask
	block512
	line     bool // of a table that is one straight line
	streamed mem  // not 0: whole groups of codes go past the caches
}

// decadeEncoder512 prepares for a map with those thresholds.
func (g *generator) decadeEncoder512(signed bool, thresholds gp) decadeEncoder512 {
	d := newDecades(signed)
	bits := math.Float32bits
	e := decadeEncoder512{
		g: g, decades: d, thresholds: thresholds,
		least: g.broadcast512(bits(d.least * decadeScale)), factor: g.broadcast512(bits(indexFactor)),
		offset: g.broadcast512(bits(indexOffset)), steeper: g.broadcast512(bits(steeper)),
		slopes: g.decadeTable("slopes", d.slopes), offsets: g.decadeTable("offsets", d.offsets), corrections: g.decadeTable("corrections", d.corrections),
		window: g.broadcast512(0x10001 * d.near()),
		zero:   g.broadcast512(0x7f7f7f7f), shuffle: g.ZMM(), order: g.ZMM(),
		evenWords: g.selected(0x5555555555555555), oddWords: g.selected(0xaaaaaaaaaaaaaaaa), oddBytes: g.selected(0xaaaaaaaaaaaaaaaa),
		block512: g.block512(smallestDecadeScale, 1/smallestDecadeScale, g.data("word", bits(decadeScale))),
	}
	e.orders()
	return e
}

// lineEncoder512 prepares for a table whose thresholds lie on a line, as codebook.Line's.
func (g *generator) lineEncoder512(line, thresholds gp) decadeEncoder512 {
	d := decades{fraction: 15}
	e := decadeEncoder512{
		g: g, decades: d, line: true, thresholds: thresholds, offset: g.ZMM(), window: g.broadcast512(0x10001 * d.near()),
		shuffle: g.ZMM(), order: g.ZMM(),
		evenWords: g.selected(0x5555555555555555), oddWords: g.selected(0xaaaaaaaaaaaaaaaa), oddBytes: g.selected(0xaaaaaaaaaaaaaaaa),
		block512: g.block512(smallestDecadeScale, 1/smallestDecadeScale, at(line, 0)),
	}
	g.VBROADCASTSS(at(line, 4), e.offset)
	e.orders()
	return e
}

func (e decadeEncoder512) orders() {
	e.g.VBROADCASTI32X4(e.g.data("turned", 0x0c080400, 0x0e0a0602, 0x0d090501, 0x0f0b0703), e.shuffle)
	e.g.VMOVDQU32(e.g.data("transposed", transposed...), e.order)
}

// decadeTable has the number of each decade in the lanes whose last three bits are its.
func (g *generator) decadeTable(name string, values [8]float32) vec {
	var words []uint32
	for _, v := range values {
		words = append(words, math.Float32bits(v))
	}
	z := g.ZMM()
	g.VBROADCASTF32X8(g.data(name, words...), z)
	return z
}

// selected is a mask of those bits.
func (g *generator) selected(bits uint64) mask {
	r, k := g.GP64(), g.K()
	g.MOVQ(operand.U64(bits), r)
	g.KMOVQ(r, k)
	return k
}

// near is how many fractions, in 16 bits, are near a threshold.
func (d decades) near() uint32 { return 2 * decadeError << (16 - d.fraction) }

// estimate gives the fixed-point codes of x's magnitudes.
func (e decadeEncoder512) estimate(x vec) vec {
	if e.line {
		t := e.g.ZMM()
		e.g.VMOVAPS(e.offset, t)
		e.g.VFMADD231PS(e.multiplier, x, t)
		e.g.VPADDD(t, t, t)
		return t
	}
	p, decade, slope, t, begin := e.g.ZMM(), e.g.ZMM(), e.g.ZMM(), e.g.ZMM(), e.g.ZMM()
	e.g.VMULPS(e.multiplier, x, p)
	if e.signed {
		e.g.VRANGEPS(operand.Imm(0xb), e.least, p, p) // the larger magnitude, made positive
	} else {
		e.g.VMAXPS(e.least, p, p)
	}
	e.g.VCVTDQ2PS(p, decade)
	e.g.VFMADD213PS(e.offset, e.factor, decade)
	e.g.VPERMPS(e.slopes, decade, slope)
	e.g.VPERMPS(e.offsets, decade, t)
	e.g.VPERMPS(e.corrections, decade, begin)
	e.g.VFMADD231PS(slope, p, t)
	e.g.VFMADD231PS(e.steeper, t, begin)
	e.g.VMINPS(begin, t, t)
	if e.fraction == 15 {
		e.g.VPADDD(t, t, t)
	}
	return t
}

// codes gives the codes of 64 numbers.
func (e decadeEncoder512) codes(x [4]vec) vec {
	var t [4]vec
	for i := range t {
		t[i] = e.estimate(x[i])
	}
	least, other, near := e.g.ZMM(), e.g.ZMM(), e.g.K()
	e.g.VPMINUW(t[1], t[0], least)
	e.g.VPMINUW(t[3], t[2], other)
	e.g.VPMINUW(other, least, least)
	e.g.VPCMPUW(operand.Imm(1), e.window, least, e.evenWords, near) // below
	e.g.KORTESTD(near, near)
	compare, compared := e.g.label("compare"), e.g.label("compared")
	e.g.JNZ(operand.LabelRef(compare))
	e.g.Label(compared)
	*e.beside = append(*e.beside, func() {
		e.g.Label(compare)
		for i := range t {
			e.compare(x[i], t[i])
		}
		e.g.JMP(operand.LabelRef(compared))
	})

	e.g.VPSRLD(operand.Imm(16), t[0], t[0])
	e.g.VPSRLD(operand.Imm(16), t[2], t[2])
	e.g.VMOVDQU16(t[1], e.oddWords, t[0])
	e.g.VMOVDQU16(t[3], e.oddWords, t[2])
	e.g.VPSLLW(operand.Imm(8), t[2], t[2])
	y := t[0]
	e.g.VMOVDQU8(t[2], e.oddBytes, y)
	e.g.VPSHUFB(e.shuffle, y, y)
	if e.signed {
		y = e.signs(x, y)
	}
	e.g.VPERMD(y, e.order, y)
	return y
}

// compare finishes the codes that are near a threshold by comparing the quotient with it.
func (e decadeEncoder512) compare(x, t vec) {
	low, r, threshold := e.g.ZMM(), e.g.ZMM(), e.g.ZMM()
	near, gathered, below := e.g.K(), e.g.K(), e.g.K()
	none := e.g.label("none")
	e.g.VPSLLD(operand.Imm(16), t, low)
	e.g.VPCMPUD_BCST(operand.Imm(1), e.g.data("word", e.near()<<16), low, near) // below
	e.g.KORTESTW(near, near)
	e.g.JZ(operand.LabelRef(none))
	e.g.KMOVW(near, gathered)
	code := low
	e.g.VPSRLD(operand.Imm(16), t, code)
	e.g.VDIVPS(e.scale, x, r)
	e.g.VPXORD(threshold, threshold, threshold)
	e.g.VGATHERDPS(mem{Base: e.thresholds, Index: code, Scale: 4, Disp: 4 * e.firstThreshold()}, gathered, threshold)
	if e.line {
		e.g.VCMPPS(operand.Imm(0x1d), r, threshold, near, below) // not below
	} else {
		e.g.VPADDD(threshold, threshold, threshold)
		e.g.VPROLD(operand.Imm(1), r, r) // the sign last, which decides at the threshold
		e.g.VPCMPUD(operand.Imm(5), r, threshold, near, below)
	}
	e.g.VPSUBD_BCST(e.g.data("word", 1<<16), t, below, t)
	e.g.Label(none)
}

// signs makes codes of magnitudes' codes and the signs of x; it spoils them.
func (e decadeEncoder512) signs(x [4]vec, y vec) vec {
	a, b, codes, negative := e.g.ZMM(), e.g.ZMM(), e.g.ZMM(), e.g.K()
	e.g.VPACKSSDW(x[1], x[0], a)
	e.g.VPACKSSDW(x[3], x[2], b)
	e.g.VPACKSSWB(b, a, a)
	e.g.VPMOVB2M(a, negative)
	e.g.VPADDB(y, e.zero, codes)
	e.g.VPSUBUSB(y, e.zero, negative, codes)
	return codes
}

// encode codes n numbers of a block whose scale is known, and moves all three.
func (e decadeEncoder512) encode(codes, x, n gp) { e.g.encode512(e, codes, x, n) }

const smallestDecadeScale = 0x1p-100

func (e decadeEncoder512) prepare() {}

func (e decadeEncoder512) whole(codes, x, n gp, adjust func(vec)) {
	e.g.wholeBytes512(e.block512, e.codes, e.streamed, codes, x, n, adjust)
}

func (e decadeEncoder512) rest(codes, x, n gp, adjust func(vec)) {
	e.g.restBytes512(e.codes, codes, x, n, adjust)
}

// besides adds, behind a function's end, the code that its loops leave for what is rare.
func (g *generator) besides(beside *[]func()) {
	for len(*beside) > 0 {
		next := (*beside)[0]
		*beside = (*beside)[1:]
		next()
	}
}

func quantizeAVX512(g *generator) {
	for _, f := range []struct {
		name, of string
		signed   bool
	}{
		{"QuantizeDynamic8AVX512", "codebook.Dynamic8()", true},
		{"QuantizeDynamic8UnsignedAVX512", "codebook.Dynamic8Unsigned()", false},
	} {
		g.function(f.name, "(codes []uint8, scales, x []float32, block int, divisor, least float32, thresholds *[255]float32, stream bool) int", f.name+`
codes x in blocks with the codes of `+f.of+`, whose thresholds it takes. It is
QuantizeAVX2 of that codebook. With stream, codes go past the caches where their address and
the block are multiples of 64. A call of 300,000 elements takes about 100 µs.`)
		g.quantize8AVX512(func(streamed mem) coder512 {
			e := g.decadeEncoder512(f.signed, g.number("thresholds"))
			e.streamed, e.ahead = streamed, prefetched
			return e
		}, func(code gp) { g.MOVL(operand.U32(newDecades(f.signed).zero()), code.As32()) })
	}
	g.function("QuantizeLineAVX512", "(codes []uint8, scales, x []float32, block int, divisor, least float32, line *[3]uint32, thresholds *[255]float32, stream bool) int", `
QuantizeLineAVX512 is QuantizeAVX2 of a codebook with a Line, which it takes, and its
thresholds. With stream, codes go past the caches where their address and the block are
multiples of 64. A call of 300,000 elements takes about 100 µs.`)
	g.quantize8AVX512(func(streamed mem) coder512 {
		e := g.lineEncoder512(g.number("line"), g.number("thresholds"))
		e.streamed, e.ahead = streamed, prefetched
		return e
	}, func(code gp) {
		g.MOVQ(g.resolve(g.Param("line")), code)
		g.MOVL(at(code, 8), code.As32())
	})
	g.function("QuantizeCellsAVX512", "(codes []uint8, scales, x []float32, block int, divisor, least float32, cells []uint32, stream bool) int", `
QuantizeCellsAVX512 is QuantizeAVX2. With stream, codes go past the caches where their
address and the block are multiples of 64. A call of 200,000 elements takes about 100 µs.`)
	g.quantize8AVX512(func(streamed mem) coder512 {
		return g.cellEncoder512(g.pointer("cells"), streamed)
	}, func(code gp) {
		g.MOVQ(g.resolve(g.Param("cells").Base()), code)
		g.MOVL(at(code, 4*cellZero), code.As32())
	})
}

// quantize8AVX512 is the body of a function that stores a byte a number; zero loads the code
// of zero.
func (g *generator) quantize8AVX512(coder func(streamed mem) coder512, zero func(code gp)) {
	codes, scales, x := g.pointer("codes"), g.pointer("scales"), g.pointer("x")
	streamed, is := g.AllocLocal(8), g.GP64()
	g.streamsBlocks(codes, 63, is)
	g.MOVQ(is, streamed)
	c := coder(streamed)
	g.quantizeBlocks512(codes, scales, x, c, func(length gp) {
		code := g.GP64()
		zero(code)
		g.LEAQ(mem{Base: x, Index: length, Scale: 4}, x)
		g.fill512(codes, length, code)
	})
	g.fence(streamed)
	g.end()
	g.besides(c.block().beside)
}

func (d decades) zero() uint32 {
	if d.signed {
		return 127
	}
	return 0
}

// fill512 sets n bytes to the low byte of value, and moves codes.
func (g *generator) fill512(codes, n, value gp) {
	z := g.ZMM()
	g.VPBROADCASTB(value.As32(), z)
	g.loop(n, 64, func() {
		g.VMOVDQU64(z, at(codes, 0))
		g.advance(codes, 64)
	})
	g.VMOVDQU8(z, g.first(n), at(codes, 0))
	g.ADDQ(n, codes)
}
