package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/operand"
)

func adamW4bitAVX512(g *generator) {
	for _, pair := range pairs {
		weights, gradients := pair[0], pair[1]
		name := fmt.Sprintf("AdamW4bitW%sG%sAVX512", weights.name, gradients.name)
		g.function(name, fmt.Sprintf("(w []%s, g []%s, mCodes, vCodes []uint8, mScales, vScales []float32, block int, tables *[160]uint32, mDivisor, vDivisor float32, s *[11]float32, nesterov, skip, highFirst bool, scratch *[6192]float32, counts *[3]int64)", weights.goType, gradients.goType), fmt.Sprintf(`
%s is a step of AdamW on %s weights and %s gradients
with moments in blocks of up to 2048 codes of codebook.DE4() and codebook.Linear4(), whose
tables are kernels' nibbleTables. A block that is not the last has an even length. The
scalars are the first fields of reference.AdamWScalars, and RootCorrection2 and its
reciprocal are normal numbers. It adds to the counts the elements that are not finite and,
with skip, the elements and the blocks that it leaves as they were for it. A call of 100,000
elements takes about 100 µs.

	for lo := 0; lo < len(w); lo += block {
		hi := min(lo+block, len(w))
		AdamWF32WF32GF32AVX512(w[lo:hi], g[lo:hi], m, v, s, nesterov, false) // m, v: decoded
		if skip && nonFinite > 0 {
			continue // and store nothing
		}
		Quantize4AVX512(mCodes[lo/2:], mScales[lo/block:], m, block, mDivisor, mThresholds, order, 7, highFirst)
		Quantize4AVX512(vCodes[lo/2:], vScales[lo/block:], v, block, vDivisor, vThresholds, order, 0, highFirst)
	}`, name, weights.prose(), gradients.prose()))
		g.adamW4bit512(weights, gradients, false)

		vector, name := name, fmt.Sprintf("AdamW4bitFactoredW%sG%sAVX512", weights.name, gradients.name)
		g.function(name, fmt.Sprintf("(w []%s, g []%s, mCodes []uint8, v, mScales []float32, block int, tables *[160]uint32, mDivisor float32, s *[11]float32, nesterov, skip, highFirst bool, scratch *[6192]float32, counts *[3]int64)", weights.goType, gradients.goType), fmt.Sprintf(`
%s is %s with new second moments
instead of codes of old ones.`, name, vector))
		g.adamW4bit512(weights, gradients, true)
	}
}

// Places in nibbleTables, in bytes: of each moment the values of its codes, and of the cells
// that its numbers lie in the only thresholds, half their distances to the next float32
// and, for the first moment, the codes below.
const (
	mValues     = 0
	vValues     = 64
	mThresholds = 128
	mHalfSteps  = 256
	mCodesBelow = 384
	vThresholds = 512
	vHalfSteps  = 576
)

// block4 is block8 with two codes a byte, or with new second moments that need none.
//
// Both moments' codes are found by one comparison, as nibbles512 does it, with the only
// threshold of the cell that a number lies in. A first moment r in [-1, 1] lies in cell
// exponent(1.1952²r² + 1/14000) modulo 16, or 16 cells further if it is negative: cells of
// half an octave, of which the last holds all small numbers. A second moment r in [0, 1] lies in
// cell floor(15.99*r) - 1, which is the code below its threshold; before the first cell is
// one whose numbers are all above its bound.
type block4 struct {
	block8
	tables [2]vec // of values, times the scale
	shifts vec
	upper  mask
}

const (
	mCellFactor = 1.1952
	mCellOffset = 1.0 / 14000
	vCellFactor = 15.99
	vCellMagic  = 0x4b3fffff // 1.5*2^23 - 1, to which a number is added in integers

	// Scales for which bounds are exact; others are multiplied by a power of two.
	leastScale4 = 0x1p-60
	mostScale4  = 0x1p100
)

