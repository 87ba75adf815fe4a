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
		g.function(name, "(parameters [][11]uintptr, block int, tables *[160]uint32, mDivisor, vDivisor float32, s *[11]float32, nesterov, skip, highFirst bool, scratch *[7216]float32, counts *[3]int64)", fmt.Sprintf(`
%s is a step of AdamW on parameters of %s weights and
%s gradients with moments in blocks of up to 1024 codes of codebook.DE4() and
codebook.Linear4(), whose tables are kernels' nibbleTables. A parameter is kernels'
adamWCall; a block that is not its last has an even length. The scalars are the first fields of reference.AdamWScalars, and RootCorrection2 and its
reciprocal are normal numbers. It adds to the counts the elements that are not finite and,
with skip, the elements and the blocks that it leaves as they were for it. A call of 100,000
elements takes about 100 µs.

	for lo := 0; lo < n; lo += block { // of each parameter
		hi := min(lo+block, n)
		AdamWF32WF32GF32AVX512(w[lo:hi], g[lo:hi], m, v, s, nesterov, false) // m, v: decoded
		if skip && nonFinite > 0 {
			continue // and store nothing
		}
		Quantize4AVX512(mCodes[lo/2:], mScales[lo/block:], m, block, mDivisor, mThresholds, order, 7, highFirst)
		Quantize4AVX512(vCodes[lo/2:], vScales[lo/block:], v, block, vDivisor, vThresholds, order, 0, highFirst)
	}`, name, weights.prose(), gradients.prose()))
		g.adamW4bit512(weights, gradients, false)

		vector, name := name, fmt.Sprintf("AdamW4bitFactoredW%sG%sAVX512", weights.name, gradients.name)
		g.function(name, "(parameters [][11]uintptr, v []float32, block int, tables *[160]uint32, mDivisor float32, s *[11]float32, nesterov, skip, highFirst bool, scratch *[7216]float32, counts *[3]int64)", fmt.Sprintf(`
%s is %s with the new second
moments of all parameters, one after another, instead of codes of old ones.`, name, vector))
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
	of     mem // its scratch
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

