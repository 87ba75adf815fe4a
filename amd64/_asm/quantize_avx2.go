package main

import "github.com/mmcloughlin/avo/operand"

// The layout of codebook.Cells.
const (
	cellShift = iota
	cellSmallest
	cellSide
	cellZero
	cellEntries
)

// encoder finds codes in a table of cells, 32 or 1 at a time.
//
// A group's cells and low bits go through memory, where they wait while the next group is
// divided; scalar loads take the entries, which on most processors beats a gather.
type encoder struct {
	g                              *generator
	entries                        gp // of the cell of zero, so that an upper part is an index
	shift                          vec
	magnitude, smallest, side, low vec
	scale                          vec
	waiting, next                  gp  // 32 indices, then 32 low parts
	ahead                          int // bytes that numbers are asked for ahead of their coding
}

const groupBytes = 256

// encoder prepares for the cells, with room for two groups.
func (g *generator) encoder(cells gp, groups mem) encoder {
	e := encoder{
		g: g, entries: g.GP64(), shift: g.XMM(),
		magnitude: g.broadcast(0x7fffffff), smallest: g.YMM(), side: g.YMM(), low: g.YMM(), scale: g.YMM(),
		waiting: g.GP64(), next: g.GP64(),
	}
	g.VMOVD(at(cells, 4*cellShift), e.shift)
	g.VPBROADCASTD(at(cells, 4*cellSmallest), e.smallest)
	g.VPBROADCASTD(at(cells, 4*cellSide), e.side)
	g.VPCMPEQD(e.low, e.low, e.low)
	g.VPSLLD(e.shift, e.low, e.low)
	g.VPXOR(e.magnitude, e.low, e.low)
	g.VPAND(e.magnitude, e.low, e.low)

	first := g.GP64()
	g.VPSRLD(e.shift, e.smallest.AsX(), e.scale.AsX())
	g.VMOVD(e.scale.AsX(), first.As32())
	g.SHLQ(operand.Imm(2), first)
	g.LEAQ(at(cells, 4*cellEntries), e.entries)
	g.SUBQ(first, e.entries)

	g.LEAQ(groups, e.waiting)
	g.LEAQ(groups.Offset(groupBytes), e.next)
	return e
}

// divide gives x divided by the scale its index and low part.
func (e encoder) divide(x vec) (index, low vec) {
	sign, size := e.g.YMM(), e.g.YMM()
	low, index = e.g.YMM(), e.g.YMM()
	e.g.VDIVPS(e.scale, x, x)
	e.g.VPSRAD(operand.Imm(31), x, sign)
	e.g.VPAND(e.magnitude, x, size)
	e.g.VPMAXSD(e.smallest, size, size)
	e.g.VPXOR(sign, size, low)
	e.g.VPAND(e.low, low, low)
	e.g.VPAND(e.side, sign, sign)
	e.g.VPSRLD(e.shift, size, index)
	e.g.VPADDD(sign, index, index)
	return index, low
}

// divideGroup leaves the group at x in e.next.
func (e encoder) divideGroup(x gp) {
	for i := 0; i < 128; i += 32 {
		index, low := e.divide(e.g.loadFloats(x, i, 8))
		e.g.VMOVDQU(index, at(e.next, i))
		e.g.VMOVDQU(low, at(e.next, 128+i))
	}
}

// lookup gives the codes of 8 numbers of the waiting group.
func (e encoder) lookup(offset int) vec {
	var second gp
	codes := e.g.gather(func(i int) mem {
		if i%2 == 0 {
			second = e.g.GP64()
			first := e.g.GP64()
			e.g.MOVQ(at(e.waiting, offset+4*i), second)
			e.g.MOVL(second.As32(), first.As32())
			e.g.SHRQ(operand.Imm(32), second)
			return mem{Base: e.entries, Index: first, Scale: 4}
		}
		return mem{Base: e.entries, Index: second, Scale: 4}
	})
	e.g.VPADDD(at(e.waiting, 128+offset), codes, codes)
	e.g.VPSRLD(e.shift, codes, codes)
	return codes
}