func (g *generator) adamW4bit512(weights, gradients format, factored bool) {
	length := g.AllocLocal(8)
	base := func(slice string) mem { return g.resolve(g.Param(slice).Base()) }
	reload := func(m mem) gp {
		r := g.GP64()
		g.MOVQ(m, r)
		return r
	}
	moments := []string{"m", "v"}
	if factored {
		moments = moments[:1]
	}
	var outOfLine []func()
	g.blocks(g.length("w"), func(left gp) {
		g.MOVQ(left, length)
		b := block4{block8: block8{adamW512: g.adamW512(), weights: weights, gradients: gradients, bfloats: bfloats512{halves: halves{g: g}}, coded: len(moments)}}
		b.factored = factored
		if weights == bfloat16s || gradients == bfloat16s {
			b.bfloats = g.bfloats512(true)
		}
		b.prepare(moments)
		plain, updated := g.label("plain"), g.label("updated")
		g.CMPB(g.resolve(g.Param("nesterov")), operand.Imm(0))
		g.JE(operand.LabelRef(plain))
		b.pass(b.pointers(), reload(length), func(x values, of part) { b.fast(x, of, true) })
		g.JMP(operand.LabelRef(updated))
		g.Label(plain)
		b.pass(b.pointers(), reload(length), func(x values, of part) { b.fast(x, of, false) })
		g.Label(updated)

		bad, keep, next, notFinite := g.label("bad"), g.label("keep"), g.label("next"), g.unordered(b.probed)
		g.KORTESTW(notFinite, notFinite)
		g.JNZ(operand.LabelRef(bad))
		g.Label(keep)
		unusual := g.label("unusual")
		e := g.encoder4(moments)
		for i, moment := range moments {
			largest := g.largestLane512(b.largest[i])
			outOfLine = append(outOfLine, e.store(moment, largest))
		}
		for _, moment := range moments {
			bits := g.GP32()
			g.MOVL(at(reload(base(moment+"Scales")), 0), bits)
			g.SUBL(operand.U32(math.Float32bits(leastScale4)), bits)
			g.CMPL(bits, operand.U32(math.Float32bits(mostScale4)-math.Float32bits(leastScale4)))
			g.JAE(operand.LabelRef(unusual))
		}
		b.storeWeights(reload(base("w")), reload(g.resolve(g.Param("scratch"))), reload(length))
		encode := func(adjust func(moment string, x vec)) {
			codes := make([]gp, len(moments))
			for i, moment := range moments {
				codes[i] = reload(base(moment + "Codes"))
			}
			e.groups(codes, reload(g.resolve(g.Param("scratch"))), reload(length), adjust)
		}
		for _, moment := range moments {
			scale := g.ZMM()
			g.VBROADCASTSS(at(reload(base(moment+"Scales")), 0), scale)
			e.prepare(moment, scale)
		}
		encode(func(string, vec) {})
		g.Label(next)
		moved := reload(length)
		for i, slice := range []string{"w", "g"} {
			bytes := g.GP64()
			g.IMUL3Q(operand.Imm(uint64([]format{weights, gradients}[i].bytes)), moved, bytes)
			g.ADDQ(bytes, base(slice))
		}
		if factored {
			bytes := g.GP64()
			g.IMUL3Q(operand.Imm(4), moved, bytes)
			g.ADDQ(bytes, base("v"))
		}
		g.SHRQ(operand.Imm(1), moved)
		for _, moment := range moments {
			g.ADDQ(moved, base(moment+"Codes"))
			g.ADDQ(operand.Imm(4), base(moment+"Scales"))
		}

		outOfLine = append(outOfLine, func() {
			g.Label(unusual)
			b.storeWeights(reload(base("w")), reload(g.resolve(g.Param("scratch"))), reload(length))
			adjust := map[string]func(vec){}
			for _, moment := range moments {
				adjust[moment] = e.unusual(moment, reload(base(moment+"Scales")))
			}
			encode(func(moment string, x vec) { adjust[moment](x) })
			g.JMP(operand.LabelRef(next))
		}, func() {
			g.Label(bad)
			counts, found := reload(g.resolve(g.Param("counts"))), g.GP64()
			g.XORL(found.As32(), found.As32())
			for i := range moments {
				g.VPXORD(b.largest[i], b.largest[i], b.largest[i])
			}
			again, n := g.label("again"), reload(length)
			from := b.pointers()
			g.Label(again)
			lanes := g.atMost(n, 64)
			b.group(from, lanes, func(x values, of part) {
				b.careful(x, of, found)
				b.raise(x)
			})
			b.advance(from)
			g.SUBQ(lanes, n)
			g.JNZ(operand.LabelRef(again))
			g.ADDQ(found, at(counts, 0))
			g.TESTQ(found, found)
			g.JZ(operand.LabelRef(keep))
			g.CMPB(g.resolve(g.Param("skip")), operand.Imm(0))
			g.JE(operand.LabelRef(keep))
			g.ADDQ(reload(length), at(counts, 8))
			g.INCQ(at(counts, 16))
			g.JMP(operand.LabelRef(next))
		})
	})
	g.end()
	for _, emit := range outOfLine {
		emit()
	}
}