// adamW4bit512 steps a block into scratch and then codes the block before it, of this
// parameter or the one before, while whose moments the divisions of the new one are under
// way.
func (g *generator) adamW4bit512(weights, gradients format, factored bool) {
	moments := []string{"m", "v"}
	if factored {
		moments = moments[:1]
	}
	places := g.places("w", "g", "mCodes", "mScales")
	if factored {
		places["v"] = g.resolve(g.Param("v").Base())
	} else {
		places["vCodes"], places["vScales"] = g.AllocLocal(8), g.AllocLocal(8)
	}
	length, kept := g.AllocLocal(8), g.AllocLocal(8) // kept is 0 of a block that is left as it was
	scratch := g.AllocLocal(8)                       // of the block; the one before has the other half
	before := stepped4{length: g.AllocLocal(8)}
	for range moments {
		before.codes, before.scales = append(before.codes, g.AllocLocal(8)), append(before.scales, g.AllocLocal(8))
	}
	g.MOVQ(operand.U32(0), before.length)
	g.MOVQ(g.reload(g.resolve(g.Param("scratch"))), scratch)
	reciprocal, one := g.AllocLocal(8), g.XMM()
	g.VMOVSS(g.data("word", math.Float32bits(1)), one)
	g.VDIVSS(at(g.number("s"), 4*rootCorrection2), one, one)
	g.VMOVSS(one, reciprocal)
	end, tables := g.reload(g.resolve(g.Param("scratch"))), g.number("tables")
	for i := range 2 {
		z := g.ZMM()
		g.VMOVUPS(at(tables, mCodesBelow+64*i), z)
		g.VMOVUPS(z, at(end, scratchEnd4+codesBelow+64*i))
	}

	var outOfLine []func()
	otherScratch := func() gp {
		other := g.reload(g.resolve(g.Param("scratch")))
		g.SHLQ(operand.Imm(1), other)
		g.ADDQ(operand.U32(scratchHalf), other)
		g.SUBQ(scratch, other)
		return other
	}
	codesBefore := func() (codes []gp) {
		for i := range moments {
			codes = append(codes, g.reload(before.codes[i]))
		}
		return codes
	}
	bound := func(e *encoder4) {
		for i, moment := range moments {
			scale := g.ZMM()
			g.VBROADCASTSS(at(g.reload(before.scales[i]), 0), scale)
			e.prepare(moment, scale)
		}
	}
	ifUnusual := func(to string) {
		for i := range moments {
			bits := g.GP32()
			g.MOVL(at(g.reload(before.scales[i]), 0), bits)
			g.SUBL(operand.U32(math.Float32bits(leastScale4)), bits)
			g.CMPL(bits, operand.U32(math.Float32bits(mostScale4)-math.Float32bits(leastScale4)))
			g.JAE(operand.LabelRef(to))
		}
	}
	encode := func() {
		none, unusual, coded := g.label("none"), g.label("unusual"), g.label("coded")
		g.CMPQ(before.length, operand.Imm(0))
		g.JE(operand.LabelRef(none))
		e := g.encoder4(moments)
		e.at = g.reload(g.resolve(g.Param("scratch")))
		g.advance(e.at, scratchEnd4)
		ifUnusual(unusual)
		bound(e)
		e.groups(codesBefore(), otherScratch(), g.reload(before.length), nil)
		g.Label(coded)
		g.MOVQ(operand.U32(0), before.length)
		g.Label(none)
		outOfLine = append(outOfLine, func() {
			g.Label(unusual)
			var adjust []func(vec)
			for i, moment := range moments {
				adjust = append(adjust, e.unusual(moment, g.reload(before.scales[i])))
			}
			e.groups(codesBefore(), otherScratch(), g.reload(before.length), adjust)
			g.JMP(operand.LabelRef(coded))
		})
	}
	parameter, finished := g.label("parameter"), g.label("end")
	g.Label(parameter)
	from := g.nextCall(finished)
	places.take(g, from)
	g.blocks(g.word(from, lengthOfCall), func(left gp) {
		g.MOVQ(left, length)
		g.MOVQ(left, kept)
		apart, begun := g.label("apart"), g.label("begun")
		g.CMPQ(before.length, left)
		g.JNE(operand.LabelRef(apart))
		g.TESTQ(operand.U32(63), left)
		g.JNZ(operand.LabelRef(apart))
		ifUnusual(apart)
		g.Label(begun)
		outOfLine = append(outOfLine, func() {
			g.Label(apart)
			encode()
			g.JMP(operand.LabelRef(begun))
		})
		b := block4{block8: block8{weights: weights, gradients: gradients, bfloats: bfloats512{halves: halves{g: g}}, coded: len(moments), places: places}, of: scratch}
		b.adamW512 = adamW512{g: g, from: g.number("s"), reciprocal2: g.ZMM(), factored: factored}
		g.VBROADCASTSS(reciprocal, b.reciprocal2)
		inRegisters := []int{rootCorrection2, stepSize, epsilon, beta1, oneMinusBeta1, gradScale, beta2, oneMinusBeta2, decay}
		if weights == bfloat16s || gradients == bfloat16s {
			inRegisters = inRegisters[:4]
		}
		for _, i := range inRegisters {
			b.scalars[i] = g.ZMM()
			g.VBROADCASTSS(b.scalar(i), b.scalars[i])
		}
		if weights == bfloat16s || gradients == bfloat16s {
			b.bfloats = g.bfloats512(true)
		}
		b.prepare(moments)
		updated := g.label("updated")
		pass := func(pass func(update func(values, part))) {
			plain := g.label("plain")
			g.CMPB(g.resolve(g.Param("nesterov")), operand.Imm(0))
			g.JE(operand.LabelRef(plain))
			pass(func(x values, of part) { b.fast(x, of, true) })
			g.JMP(operand.LabelRef(updated))
			g.Label(plain)
			pass(func(x values, of part) { b.fast(x, of, false) })
		}
		alone := g.label("alone")
		g.CMPQ(before.length, operand.Imm(0))
		g.JE(operand.LabelRef(alone))
		e := g.encoder4(moments)
		e.at = g.reload(g.resolve(g.Param("scratch")))
		g.advance(e.at, scratchEnd4)
		bound(e)
		pass(func(update func(values, part)) {
			codes, scratch := codesBefore(), otherScratch()
			from, n := b.pointers(), g.reload(length)
			b.loop(from, n, func(i int, x values, of part) {
				update(x, of)
				if i < len(moments) {
					e.group(i, codes[i], scratch)
				}
			}, func() {
				g.advance(scratch, 256)
				for _, p := range codes {
					g.advance(p, 32)
				}
			})
		})
		g.JMP(operand.LabelRef(updated))
		g.Label(alone)
		pass(func(update func(values, part)) { b.pass(b.pointers(), g.reload(length), update) })
		g.Label(updated)

		bad, keep, next, notFinite := g.label("bad"), g.label("keep"), g.label("next"), g.unordered(b.probed)
		g.KORTESTW(notFinite, notFinite)
		g.JNZ(operand.LabelRef(bad))
		g.Label(keep)
		for i, largest := range b.largestLanes() {
			outOfLine = append(outOfLine, g.storeScale4(moments[i], places[moments[i]+"Scales"], largest))
		}
		b.storeWeights(g.reload(places["w"]), g.reload(scratch), g.reload(length))
		g.Label(next)
		moved := g.reload(kept)
		g.MOVQ(moved, before.length)
		for i, moment := range moments {
			g.MOVQ(g.reload(places[moment+"Codes"]), before.codes[i])
			g.MOVQ(g.reload(places[moment+"Scales"]), before.scales[i])
		}
		g.MOVQ(otherScratch(), scratch)
		moved = g.reload(length)
		for i, slice := range []string{"w", "g"} {
			bytes := g.GP64()
			g.IMUL3Q(operand.Imm(uint64([]format{weights, gradients}[i].bytes)), moved, bytes)
			g.ADDQ(bytes, places[slice])
		}
		if factored {
			bytes := g.GP64()
			g.IMUL3Q(operand.Imm(4), moved, bytes)
			g.ADDQ(bytes, places["v"])
		}
		g.SHRQ(operand.Imm(1), moved)
		for _, moment := range moments {
			g.ADDQ(moved, places[moment+"Codes"])
			g.ADDQ(operand.Imm(4), places[moment+"Scales"])
		}

		outOfLine = append(outOfLine, func() {
			g.Label(bad)
			counts, found := g.reload(g.resolve(g.Param("counts"))), g.GP64()
			g.XORL(found.As32(), found.As32())
			for i := range moments {
				g.VPXORD(b.largest[i], b.largest[i], b.largest[i])
			}
			again, n := g.label("again"), g.reload(length)
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
			g.ADDQ(g.reload(length), at(counts, 8))
			g.INCQ(at(counts, 16))
			g.MOVQ(operand.U32(0), kept)
			g.JMP(operand.LabelRef(next))
		})
	})
	g.JMP(operand.LabelRef(parameter))
	g.Label(finished)
	encode()
	g.end()
	g.besides(&outOfLine)
}

