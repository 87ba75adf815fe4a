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
	scale, multiplier              vec // of the block: the multiplier makes an index
	streamed                       mem // not 0: whole groups of codes go past the caches
	beside                         *[]func()
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
		window: g.broadcast512(0x10001 * 2 * decadeError << (16 - d.fraction)),
		zero:   g.broadcast512(0x7f7f7f7f), shuffle: g.ZMM(), order: g.ZMM(),
		evenWords: g.selected(0x5555555555555555), oddWords: g.selected(0xaaaaaaaaaaaaaaaa), oddBytes: g.selected(0xaaaaaaaaaaaaaaaa),
		scale: g.ZMM(), multiplier: g.ZMM(), beside: &[]func(){},
	}
	g.VBROADCASTI32X4(g.data("turned", 0x0c080400, 0x0e0a0602, 0x0d090501, 0x0f0b0703), e.shuffle)
	g.VMOVDQU32(g.data("transposed", transposed...), e.order)
	return e
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

// multiply leaves what makes an index of a number in e.multiplier. The scale is at least
// smallestDecadeScale.
func (e decadeEncoder512) multiply() {
	e.g.VBROADCASTSS(e.g.data("word", math.Float32bits(decadeScale)), e.multiplier)
	e.g.VDIVSS(e.scale.AsX(), e.multiplier.AsX(), e.multiplier.AsX())
	e.g.VBROADCASTSS(e.multiplier.AsX(), e.multiplier)
}

// near is how many fractions, in 16 bits, are near a threshold.
func (d decades) near() uint32 { return 2 * decadeError << (16 - d.fraction) }

// estimate gives the fixed-point codes of x's magnitudes.
func (e decadeEncoder512) estimate(x vec) vec {
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
	e.g.VPADDD(threshold, threshold, threshold)
	e.g.VPROLD(operand.Imm(1), r, r) // the sign last, which decides at the threshold
	e.g.VPCMPUD(operand.Imm(5), r, threshold, near, below)
	e.g.VPSUBD_BCST(e.g.data("word", 1<<16), t, below, t)
	e.g.Label(none)
}