// prepare takes up a block's scales.
func (b *block4) prepare(moments []string) {
	b.zero, b.probed, b.shifts, b.upper = b.g.ZMM(), b.g.ZMM(), b.g.ZMM(), b.g.K()
	b.g.VPXORD(b.zero, b.zero, b.zero)
	b.g.VPXORD(b.probed, b.probed, b.probed)
	bits := b.g.GP32()
	b.g.MOVL(operand.U32(0xff00), bits)
	b.g.KMOVW(bits, b.upper)
	b.g.MOVBLZX(b.g.resolve(b.g.Param("highFirst")), bits)
	b.g.SHLL(operand.Imm(2), bits)
	b.g.VPBROADCASTD(bits, b.shifts)
	b.g.VPXORD(b.g.data("nibbles", 0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28), b.shifts, b.shifts)
	tables := b.g.number("tables")
	for i, moment := range moments {
		b.tables[i], b.largest[i] = b.g.ZMM(), b.g.ZMM()
		b.g.VBROADCASTSS(at(b.g.pointer(moment+"Scales"), 0), b.tables[i])
		b.g.VMULPS(at(tables, []int{mValues, vValues}[i]), b.tables[i], b.tables[i])
		b.g.VPXORD(b.largest[i], b.largest[i], b.largest[i])
	}
}

// pointers4 are those of a pass over a block.
type pointers4 struct {
	w, g     stream
	codes    []gp
	v        gp // in place of codes
	scratch4 gp
}

func (b *block4) pointers() pointers4 {
	p := pointers4{w: stream{b.weights, b.g.pointer("w")}, g: stream{b.gradients, b.g.pointer("g")}, codes: []gp{b.g.pointer("mCodes")}, scratch4: b.g.number("scratch")}
	if b.factored {
		p.v = b.g.pointer("v")
	} else {
		p.codes = append(p.codes, b.g.pointer("vCodes"))
	}
	return p
}

// advance moves by 64 elements all but the codes.
func (b *block4) advance(p pointers4) {
	b.g.advance(p.w.p, 64*b.weights.bytes)
	b.g.advance(p.g.p, 64*b.gradients.bytes)
	b.g.advance(p.scratch4, 64*4)
	if b.factored {
		b.g.advance(p.v, 64*4)
	}
}