// stepped4 is the place of what is known of a block that is to be coded: its length, 0 where
// there is none, and where its codes and scales are.
type stepped4 struct {
	length        mem
	codes, scales []mem
}

// The scratch holds three arrays of a block, and those of the one before. Usual blocks of all
// have other places in a page of 4096 bytes, or loads would wait for the stores of others.
const (
	scratchArray4 = 4 * (1024 + 160)
	scratchHalf   = 3 * scratchArray4
)

// largestLanes are the largest lanes of both moments, or of the first, in lane 0.
func (b *block4) largestLanes() []vec {
	if b.coded == 1 {
		return []vec{b.g.largestLane512(b.largest[0])}
	}
	halves, other := b.g.ZMM(), b.g.ZMM()
	const lowerHalves, upperHalves = 0x44, 0xee
	b.g.VSHUFI64X2(operand.Imm(lowerHalves), b.largest[1], b.largest[0], halves)
	b.g.VSHUFI64X2(operand.Imm(upperHalves), b.largest[1], b.largest[0], other)
	b.g.VPMAXUD(other, halves, halves)
	b.g.VPERMQ(operand.Imm(0x4e), halves, other)
	b.g.VPMAXUD(other, halves, halves)
	for _, order := range []uint64{0x4e, 0xb1} {
		b.g.VPSHUFD(operand.Imm(order), halves, other)
		b.g.VPMAXUD(other, halves, halves)
	}
	second := b.g.YMM()
	b.g.VEXTRACTI64X4(operand.Imm(1), halves, second)
	return []vec{halves.AsX().(vec), second.AsX().(vec)}
}

// storeScale4 makes and stores a moment's scale, as scaleBlock does.
func (g *generator) storeScale4(moment string, place mem, largest vec) (outOfLine func()) {
	bits, scales, divisor := g.GP32(), g.GP64(), g.resolve(g.Param(moment+"Divisor"))
	divide, known := g.label("divide"), g.label("scale")
	g.MOVQ(place, scales)
	g.VMOVD(largest, bits)
	g.CMPL(divisor, operand.U32(math.Float32bits(1)))
	g.JNE(operand.LabelRef(divide))
	g.CMPL(bits, operand.U32(0x7f800000))
	g.JAE(operand.LabelRef(divide))
	g.Label(known)
	g.MOVL(bits, at(scales, 0))
	return func() {
		g.Label(divide)
		quotient := g.XMM()
		g.VDIVSS(divisor, largest, quotient)
		g.VMOVD(quotient, bits)
		g.CMPL(bits, operand.U32(0x7f800000))
		g.JB(operand.LabelRef(known))
		g.VMOVD(largest, bits)
		g.CMPL(bits, operand.U32(0x7f800000))
		g.JB(operand.LabelRef(known))
		g.MOVL(operand.U32(0x7fc00000), bits)
		g.JMP(operand.LabelRef(known))
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
		b.g.VBROADCASTSS(at(b.g.reload(b.places[moment+"Scales"]), 0), b.tables[i])
		b.g.VMULPS(at(tables, []int{mValues, vValues}[i]), b.tables[i], b.tables[i])
		b.g.VPXORD(b.largest[i], b.largest[i], b.largest[i])
	}
}

