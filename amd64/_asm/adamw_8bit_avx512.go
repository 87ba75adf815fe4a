package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// The values of codes by byte: four planes of a moment, the lowest byte first. Those of the
// first moment have the values of codes 127 to 254 but for the first, which is that of 255.
const (
	mPlane  = 128
	vPlane  = 256
	vPlanes = 4 * mPlane
)

func adamW8bitAVX512VBMI(g *generator) {
	for _, pair := range pairs {
		weights, gradients := pair[0], pair[1]
		name := fmt.Sprintf("AdamW8bitW%sG%sAVX512VBMI", weights.name, gradients.name)
		g.function(name, "(parameters [][11]uintptr, block int, planes *[1536]uint8, mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32, nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)", fmt.Sprintf(`
%s is a step of AdamW on parameters of %s weights and
%s gradients with moments in blocks of up to 4096 codes of codebook.Dynamic8() and
codebook.Dynamic8Unsigned(), whose thresholds it takes. A parameter is kernels' adamWCall. The
planes are the bytes of the codebooks' values, the lowest of all first: of codes 255, 128,
129, …, 254 and of all 256. The scalars are the first fields of reference.AdamWScalars, and
RootCorrection2 and its reciprocal are normal numbers. It adds to the counts the elements that
are not finite and, with skip, the elements and the blocks that it leaves as they were for it.
A call of 100,000 elements takes about 100 µs.

	for lo := 0; lo < len(w); lo += block { // of each parameter
		hi := min(lo+block, len(w))
		AdamWF32WF32GF32AVX512(w[lo:hi], g[lo:hi], m, v, s, nesterov, false) // m, v: decoded
		if skip && nonFinite > 0 {
			continue // and store nothing
		}
		QuantizeDynamic8AVX512(mCodes[lo:hi], mScales[lo/block:], m, block, mDivisor, mThresholds)
		QuantizeDynamic8UnsignedAVX512(vCodes[lo:hi], vScales[lo/block:], v, block, vDivisor, vThresholds)
	}`, name, weights.prose(), gradients.prose()))
		g.adamW8bit512(weights, gradients)
	}
}

// block8 holds what the passes over a block need.
type block8 struct {
	adamW512
	weights, gradients format
	bfloats            bfloats512
	scales             [2]vec
	coded              int // moments
	places             places
	largest            [2]vec // of the lanes of new moments
	zero, probed       vec    // probed becomes NaN where a new weight is not finite
	order              vec    // of codes
}