// pass makes new values of n elements, 64 at a time.
func (b *block4) pass(p pointers4, n gp, update func(values, part)) {
	b.g.loop(n, 64, func() {
		for _, s := range []stream{p.w, p.g} {
			for offset := 0; offset < 64*s.bytes; offset += 64 {
				b.g.PREFETCHT0(at(s.p, prefetch8bit*s.bytes+offset))
			}
		}
		for _, codes := range p.codes {
			b.g.PREFETCHT0(at(codes, prefetch8bit/2))
		}
		b.group(p, nil, update)
		b.advance(p)
		for _, codes := range p.codes {
			b.g.advance(codes, 32)
		}
	})
	done := operand.LabelRef(b.g.label("done"))
	b.g.TESTQ(n, n)
	b.g.JZ(done)
	b.group(p, n, update)
	b.g.Label(string(done))
}

// group makes new values of 64 elements, or of the first n, after which it moves the codes,
// in scratch.
func (b *block4) group(p pointers4, n gp, update func(values, part)) {
	of, bits := part{registers: 4}, b.g.GP64()
	codes := p.codes
	if n != nil {
		b.g.MOVQ(operand.I64(-1), bits)
		b.g.BZHIQ(n, bits, bits)
		codes = nil
		for _, from := range p.codes {
			codes = append(codes, b.g.tail4(from, n))
		}
	}
	for i := 0; i < 4; i += 2 {
		if n != nil {
			of.lanes = make([]mask, 4)
			for j := range 2 {
				of.lanes[i+j] = b.g.K()
				b.g.KMOVW(bits.As32(), of.lanes[i+j])
				b.g.SHRQ(operand.Imm(lanes512), bits)
			}
		}
		x := values{scratch: p.scratch4, first: i, w: b.load(p.w, i, of), g: b.load(p.g, i, of)}
		for j := range 2 {
			x.m[j] = b.decode(codes[0], i+j, b.tables[0])
			if b.factored {
				x.v[j] = b.g.loadFloats512(p.v, i+j, of)
			} else {
				x.v[j] = b.decode(codes[1], i+j, b.tables[1])
			}
		}
		update(x, of)
	}
}

// decode gives the values of 16 codes.
func (b *block4) decode(codes gp, i int, table vec) vec {
	z := b.g.ZMM()
	b.g.VPBROADCASTD(at(codes, 8*i), z)
	b.g.VPBROADCASTD(at(codes, 8*i+4), b.upper, z)
	b.g.VPSRLVD(b.shifts, z, z)
	b.g.VPERMPS(table, z, z)
	return z
}

// raise makes new second moments that are negative, which get the lowest code, zero.
func (b *block4) raise(x values) {
	for j := range 2 * (b.coded - 1) {
		z := b.g.ZMM()
		b.g.VMAXPS(b.zero, x.v[j], z)
		b.g.VMOVUPS(z, x.place(2, j))
	}
}

// encoder4 codes both moments of a block.
type encoder4 struct {
	nibbles512 // whose order of codes in bytes it shares
	moments    []string
	tables     gp
	m          struct {
		factor        vec
		bounds, below [2]vec
	}
	v struct{ factor, bounds vec }
}

func (g *generator) encoder4(moments []string) *encoder4 {
	e := &encoder4{nibbles512: nibbles512{g: g, turn: g.turnedBytes(), order: g.ZMM(), swap: g.ZMM()}, moments: moments, tables: g.number("tables")}
	g.VMOVDQU32(g.data("lanes", 0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), e.order)
	high := g.GP32()
	g.MOVBLZX(g.resolve(g.Param("highFirst")), high)
	g.SHLL(operand.Imm(5), high)
	g.VPBROADCASTQ(high.As64(), e.swap)
	e.m.factor, e.v.factor, e.v.bounds = g.ZMM(), g.ZMM(), g.ZMM()
	for i := range 2 {
		e.m.bounds[i], e.m.below[i] = g.ZMM(), g.ZMM()
		g.VMOVDQU32(at(e.tables, mCodesBelow+64*i), e.m.below[i])
	}
	return e
}