// pointers4 are those of a pass over a block.
type pointers4 struct {
	w, g    stream
	codes   []gp
	v       gp // in place of codes
	scratch gp
}

func (b *block4) pointers() pointers4 {
	p := pointers4{w: stream{b.weights, b.g.reload(b.places["w"])}, g: stream{b.gradients, b.g.reload(b.places["g"])}, codes: []gp{b.g.reload(b.places["mCodes"])}, scratch: b.g.GP64()}
	b.g.MOVQ(b.of, p.scratch)
	if b.factored {
		p.v = b.g.reload(b.places["v"])
	} else {
		p.codes = append(p.codes, b.g.reload(b.places["vCodes"]))
	}
	return p
}

// advance moves by 64 elements all but the codes.
func (b *block4) advance(p pointers4) {
	b.g.advance(p.w.p, 64*b.weights.bytes)
	b.g.advance(p.g.p, 64*b.gradients.bytes)
	b.g.advance(p.scratch, 64*4)
	if b.factored {
		b.g.advance(p.v, 64*4)
	}
}

// loop makes new values of 64 elements of n at a time.
func (b *block4) loop(p pointers4, n gp, update func(i int, x values, of part), advance func()) {
	b.g.loop(n, 64, func() {
		for _, s := range []stream{p.w, p.g} {
			for offset := 0; offset < 64*s.bytes; offset += 64 {
				b.g.PREFETCHT0(at(s.p, 2*prefetch8bit*s.bytes+offset))
			}
		}
		for _, codes := range p.codes {
			b.g.PREFETCHT0(at(codes, prefetch8bit))
		}
		pair := 0
		b.group(p, nil, func(x values, of part) {
			update(pair, x, of)
			pair++
		})
		b.advance(p)
		for _, codes := range p.codes {
			b.g.advance(codes, 32)
		}
		advance()
	})
}

// pass makes new values of n elements.
func (b *block4) pass(p pointers4, n gp, update func(values, part)) {
	b.loop(p, n, func(_ int, x values, of part) { update(x, of) }, func() {})
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
			of.lanes = b.g.pairLanes(bits, i)
		}
		x := values{scratch: p.scratch, apart: scratchArray4, first: i, w: b.load(p.w, i, of), g: b.load(p.g, i, of)}
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

// encoder4 codes both moments of a block. What it needs is in memory, since a step goes on
// meanwhile that needs most registers.
type encoder4 struct {
	nibbles512
	moments []string
	at      gp  // the end of the scratch
	turned  mem // 32 where codes of neighbours are the other way round in a byte, or else 0
}

// Places at the end of the scratch: of each moment the bounds of its cells and what numbers
// are multiplied by to find them, and the codes below bounds of the first moment.
const (
	mBounds     = 0
	vBounds     = 128
	mFactor     = 192
	vFactor     = 256
	codesBelow  = 320
	scratchEnd4 = 2 * scratchHalf
)

func (g *generator) encoder4(moments []string) *encoder4 {
	e := &encoder4{nibbles512: nibbles512{g: g}, moments: moments, turned: g.AllocLocal(8)}
	high := g.GP64()
	g.MOVBLZX(g.resolve(g.Param("highFirst")), high.As32())
	g.SHLQ(operand.Imm(5), high)
	g.MOVQ(high, e.turned)
	return e
}