// storeGroup codes the waiting group.
func (e encoder) storeGroup(codes gp) {
	var pairs [2]vec
	for i := range pairs {
		a, b := e.lookup(64*i), e.lookup(64*i+32)
		e.g.VPACKUSDW(b, a, a)
		pairs[i] = a
	}
	e.g.VPACKUSWB(pairs[1], pairs[0], pairs[0])
	e.g.VPERMD(pairs[0], e.g.wide("order", 0, 4, 1, 5, 2, 6, 3, 7), pairs[0])
	e.g.VMOVDQU(pairs[0], at(codes, 0))
}

// encode codes n numbers, and moves all three.
func (e encoder) encode(codes, x, n gp) {
	tail := e.g.label("tail")
	e.g.CMPQ(n, operand.Imm(32))
	e.g.JB(operand.LabelRef(tail))
	e.divideGroup(x)
	e.g.SUBQ(operand.Imm(32), n)
	e.g.advance(x, 128)
	e.g.loop(n, 32, func() {
		e.g.XCHGQ(e.waiting, e.next)
		for line := 0; line < 128 && e.ahead > 0; line += 64 {
			e.g.PREFETCHT0(at(x, e.ahead+line))
		}
		e.divideGroup(x)
		e.storeGroup(codes)
		e.g.advance(x, 128)
		e.g.advance(codes, 32)
	})
	e.g.XCHGQ(e.waiting, e.next)
	e.storeGroup(codes)
	e.g.advance(codes, 32)
	e.g.Label(tail)
	e.g.loop(n, 1, func() {
		index, low := e.divide(e.g.loadFloats(x, 0, 1))
		cell := e.g.GP64()
		e.g.VMOVD(index.AsX(), cell.As32())
		e.g.VPADDD(mem{Base: e.entries, Index: cell, Scale: 4}, low.AsX(), low.AsX())
		e.g.VPSRLD(e.shift, low.AsX(), low.AsX())
		e.g.VPEXTRB(operand.Imm(0), low.AsX(), at(codes, 0))
		e.g.advance(x, 4)
		e.g.advance(codes, 1)
	})
}

// fill sets n bytes to the low byte of value, and moves codes.
func (g *generator) fill(codes, n, value gp) {
	y := g.YMM()
	g.VMOVD(value.As32(), y.AsX())
	g.VPBROADCASTB(y.AsX(), y)
	g.loop(n, 32, func() {
		g.VMOVDQU(y, at(codes, 0))
		g.advance(codes, 32)
	})
	g.loop(n, 1, func() {
		g.MOVB(value.As8(), at(codes, 0))
		g.advance(codes, 1)
	})
}

func quantizeAVX2(g *generator) {
	g.function("QuantizeAVX2", "(codes []uint8, scales []float32, x []float32, block int, divisor, least float32, cells []uint32) int", `
QuantizeAVX2 codes x in blocks, with a scale of the largest magnitude over the divisor, and
counts the blocks that are not finite. The cells are those of a codebook. No magnitude counts
as less than the least, which is 0 unless x is a part of a block. A call of 100,000 elements
takes about 100 µs.

	for b := range scales {
		values := x[b*block : min(b*block+block, len(x))]
		scale := max(least, AbsmaxAVX2(values))
		if scale-scale != 0 {
			scale = math.Float32frombits(0x7fc00000)
			poisoned++
		} else if larger := scale / divisor; larger-larger == 0 {
			scale = larger
		}
		scales[b] = scale
		for i, v := range values {
			codes[b*block+i] = book.Zero()
			if scale > 0 {
				codes[b*block+i] = book.Encode(v / scale)
			}
		}
	}
	return poisoned`)
	codes, scales, x := g.pointer("codes"), g.pointer("scales"), g.pointer("x")
	e := g.encoder(g.pointer("cells"), g.AllocLocal(2*groupBytes))
	e.ahead = prefetched
	g.quantizeBlocks(x, scales, e.scale, func(length gp) { e.encode(codes, x, length) }, func(length gp) {
		e.zeros(codes, x, length, g.resolve(g.Param("cells").Base()))
	})
	g.end()
}