// store makes and stores a moment's scale, which is that of nibbles512.
func (e *encoder4) store(moment string, largest vec) (outOfLine func()) {
	g := e.g
	bits, quotient, scales := g.GP32(), g.XMM(), g.pointer(moment+"Scales")
	tooLarge, known := g.label("large"), g.label("scale")
	g.VDIVSS(g.resolve(g.Param(moment+"Divisor")), largest, quotient)
	g.VMOVD(quotient, bits)
	g.CMPL(bits, operand.U32(0x7f800000))
	g.JAE(operand.LabelRef(tooLarge))
	g.Label(known)
	g.MOVL(bits, at(scales, 0))
	return func() {
		g.Label(tooLarge)
		g.VMOVD(largest, bits)
		g.CMPL(bits, operand.U32(0x7f800000))
		g.JB(operand.LabelRef(known))
		g.MOVL(operand.U32(0x7fc00000), bits)
		g.JMP(operand.LabelRef(known))
	}
}

// prepare makes bounds of a moment's scale; an estimate of its reciprocal is enough for cells.
func (e *encoder4) prepare(moment string, scale vec) {
	e.scale = scale
	reciprocal := func(times float32, factor vec) {
		e.g.VRCP14SS(scale.AsX(), scale.AsX(), factor.AsX())
		e.g.VMULSS(e.g.data("word", math.Float32bits(times)), factor.AsX(), factor.AsX())
		e.g.VBROADCASTSS(factor.AsX(), factor)
	}
	bound := func(thresholds, halfSteps int, bounds vec) {
		t := e.g.ZMM()
		e.g.VMULPS(at(e.tables, halfSteps), scale, bounds)
		e.g.VMOVUPS(at(e.tables, thresholds), t)
		e.g.VFMADD231PS_RD_SAE(scale, t, bounds)
	}
	if moment == "v" {
		reciprocal(vCellFactor, e.v.factor)
		bound(vThresholds, vHalfSteps, e.v.bounds)
		return
	}
	reciprocal(mCellFactor, e.m.factor)
	for i := range 2 {
		bound(mThresholds+64*i, mHalfSteps+64*i, e.m.bounds[i])
	}
}

// unusual is prepare for any scale, and gives what numbers need before they are compared:
// those of blocks without a scale become zeros.
func (e *encoder4) unusual(moment string, scales gp) (adjust func(vec)) {
	g := e.g
	bits, scale, factor, keep := g.GP32(), g.ZMM(), g.ZMM(), g.ZMM()
	large, none, done := g.label("large"), g.label("none"), g.label("adjusted")
	word := func(x float32) mem { return g.data("word", math.Float32bits(x)) }
	g.MOVL(at(scales, 0), bits)
	g.VBROADCASTSS(at(scales, 0), scale)
	g.VPTERNLOGD(operand.U8(0xff), keep, keep, keep)
	g.TESTL(bits, bits)
	g.JZ(operand.LabelRef(none))
	g.CMPL(bits, operand.U32(0x7f800000))
	g.JAE(operand.LabelRef(none))
	g.VBROADCASTSS(word(1), factor)
	g.CMPL(bits, operand.U32(math.Float32bits(mostScale4)))
	g.JAE(operand.LabelRef(large))
	g.CMPL(bits, operand.U32(math.Float32bits(leastScale4)))
	g.JAE(operand.LabelRef(done))
	g.VBROADCASTSS(word(0x1p89), factor) // rounds nothing
	g.JMP(operand.LabelRef(done))
	g.Label(large)
	g.VBROADCASTSS(word(0x1p-60), factor) // rounds numbers that are far below all thresholds
	g.JMP(operand.LabelRef(done))
	g.Label(none)
	g.VBROADCASTSS(word(1), scale)
	g.VBROADCASTSS(word(1), factor)
	g.VPXORD(keep, keep, keep)
	g.Label(done)
	g.VMULPS(factor, scale, scale)
	e.prepare(moment, scale)
	return func(x vec) {
		g.VMULPS(factor, x, x)
		g.VPANDD(keep, x, x)
	}
}