// adamW8bit512 passes over a block once to make the new values, in scratch, and once for
// each moment to code them.
func (g *generator) adamW8bit512(weights, gradients format) {
	length := g.AllocLocal(8)
	places := g.places("w", "g", "mCodes", "vCodes", "mScales", "vScales")
	var outOfLine []func()
	var encoders []decadeEncoder512
	parameter, finished := g.label("parameter"), g.label("end")
	g.Label(parameter)
	call := g.nextCall(finished)
	places.take(g, call)
	g.blocks(g.word(call, lengthOfCall), func(left gp) {
		g.MOVQ(left, length)
		b := block8{adamW512: g.adamW512(), weights: weights, gradients: gradients, bfloats: bfloats512{halves: halves{g: g}}, coded: 2, places: places}
		if weights == bfloat16s || gradients == bfloat16s {
			b.bfloats = g.bfloats512(true)
		}
		b.prepare()
		plain, updated := g.label("plain"), g.label("updated")
		g.CMPB(g.resolve(g.Param("nesterov")), operand.Imm(0))
		g.JE(operand.LabelRef(plain))
		b.pass(b.pointers(), g.reload(length), func(x values, of part) { b.fast(x, of, true) })
		g.JMP(operand.LabelRef(updated))
		g.Label(plain)
		b.pass(b.pointers(), g.reload(length), func(x values, of part) { b.fast(x, of, false) })
		g.Label(updated)

		bad, keep, next, notFinite := g.label("bad"), g.label("keep"), g.label("next"), g.unordered(b.probed)
		g.KORTESTW(notFinite, notFinite)
		g.JNZ(operand.LabelRef(bad))
		g.Label(keep)
		largest := [2]vec{g.largestLane512(b.largest[0]), g.largestLane512(b.largest[1])}
		b.storeWeights(g.reload(places["w"]), g.reload(g.resolve(g.Param("scratch"))), g.reload(length))
		for i, moment := range []string{"m", "v"} {
			x, codes, n := g.reload(g.resolve(g.Param("scratch"))), g.reload(places[moment+"Codes"]), g.reload(length)
			g.advance(x, (i+1)*scratchArray)
			e := g.decadeEncoder512(i == 0, g.number(moment+"Thresholds"))
			encoders = append(encoders, e)
			g.scaleBlock(largest[i], e.scale, g.reload(places[moment+"Scales"]), g.resolve(g.Param(moment+"Divisor")), func() {},
				func() { e.encode(codes, x, n) },
				func() {
					zero := g.GP64()
					g.MOVL(operand.U32(e.decades.zero()), zero.As32())
					g.fill512(codes, n, zero)
				})
		}
		g.Label(next)
		places.passBlock(g, length, weights, gradients)

		outOfLine = append(outOfLine, func() {
			g.Label(bad)
			counts, found := g.reload(g.resolve(g.Param("counts"))), g.GP64()
			g.XORL(found.As32(), found.As32())
			for _, z := range b.largest {
				g.VPXORD(z, z, z)
			}
			again, n := g.label("again"), g.reload(length)
			from := b.pointers()
			g.Label(again)
			lanes := g.atMost(n, 64)
			b.group(from, lanes, func(x values, of part) { b.careful(x, of, found) })
			b.advance(from, 64)
			g.SUBQ(lanes, n)
			g.JNZ(operand.LabelRef(again))
			g.ADDQ(found, at(counts, 0))
			g.TESTQ(found, found)
			g.JZ(operand.LabelRef(keep))
			g.CMPB(g.resolve(g.Param("skip")), operand.Imm(0))
			g.JE(operand.LabelRef(keep))
			g.ADDQ(g.reload(length), at(counts, 8))
			g.INCQ(at(counts, 16))
			g.JMP(operand.LabelRef(next))
		})
	})
	g.JMP(operand.LabelRef(parameter))
	g.Label(finished)
	g.end()
	for _, emit := range outOfLine {
		emit()
	}
	for _, e := range encoders {
		e.g.besides(e.beside)
	}
}

func (b *block8) prepare() {
	b.zero, b.probed, b.order = b.g.ZMM(), b.g.ZMM(), b.g.ZMM()
	b.g.VPXORD(b.zero, b.zero, b.zero)
	b.g.VPXORD(b.probed, b.probed, b.probed)
	b.g.VMOVDQU32(b.g.data("lanes", 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), b.order)
	for i, moment := range []string{"m", "v"} {
		b.scales[i], b.largest[i] = b.g.ZMM(), b.g.ZMM()
		b.g.VBROADCASTSS(at(b.g.reload(b.places[moment+"Scales"]), 0), b.scales[i])
		b.g.VPXORD(b.largest[i], b.largest[i], b.largest[i])
	}
}

type pointers8 struct {
	w, g            stream
	codes           [2]gp
	scratch, planes gp
}

func (b *block8) pointers() pointers8 {
	return pointers8{
		stream{b.weights, b.g.reload(b.places["w"])}, stream{b.gradients, b.g.reload(b.places["g"])},
		[2]gp{b.g.reload(b.places["mCodes"]), b.g.reload(b.places["vCodes"])}, b.g.number("scratch"), b.g.number("planes"),
	}
}

func (b *block8) advance(p pointers8, n int) {
	b.g.advance(p.w.p, n*b.weights.bytes)
	b.g.advance(p.g.p, n*b.gradients.bytes)
	b.g.advance(p.codes[0], n)
	b.g.advance(p.codes[1], n)
	b.g.advance(p.scratch, 4*n)
}

// pass makes new values of n elements, 64 at a time.
func (b *block8) pass(p pointers8, n gp, update func(values, part)) {
	b.g.loop(n, 64, func() {
		for _, s := range []stream{p.w, p.g} {
			for offset := 0; offset < 64*s.bytes; offset += 64 {
				b.g.PREFETCHT0(at(s.p, prefetch8bit*s.bytes+offset))
			}
		}
		for _, codes := range p.codes {
			b.g.PREFETCHT0(at(codes, prefetch8bit))
		}
		b.group(p, nil, update)
		b.advance(p, 64)
	})
	done := operand.LabelRef(b.g.label("done"))
	b.g.TESTQ(n, n)
	b.g.JZ(done)
	b.group(p, n, update)
	b.g.Label(string(done))
}

const prefetch8bit = 512

// values are those of 32 elements, old and then new, and the place of their new numbers.
type values struct {
	w, g, m, v pair512
	scratch    gp
	apart      int // bytes from one array of the scratch to the next
	first      int // of the four registers of a group
}