// prepare makes bounds of a moment's scale; an estimate of its reciprocal is enough for cells.
func (e *encoder4) prepare(moment string, scale vec) {
	e.scale = scale
	tables := e.g.number("tables")
	prepare := func(times float32, factors, thresholds, halfSteps, bounds, count int) {
		factor := e.g.ZMM()
		e.g.VRCP14SS(scale.AsX(), scale.AsX(), factor.AsX())
		e.g.VMULSS(e.g.data("word", math.Float32bits(times)), factor.AsX(), factor.AsX())
		e.g.VBROADCASTSS(factor.AsX(), factor)
		e.g.VMOVUPS(factor, at(e.at, factors))
		for i := range count {
			t, b := e.g.ZMM(), e.g.ZMM()
			e.g.VMULPS(at(tables, halfSteps+64*i), scale, b)
			e.g.VMOVUPS(at(tables, thresholds+64*i), t)
			e.g.VFMADD231PS_RD_SAE(scale, t, b)
			e.g.VMOVUPS(b, at(e.at, bounds+64*i))
		}
	}
	if moment == "m" {
		prepare(mCellFactor, mFactor, mThresholds, mHalfSteps, mBounds, 2)
	} else {
		prepare(vCellFactor, vFactor, vThresholds, vHalfSteps, vBounds, 1)
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
func (e *encoder4) groups(codes []gp, scratch, n gp, adjust []func(x vec)) {
	g := e.g
	group := func(lanes []mask, store func(i int, pairs vec)) {
		for i := range e.moments {
			store(i, e.pairsOf(i, scratch, func(x vec, j int, from mem) {
				if lanes == nil {
					g.VMOVUPS(from, x)
				} else {
					g.VMOVUPS_Z(from, lanes[j], x)
				}
				if adjust != nil {
					adjust[i](x)
				}
			}))
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

// group codes 64 numbers of moment i.
func (e *encoder4) group(i int, codes, scratch gp) {
	pairs := e.pairsOf(i, scratch, func(x vec, _ int, from mem) { e.g.VMOVUPS(from, x) })
	e.g.VMOVDQU64(pairs.AsY(), at(codes, 0))
}

// pairsOf are the codes of 64 numbers of moment i, which load loads.
func (e *encoder4) pairsOf(i int, scratch gp, load func(x vec, register int, from mem)) vec {
	var index [4]vec
	for j := range index {
		x := e.g.ZMM()
		load(x, j, at(scratch, (i+1)*scratchArray4+64*j))
		if e.moments[i] == "m" {
			index[j] = e.first(x)
		} else {
			index[j] = e.second(x)
		}
	}
	return e.inOrder(e.joined(index))
}

// first gives the codes of first moments, second those of second ones, in the low bytes of
// lanes that hold 1.5*2^23 otherwise.
func (e *encoder4) first(x vec) vec {
	g := e.g
	cell, sign, bound := g.ZMM(), g.ZMM(), g.ZMM()
	g.VMULPS(at(e.at, mFactor), x, cell)
	g.VFMADD213PS_BCST(g.data("word", math.Float32bits(mCellOffset)), cell, cell)
	g.VPSRLD(operand.Imm(23), cell, cell)
	g.VPSRLD(operand.Imm(27), x, sign)
	const thirdSelectsSecond = 0xd8
	g.VPTERNLOGD_BCST(operand.U8(thirdSelectsSecond), g.data("word", 16), sign, cell)
	positive, codes := g.ZMM(), g.ZMM()
	g.VMOVUPS(at(e.at, mBounds), positive)
	g.VMOVAPS(cell, bound)
	g.VPERMI2PS(at(e.at, mBounds+64), positive, bound)
	above := e.above(x, bound)
	g.VMOVDQU32(at(e.at, codesBelow), codes)
	g.VPERMI2D(at(e.at, codesBelow+64), codes, cell)
	return e.next(cell, above)
}

func (e *encoder4) second(x vec) vec {
	g := e.g
	cell, bound := g.ZMM(), g.ZMM()
	g.VMOVUPS(at(e.at, vFactor), bound)
	g.VPBROADCASTD(g.data("word", vCellMagic), cell)
	g.VFMADD231PS_RD_SAE(bound, x, cell)
	g.VPERMPS(at(e.at, vBounds), cell, bound)
	return e.next(cell, e.above(x, bound))
}

func (e *encoder4) next(code vec, above mask) vec {
	e.g.VPADDD_BCST(e.g.data("word", 1), code, above, code)
	return code
}

// inOrder is nibbles512's pairs.
func (e *encoder4) inOrder(y vec) vec {
	g := e.g
	shifted, order := g.ZMM(), g.ZMM()
	g.VPRORVQ_BCST(e.turned, y, y)
	g.VPSRLQ(operand.Imm(28), y, shifted)
	g.VPORQ(shifted, y, y)
	g.VPMOVQD(y, y.AsY())
	g.VMOVDQU32(g.data("lanes", 0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), order)
	var turn []uint32
	for range 4 {
		turn = append(turn, 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703)
	}
	g.VPSHUFB(g.data("turned", turn...), y, y)
	g.VPERMD(y, order, y)
	return y
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