// firstThreshold is the index of code 0's lower threshold, less what is above the code in
// a fixed-point number.
func (e decadeEncoder512) firstThreshold() int {
	above := int(math.Float32bits(magicDecades) >> e.fraction)
	if e.signed {
		return 126 - above
	}
	return -1 - above
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
func (e decadeEncoder512) encode(codes, x, n gp) {
	small, done := e.g.label("small"), e.g.label("done")
	bits := e.g.GP32()
	e.g.VMOVD(e.scale.AsX(), bits)
	e.g.CMPL(bits, operand.U32(math.Float32bits(smallestDecadeScale)))
	e.g.JB(operand.LabelRef(small))
	e.multiply()
	e.groups(codes, x, n, func(z vec) {})
	e.g.Label(done)
	*e.beside = append(*e.beside, func() {
		e.g.Label(small) // both are multiplied by a power of two, and neither is rounded
		larger := e.g.data("word", math.Float32bits(1/smallestDecadeScale))
		e.g.VMULPS_BCST(larger, e.scale, e.scale)
		e.multiply()
		e.groups(codes, x, n, func(z vec) { e.g.VMULPS_BCST(larger, z, z) })
		e.g.JMP(operand.LabelRef(done))
	})
}

const smallestDecadeScale = 0x1p-100

// groups codes n numbers, prepared, and moves codes, x and n.
func (e decadeEncoder512) groups(codes, x, n gp, prepare func(vec)) {
	e.g.loop(n, 64, func() {
		var z [4]vec
		for i := range z {
			z[i] = e.g.ZMM()
			e.g.VMOVUPS(at(x, 64*i), z[i])
			prepare(z[i])
		}
		y := e.codes(z)
		if e.streamed.Base == nil {
			e.g.VMOVDQU64(y, at(codes, 0))
			e.g.advance(x, 256)
			e.g.advance(codes, 64)
			return
		}
		past, stored := e.g.label("past"), e.g.label("stored")
		e.g.CMPB(e.streamed, operand.U8(0))
		e.g.JNE(operand.LabelRef(past))
		e.g.VMOVDQU64(y, at(codes, 0))
		e.g.Label(stored)
		*e.beside = append(*e.beside, func() {
			e.g.Label(past)
			e.g.VMOVNTDQ(y, at(codes, 0))
			e.g.JMP(operand.LabelRef(stored))
		})
		e.g.advance(x, 256)
		e.g.advance(codes, 64)
	})
	none := operand.LabelRef(e.g.label("none"))
	e.g.TESTQ(n, n)
	e.g.JZ(none)
	lanes := e.g.GP64()
	e.g.MOVQ(operand.I64(-1), lanes)
	e.g.BZHIQ(n, lanes, lanes)
	var z [4]vec
	for i := range z {
		k := e.g.K()
		e.g.KMOVW(lanes.As32(), k)
		e.g.SHRQ(operand.Imm(lanes512), lanes)
		z[i] = e.g.ZMM()
		e.g.VMOVUPS_Z(at(x, 64*i), k, z[i])
		prepare(z[i])
	}
	y := e.codes(z)
	e.g.VMOVDQU8(y, e.g.first(n), at(codes, 0))
	e.g.LEAQ(mem{Base: x, Index: n, Scale: 4}, x)
	e.g.ADDQ(n, codes)
	e.g.XORQ(n, n)
	e.g.Label(string(none))
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
		g.function(f.name, "(codes []uint8, scales, x []float32, block int, divisor float32, thresholds *[255]float32, stream bool) int", f.name+`
codes x in blocks with the codes of `+f.of+`, whose thresholds it takes. It is
QuantizeAVX2 of that codebook. With stream, codes go past the caches where their address and
the block are multiples of 64. A call of 300,000 elements takes about 100 µs.`)
		codes, scales, x := g.pointer("codes"), g.pointer("scales"), g.pointer("x")
		e := g.decadeEncoder512(f.signed, g.number("thresholds"))
		e.streamed = g.AllocLocal(8)
		streamed := g.GP64()
		g.streamsBlocks(codes, 63, streamed)
		g.MOVQ(streamed, e.streamed)
		g.quantizeBlocks512(x, scales, e.scale, func(length gp) {
			e.encode(codes, x, length)
		}, func(length gp) {
			zero := g.GP64()
			g.MOVL(operand.U32(newDecades(f.signed).zero()), zero.As32())
			g.LEAQ(mem{Base: x, Index: length, Scale: 4}, x)
			g.fill512(codes, length, zero)
		})
		g.fence(e.streamed)
		g.end()
		g.besides(e.beside)
	}
}

func (d decades) zero() uint32 {
	if d.signed {
		return 127
	}
	return 0
}

// quantizeBlocks512 stores the scales of the blocks of the argument x, returns the number of
// those that are not finite and runs encode or, for a block that is zero or not finite,
// zeros, both of which move x. The largest magnitude of a block is sought before the one
// in front of it is coded.
func (g *generator) quantizeBlocks512(x, scales gp, scale vec, encode, zeros func(length gp)) {
	poisoned := g.result()
	g.MOVQ(operand.U32(0), poisoned)
	n, length := g.length("x"), g.GP64()
	again, finished := g.label("block"), g.label("finished")
	next := func(values gp, length gp) vec {
		left := g.GP64()
		g.MOVQ(g.resolve(g.Param("block")), length)
		g.CMPQ(length, n)
		g.CMOVQGT(n, length)
		g.SUBQ(length, n)
		g.MOVQ(length, left)
		from := g.GP64()
		g.MOVQ(values, from)
		g.LEAQ(mem{Base: values, Index: length, Scale: 4}, values)
		return g.absmax512(from, left, prefetched)
	}
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(finished))
	values, largest := g.GP64(), g.XMM()
	g.MOVQ(x, values)
	g.VMOVAPS(next(values, length), largest)

	g.Label(again)
	following, nextLength, last := g.XMM(), g.GP64(), operand.LabelRef(g.label("last"))
	g.XORL(nextLength.As32(), nextLength.As32())
	g.TESTQ(n, n)
	g.JZ(last)
	g.VMOVAPS(next(values, nextLength), following)
	g.Label(string(last))
	g.scaleBlock(largest, scale, scales, g.resolve(g.Param("divisor")), func() { g.INCQ(poisoned) },
		func() { encode(length) }, func() { zeros(length) })
	g.advance(scales, 4)
	g.VMOVAPS(following, largest)
	g.MOVQ(nextLength, length)
	g.TESTQ(length, length)
	g.JNZ(operand.LabelRef(again))
	g.Label(finished)
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