// group makes new values of 64 elements, or of the first n, in scratch.
func (b *block8) group(p pointers8, n gp, update func(values, part)) {
	of, bits := part{registers: 4}, b.g.GP64()
	if n != nil {
		b.g.MOVQ(operand.I64(-1), bits)
		b.g.BZHIQ(n, bits, bits)
	}
	b.decode(p, n != nil, bits)
	for i := 0; i < 4; i += 2 {
		if n != nil {
			of.lanes = b.g.pairLanes(bits, i)
		}
		x := values{scratch: p.scratch, apart: scratchArray, first: i, w: b.load(p.w, i, of), g: b.load(p.g, i, of)}
		for j := range 2 {
			x.m[j], x.v[j] = b.g.ZMM(), b.g.ZMM()
			b.g.VMULPS(x.place(1, j), b.scales[0], x.m[j])
			b.g.VMULPS(x.place(2, j), b.scales[1], x.v[j])
		}
		update(x, of)
	}
}

// pairLanes are the lanes of a group's registers i and i+1, by the lowest of the bits, which it
// drops.
func (g *generator) pairLanes(bits gp, i int) []mask {
	lanes := make([]mask, 4)
	for j := range 2 {
		lanes[i+j] = g.K()
		g.KMOVW(bits.As32(), lanes[i+j])
		g.SHRQ(operand.Imm(lanes512), bits)
	}
	return lanes
}

// place is that of a register in an array of the scratch.
func (x values) place(array, i int) mem {
	return at(x.scratch, array*x.apart+64*(x.first+i))
}

func (b *block8) load(s stream, first int, of part) pair512 {
	if of.whole() {
		return s.load32(b.bfloats, first)
	}
	return pair512{s.load16(b.g, first, of), s.load16(b.g, first+1, of)}
}

// decode leaves the values of 64 codes in scratch, or of those whose bits are set.
func (b *block8) decode(p pointers8, partial bool, bits gp) {
	for moment, decode := range []func(planes gp, codes vec) [4]vec{b.signedBytes, b.unsignedBytes} {
		codes := b.g.ZMM()
		if partial {
			k := b.g.K()
			b.g.KMOVQ(bits, k)
			b.g.VMOVDQU8_Z(at(p.codes[moment], 0), k, codes)
			b.g.VPERMD(codes, b.order, codes)
		} else {
			b.g.VPERMD(at(p.codes[moment], 0), b.order, codes)
		}
		for i, z := range b.joined(decode(p.planes, codes)) {
			b.g.VMOVUPS(z, at(p.scratch, (moment+1)*scratchArray+64*i))
		}
	}
}

// signedBytes are the bytes of the values of codes, the lowest first: of their distances
// from 127, which are those of magnitudes, with the sign, but for code 127 itself.
func (b *block8) signedBytes(planes gp, codes vec) (bytes [4]vec) {
	magnitude, sign, nonzero := b.g.ZMM(), b.g.ZMM(), b.g.K()
	b.g.VPSUBB(b.g.broadcast512(0x7f7f7f7f), codes, magnitude)
	b.g.VPABSB(magnitude, magnitude)
	b.g.VPTESTMB(magnitude, magnitude, nonzero)
	b.g.VPANDND_BCST(b.g.data("word", 0x80808080), codes, sign)
	for i := range bytes {
		bytes[i] = b.g.ZMM()
		b.g.VMOVDQU64(at(planes, mPlane*i), bytes[i])
		b.g.VPERMT2B_Z(at(planes, mPlane*i+64), magnitude, nonzero, bytes[i])
	}
	b.g.VPADDB(sign, bytes[3], nonzero, bytes[3])
	return bytes
}

func (b *block8) unsignedBytes(planes gp, codes vec) (bytes [4]vec) {
	high := b.g.K()
	b.g.VPMOVB2M(codes, high)
	for i := range bytes {
		half := func(offset int) vec {
			z := b.g.ZMM()
			b.g.VMOVDQU64(at(planes, vPlanes+vPlane*i+offset), z)
			b.g.VPERMT2B(at(planes, vPlanes+vPlane*i+offset+64), codes, z)
			return z
		}
		bytes[i] = half(0)
		b.g.VMOVDQU8(half(128), high, bytes[i])
	}
	return bytes
}