// groups codes n numbers of each moment. The unused half of a last byte gets the code of zero.
func (e *encoder4) groups(codes []gp, scratch, n gp, adjust func(moment string, x vec)) {
	g := e.g
	group := func(lanes []mask, store func(i int, pairs vec)) {
		for i, moment := range e.moments {
			var index [4]vec
			for j := range index {
				x, place := g.ZMM(), at(scratch, (i+1)*scratchArray+64*j)
				if lanes == nil {
					g.VMOVUPS(place, x)
				} else {
					g.VMOVUPS_Z(place, lanes[j], x)
				}
				adjust(moment, x)
				if moment == "m" {
					index[j] = e.first(x)
				} else {
					index[j] = e.second(x)
				}
			}
			store(i, e.pairs(e.joined(index)))
		}
	}
	g.loop(n, 64, func() {
		group(nil, func(i int, pairs vec) { g.VMOVDQU64(pairs.AsY(), at(codes[i], 0)) })
		g.advance(scratch, 256)
		for _, p := range codes {
			g.advance(p, 32)
		}
	})
	none := operand.LabelRef(g.label("none"))
	g.TESTQ(n, n)
	g.JZ(none)
	lanes := g.firstElements(n, 4).lanes
	bytes := g.GP64()
	g.LEAQ(mem{Base: n, Disp: 1}, bytes)
	g.SHRQ(operand.Imm(1), bytes)
	stored := g.first(bytes)
	group(lanes, func(i int, pairs vec) { g.VMOVDQU8(pairs, stored, at(codes[i], 0)) })
	g.Label(string(none))
}

// first gives the codes of first moments, second those of second ones, in the low bytes of
// lanes that hold 1.5*2^23 otherwise.
func (e *encoder4) first(x vec) vec {
	g := e.g
	cell, sign, bound := g.ZMM(), g.ZMM(), g.ZMM()
	g.VMULPS(e.m.factor, x, cell)
	g.VFMADD213PS_BCST(g.data("word", math.Float32bits(mCellOffset)), cell, cell)
	g.VPSRLD(operand.Imm(23), cell, cell)
	g.VPSRLD(operand.Imm(27), x, sign)
	const thirdSelectsSecond = 0xd8
	g.VPTERNLOGD_BCST(operand.U8(thirdSelectsSecond), g.data("word", 16), sign, cell)
	g.VMOVAPS(cell, bound)
	g.VPERMI2PS(e.m.bounds[1], e.m.bounds[0], bound)
	g.VPERMI2D(e.m.below[1], e.m.below[0], cell)
	return e.next(cell, e.above(x, bound))
}

func (e *encoder4) second(x vec) vec {
	g := e.g
	cell, bound := g.ZMM(), g.ZMM()
	g.VPBROADCASTD(g.data("word", vCellMagic), cell)
	g.VFMADD231PS_RD_SAE(e.v.factor, x, cell)
	g.VPERMPS(e.v.bounds, cell, bound)
	return e.next(cell, e.above(x, bound))
}

func (e *encoder4) next(code vec, above mask) vec {
	e.g.VPADDD_BCST(e.g.data("word", 1), code, above, code)
	return code
}

// joined puts the codes of register i into byte i of each lane.
func (e *encoder4) joined(index [4]vec) vec {
	const parity = 0x96
	for i := 1; i < 4; i++ {
		e.g.VPSLLD(operand.Imm(uint64(8*i)), index[i], index[i])
	}
	rest := uint32(0x4b400000)
	rest ^= rest << 8
	e.g.VPTERNLOGD(operand.U8(parity), index[2], index[1], index[0])
	e.g.VPTERNLOGD_BCST(operand.U8(parity), e.g.data("word", rest), index[3], index[0])
	return index[0]
}
