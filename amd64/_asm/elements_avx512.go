package main

import "github.com/mmcloughlin/avo/operand"

// part is the 32-bit lanes of some consecutive registers that a loop body works on: all of
// them, or those under masks.
type part struct {
	registers int
	lanes     []mask // of each register; none for all lanes
	words     []mask // of each pair of registers, for the half-words that they become
}

const lanes512 = 16

// cursor is a pointer that moves over elements, and the bytes of one.
type cursor struct {
	gp
	bytes int
}

// elements512 runs body over n elements: on many registers at a time, on few, and on the
// rest of what few hold, under masks.
func (g *generator) elements512(n gp, many, few int, body func(part), cursors ...cursor) {
	if many > few {
		g.whole512(n, many, body, cursors)
	}
	g.whole512(n, few, body, cursors)
	done := operand.LabelRef(g.label("done"))
	g.TESTQ(n, n)
	g.JZ(done)
	body(g.firstElements(n, few))
	g.Label(string(done))
}

// whole512 runs body on a number of registers while there are elements for them.
func (g *generator) whole512(n gp, registers int, body func(part), cursors []cursor) {
	g.loop(n, lanes512*registers, func() {
		body(part{registers: registers})
		g.advanceAll(cursors, lanes512*registers)
	})
}

// streamed512 runs body over as many of the n elements as it can if the argument stream is
// set, with the first cursor at multiples of 64 bytes and stores that go past the caches.
// The elements in front of them are head's, which takes few registers.
func (g *generator) streamed512(n gp, many, few int, head, body func(part), cursors ...cursor) {
	plain := operand.LabelRef(g.label("plain"))
	g.CMPB(g.resolve(g.Param("stream")), operand.U8(0))
	g.JE(plain)
	front := g.GP64()
	g.MOVQ(cursors[0].gp, front)
	g.NEGQ(front)
	g.ANDQ(operand.Imm(63), front)
	g.SHRQ(operand.Imm(uint64(cursors[0].bytes/2)), front)
	g.CMPQ(front, n)
	g.JA(plain)
	head(g.firstElements(front, few))
	for _, c := range cursors {
		g.LEAQ(mem{Base: c.gp, Index: front, Scale: uint8(c.bytes)}, c.gp)
	}
	g.SUBQ(front, n)
	g.TESTQ(operand.U32(63), cursors[0].gp) // an element may not be at a multiple of its size
	g.JNZ(plain)
	g.whole512(n, many, body, cursors)
	g.SFENCE()
	g.Label(string(plain))
}

// firstElements is the first n of the elements that some registers hold, up to four.
func (g *generator) firstElements(n gp, registers int) part {
	p := part{registers: registers}
	bits := g.GP64()
	g.MOVQ(operand.I64(-1), bits)
	g.BZHIQ(n, bits, bits)
	for i := range registers {
		if i%2 == 0 && i+1 < registers {
			words := g.K()
			g.KMOVD(bits.As32(), words)
			p.words = append(p.words, words)
		}
		k := g.K()
		g.KMOVW(bits.As32(), k)
		p.lanes = append(p.lanes, k)
		if i+1 < registers {
			g.SHRQ(operand.Imm(lanes512), bits)
		}
	}
	return p
}

func (p part) whole() bool { return p.lanes == nil }

// loadFloats512 loads the floats of register i.
func (g *generator) loadFloats512(p gp, i int, of part) vec {
	z := g.ZMM()
	if of.whole() {
		g.VMOVUPS(at(p, 64*i), z)
	} else {
		g.VMOVUPS_Z(at(p, 64*i), of.lanes[i], z)
	}
	return z
}

func (g *generator) storeFloats512(z vec, p gp, i int, of part) {
	if of.whole() {
		g.VMOVUPS(z, at(p, 64*i))
	} else {
		g.VMOVUPS(z, of.lanes[i], at(p, 64*i))
	}
}

// loadWords512 loads numbers of 16 bits into the low halves of register i's lanes.
func (g *generator) loadWords512(p gp, i int, of part) vec {
	z := g.ZMM()
	if of.whole() {
		g.VPMOVZXWD(at(p, 32*i), z)
	} else {
		g.VPMOVZXWD_Z(at(p, 32*i), of.lanes[i], z)
	}
	return z
}

// loadBF16512 widens bf16 numbers into register i.
func (g *generator) loadBF16512(p gp, i int, of part) vec {
	z := g.loadWords512(p, i, of)
	g.VPSLLD(operand.Imm(16), z, z)
	return z
}

// halves takes pairs of registers apart into half-words.
type halves struct {
	g     *generator
	odd   mask
	order vec
}

func (g *generator) halves() halves {
	h := halves{g, g.K(), g.ZMM()}
	bits := g.GP32()
	g.MOVL(operand.U32(0xaaaaaaaa), bits)
	g.KMOVD(bits, h.odd)
	var words []uint32 // the even ones, then the odd ones
	for i := range uint32(lanes512) {
		first := 4 * i % 32
		if i >= lanes512/2 {
			first++
		}
		words = append(words, first|(first+2)<<16)
	}
	g.VMOVDQU64(g.data("halves", words...), h.order)
	return h
}

// mixUpper gives the upper half-words of a's and b's lanes in turn; it spoils a.
func (h halves) mixUpper(a, b vec) vec {
	h.g.VPSRLD(operand.Imm(16), a, a)
	h.g.VMOVDQU16(b, h.odd, a)
	return a
}

// mixLower gives the lower half-words of a's and b's lanes in turn.
func (h halves) mixLower(a, b vec) vec {
	z := h.g.ZMM()
	h.g.VPSLLD(operand.Imm(16), b, z)
	h.g.VPBLENDMW(z, a, h.odd, z)
	return z
}

// sort puts half-words that are mixed into order: those of the first register, then those
// of the second.
func (h halves) sort(z vec) vec {
	h.g.VPERMW(z, h.order, z)
	return z
}

// storePair stores the half-words of pair i of registers.
func (g *generator) storePair(z vec, p gp, i int, of part) {
	if of.whole() {
		g.VMOVDQU16(z, at(p, 64*i))
	} else {
		g.VMOVDQU16(z, of.words[i], at(p, 64*i))
	}
}

// unordered is the lanes of z that are NaN.
func (g *generator) unordered(z vec) mask {
	k := g.K()
	g.VCMPPS(operand.Imm(3), z, z, k)
	return k
}

// load512 loads numbers of a format as the floats of register i.
func (g *generator) load512(f format, p gp, i int, of part) vec {
	if f == bfloat16s {
		return g.loadBF16512(p, i, of)
	}
	return g.loadFloats512(p, i, of)
}