// quantizeBlocks stores the scales of the blocks of the argument x, returns the number of
// those that are not finite and runs encode or, for a block that is zero or not finite,
// zeros, both of which move x. The largest magnitude of a block is sought before the one
// in front of it is coded.
func (g *generator) quantizeBlocks(x, scales gp, scale vec, encode, zeros func(length gp)) {
	poisoned, n := g.result(), g.length("x")
	g.MOVQ(operand.U32(0), poisoned)
	ahead, nextLength := g.AllocLocal(8), g.AllocLocal(8) // what is sought next
	largest := g.AllocLocal(8)
	again, finished, last := g.label("block"), g.label("finished"), operand.LabelRef(g.label("last"))
	seek := func(from gp) {
		left := g.GP64()
		g.MOVQ(g.resolve(g.Param("block")), left)
		g.CMPQ(left, n)
		g.CMOVQGT(n, left)
		g.SUBQ(left, n)
		g.MOVQ(left, nextLength)
		g.VMOVSS(g.absmax(from, left, g.resolve(g.Param("least"))), largest)
	}
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(finished))
	from := g.GP64()
	g.MOVQ(x, from)
	seek(from)
	g.MOVQ(from, ahead)

	g.Label(again)
	length, found := g.GP64(), g.XMM()
	g.MOVQ(nextLength, length)
	g.MOVQ(operand.U32(0), nextLength)
	g.VMOVSS(largest, found)
	g.TESTQ(n, n)
	g.JZ(last)
	g.MOVQ(ahead, from)
	seek(from)
	g.MOVQ(from, ahead)
	g.Label(string(last))
	g.scaleBlock(found, scale, scales, g.resolve(g.Param("divisor")), func() { g.INCQ(poisoned) },
		func() { encode(length) }, func() { zeros(length) })
	g.advance(scales, 4)
	g.CMPQ(nextLength, operand.Imm(0))
	g.JNE(operand.LabelRef(again))
	g.Label(finished)
}

// zeros sets n codes to that of zero, and moves codes and x.
func (e encoder) zeros(codes, x, n gp, cells mem) {
	zero := e.g.GP64()
	e.g.MOVQ(cells, zero)
	e.g.MOVL(at(zero, 4*cellZero), zero.As32())
	e.g.LEAQ(mem{Base: x, Index: n, Scale: 4}, x)
	e.g.fill(codes, n, zero)
}

// scaleBlock stores the scale of a block whose largest magnitude is known, and leaves it
// in every lane of scale for encode; zeros does a block whose scale is zero or not finite.
func (g *generator) scaleBlock(largest, scale vec, scales gp, divisor mem, poisoned, encode, zeros func()) {
	bits, quotient := g.GP32(), g.XMM()
	finite, zero, divided, done := g.label("finite"), g.label("zero"), g.label("divided"), g.label("done")
	g.VMOVD(largest.AsX(), bits)
	g.CMPL(bits, operand.U32(0x7f800000))
	g.JB(operand.LabelRef(finite))
	poisoned()
	g.MOVL(operand.U32(0x7fc00000), bits)
	g.Label(zero)
	g.MOVL(bits, at(scales, 0))
	zeros()
	g.JMP(operand.LabelRef(done))

	g.Label(finite)
	g.VDIVSS(divisor, largest.AsX(), quotient)
	g.VMOVD(quotient, bits)
	g.TESTL(bits, bits)
	g.JZ(operand.LabelRef(zero))
	g.CMPL(bits, operand.U32(0x7f800000))
	g.JB(operand.LabelRef(divided))
	g.VMOVAPS(largest.AsX(), quotient)
	g.Label(divided)
	g.VMOVSS(quotient, at(scales, 0))
	g.VBROADCASTSS(quotient, scale)
	encode()
	g.Label(done)
}