// joined makes numbers of their bytes.
func (b *block8) joined(bytes [4]vec) (z [4]vec) {
	pairs := func(x, y vec, low, high func(...operand.Op)) (vec, vec) {
		l, h := b.g.ZMM(), b.g.ZMM()
		low(y, x, l)
		high(y, x, h)
		return l, h
	}
	lower0, lower1 := pairs(bytes[0], bytes[1], b.g.VPUNPCKLBW, b.g.VPUNPCKHBW)
	upper0, upper1 := pairs(bytes[2], bytes[3], b.g.VPUNPCKLBW, b.g.VPUNPCKHBW)
	z[0], z[1] = pairs(lower0, upper0, b.g.VPUNPCKLWD, b.g.VPUNPCKHWD)
	z[2], z[3] = pairs(lower1, upper1, b.g.VPUNPCKLWD, b.g.VPUNPCKHWD)
	return z
}

// fast is the step where all is finite; else probed becomes NaN.
func (b *block8) fast(x values, of part, nesterov bool) {
	b.update(x.w, x.g, x.m, x.v, nesterov)
	for j := range 2 {
		if !of.whole() {
			for _, z := range []vec{x.w[j], x.m[j], x.v[j]} {
				b.g.VMOVAPS_Z(z, of.lanes[x.first+j], z)
			}
		}
		b.g.VFMADD231PS(b.zero, x.w[j], b.probed)
		for i, z := range []vec{x.m[j], x.v[j]}[:b.coded] {
			const largerMagnitude = 0xb
			b.g.VRANGEPS(operand.Imm(largerMagnitude), z, b.largest[i], b.largest[i])
			b.g.VMOVUPS(z, x.place(i+1, j))
		}
	}
	if b.weights == bfloat16s {
		b.bfloats.store(x.w, at(x.scratch, 32*x.first))
		return
	}
	for j := range 2 {
		b.g.VMOVUPS(x.w[j], x.place(0, j))
	}
}

// careful is the step of anything; it adds to found what is not finite.
func (b *block8) careful(x values, of part, found gp) {
	magnitude := b.g.broadcast512(0x7fffffff)
	for j := range 2 {
		b.carefulUpdate(x.w[j], x.g[j], x.m[j], x.v[j], b.g.flag("nesterov"))
		bad, count := b.g.notFinite(x.w[j], x.v[j]), b.g.GP64()
		b.g.KANDW(of.lanes[x.first+j], bad, bad)
		b.g.KMOVW(bad, count.As32())
		b.g.POPCNTQ(count, count)
		b.g.ADDQ(count, found)
		for i, z := range []vec{x.m[j], x.v[j]}[:b.coded] {
			b.g.VMOVUPS(z, x.place(i+1, j))
			b.g.VPANDD_Z(magnitude, z, of.lanes[x.first+j], z)
			b.g.VPMAXUD(z, b.largest[i], b.largest[i])
		}
		if b.weights == bfloat16s {
			y := b.g.rounding512().nearest(x.w[j])
			b.g.VPSRLD(operand.Imm(16), y, y)
			b.g.VPMOVDW(y, at(x.scratch, 32*(x.first+j)))
		} else {
			b.g.VMOVUPS(x.w[j], x.place(0, j))
		}
	}
}

// storeWeights copies the weights of n elements, which have the place of float32 numbers in
// scratch.
func (b *block8) storeWeights(w, scratch, n gp) {
	b.g.loop(n, 64, func() {
		for offset := 0; offset < 64*b.weights.bytes; offset += 64 {
			z := b.g.ZMM()
			b.g.VMOVDQU64(at(scratch, offset), z)
			b.g.VMOVDQU64(z, at(w, offset))
		}
		b.g.advance(w, 64*b.weights.bytes)
		b.g.advance(scratch, 64*4)
	})
	bits := b.g.GP64()
	b.g.MOVQ(operand.I64(-1), bits)
	b.g.BZHIQ(n, bits, bits)
	lanes := 64 / b.weights.bytes
	for offset := 0; offset < 64*b.weights.bytes; offset += 64 {
		z, k := b.g.ZMM(), b.g.K()
		b.g.VMOVDQU64(at(scratch, offset), z)
		if b.weights == bfloat16s {
			b.g.KMOVD(bits.As32(), k)
			b.g.VMOVDQU16(z, k, at(w, offset))
		} else {
			b.g.KMOVW(bits.As32(), k)
			b.g.VMOVDQU32(z, k, at(w, offset))
		}
		b.g.SHRQ(operand.Imm(uint64(lanes)), bits)
	}
}
