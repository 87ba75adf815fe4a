package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// nibbles512 finds 4-bit codes, 64 at a time, by comparing the numbers of a block with its
// own bounds, for which none is divided.
//
// The quotient x/s, rounded to nearest, is above a threshold t exactly if x/s is above the
// middle t+h of t and the next float32: halfway cases have no quotient of float32 numbers,
// since t+h has 25 significant bits, the last of them 1, so that s*(t+h) has no fewer. So x
// is compared with s*(t+h) rounded down, which fma(s, t, s*h) is, as s*h is exact. That
// holds where no product is subnormal or infinite: for thresholds of 2^-30 to 2^20 and
// scales of leastScale and more. In blocks of a smaller scale all is multiplied by a power
// of two.
type nibbles512 struct {
	g *generator
	block512
	bounds             func()          // makes those of a block
	search             func(x vec) vec // gives the index of each x
	codes, order, pair vec             // the code of each index; of packed dwords; 1 and 16, or 16 and 1
	streamed           mem             // not 0: whole groups of codes go past the caches
}

const leastScale = 0x1p-60

func (g *generator) nibbles512(codes gp) *nibbles512 {
	s := &nibbles512{
		g: g, block512: g.block512(leastScale, 0x1p89, mem{}), codes: g.ZMM(),
		order: g.ZMM(), pair: g.ZMM(),
	}
	g.VBROADCASTI32X4(at(codes, 0), s.codes)
	g.VMOVDQU32(g.data("transposed", transposed...), s.order)
	low, high := g.GP32(), g.GP32()
	g.MOVL(operand.U32(0x1001), low)
	g.MOVL(operand.U32(0x0110), high)
	g.CMPB(g.resolve(g.Param("highFirst")), operand.Imm(0))
	g.CMOVLNE(high, low)
	g.VPBROADCASTW(low, s.pair)
	return s
}

// halfSteps are half the distances of thresholds to the next float32.
func (g *generator) halfSteps(thresholds vec) vec {
	negative, up, one := g.K(), g.ZMM(), g.data("word", 1)
	g.VPMOVD2M(thresholds, negative)
	g.VPADDD_BCST(one, thresholds, up)
	g.VPSUBD_BCST(one, thresholds, negative, up)
	g.VSUBPS(thresholds, up, up)
	g.VMULPS_BCST(g.data("word", math.Float32bits(0.5)), up, up)
	return up
}

// bound makes bounds of thresholds.
func (s *nibbles512) bound(thresholds, halfSteps, bounds vec) {
	s.g.VMULPS(s.scale, halfSteps, bounds)
	s.g.VFMADD231PS_RD_SAE(s.scale, thresholds, bounds)
}

// above is where x is above a bound.
func (s *nibbles512) above(x, bound vec) mask {
	k := s.g.K()
	s.g.VCMPPS(operand.Imm(0x1e), bound, x, k)
	return k
}

// bisect512 finds indices by a binary search in 15 thresholds.
func (g *generator) bisect512(thresholds, codes gp) *nibbles512 {
	s := g.nibbles512(codes)
	t, bounds, next, middle, lower, upper := g.ZMM(), g.ZMM(), g.ZMM(), g.ZMM(), g.ZMM(), g.ZMM()
	g.VMOVUPS(at(thresholds, 0), t)
	halfSteps := g.halfSteps(t)
	seven, three, eleven, following := g.broadcast512(7), g.broadcast512(3), g.broadcast512(11), g.ZMM()
	g.VMOVDQU32(g.data("following", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0), following)
	eight := g.broadcast512(8)
	s.bounds = func() {
		s.bound(t, halfSteps, bounds)
		g.VPERMPS(bounds, following, next)
		g.VPERMPS(bounds, seven, middle)
		g.VPERMPS(bounds, three, lower)
		g.VPERMPS(bounds, eleven, upper)
	}
	s.search = func(x vec) vec {
		index, bound := g.ZMM(), g.ZMM()
		above := s.above(x, middle)
		g.VMOVAPS(lower, bound)
		g.VMOVAPS(upper, above, bound)
		g.VMOVDQA32_Z(eight, above, index)
		g.VPADDD_BCST(g.data("word", 4), index, s.above(x, bound), index)
		g.VPERMPS(next, index, bound)
		g.VPADDD_BCST(g.data("word", 2), index, s.above(x, bound), index)
		g.VPERMPS(bounds, index, bound)
		g.VPADDD_BCST(g.data("word", 1), index, s.above(x, bound), index)
		return index
	}
	return s
}

// cells512 finds indices by one comparison, with the only threshold of the cell that a
// number lies in. There are 32 cells, as in codebook.NibbleCells.
func (g *generator) cells512(cells, codes gp) *nibbles512 {
	s := g.nibbles512(codes)
	var thresholds, halfSteps, bounds, first [2]vec
	for i := range thresholds {
		thresholds[i], bounds[i], first[i] = g.ZMM(), g.ZMM(), g.ZMM()
		g.VMOVUPS(at(cells, 64*i), thresholds[i])
		halfSteps[i] = g.halfSteps(thresholds[i])
		g.VMOVDQU32(at(cells, 128+64*i), first[i])
	}
	cellOf, one := s.cell(), g.broadcast512(1)
	s.bounds = func() {
		for i := range bounds {
			s.bound(thresholds[i], halfSteps[i], bounds[i])
		}
	}
	s.search = func(x vec) vec {
		cell, bound := cellOf(x), g.ZMM()
		g.VMOVAPS(cell, bound)
		g.VPERMI2PS(bounds[1], bounds[0], bound)
		g.VPERMI2D(first[1], first[0], cell)
		g.VPADDD(one, cell, s.above(x, bound), cell)
		return cell
	}
	return s
}

// ranges512 finds indices by two comparisons, with the up to three thresholds of the cell that
// a number lies in: those of codebook.NibbleRanges.
func (g *generator) ranges512(ranges, codes gp) *nibbles512 {
	s := g.nibbles512(codes)
	t, bounds, second, following := g.ZMM(), g.ZMM(), g.ZMM(), g.ZMM()
	first := [2]vec{g.ZMM(), g.ZMM()}
	for i := range first {
		g.VMOVDQU32(at(ranges, 64*i), first[i])
	}
	g.VMOVUPS(at(ranges, 128), t)
	halfSteps := g.halfSteps(t)
	g.VMOVDQU32(g.data("second", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15), following)
	s.bounds = func() {
		s.bound(t, halfSteps, bounds)
		g.VPERMPS(bounds, following, second)
	}
	cell := s.cell()
	one, two := g.broadcast512(1), g.broadcast512(2)
	s.search = func(x vec) vec {
		index, bound := cell(x), g.ZMM()
		g.VPERMI2D(first[1], first[0], index)
		g.VPERMPS(second, index, bound)
		g.VPADDD(two, index, s.above(x, bound), index)
		g.VPERMPS(bounds, index, bound)
		g.VPADDD(one, index, s.above(x, bound), index)
		return index
	}
	return s
}

// cell gives the cell, modulo 32, of numbers of a block.
func (s *nibbles512) cell() func(x vec) vec {
	s.ratio = s.g.data("word", math.Float32bits(nibbleCells))
	magic := s.g.broadcast512(math.Float32bits(3 << 22))
	return func(x vec) vec {
		z := s.g.ZMM()
		s.g.VMOVAPS(magic, z)
		s.g.VFMADD231PS_RD_SAE(s.multiplier, x, z)
		return z
	}
}

// nibbleCells are the cells of a unit.
const nibbleCells = 15.99

// pairs gives the codes of 64 numbers, two to a byte, in half a register.
func (s *nibbles512) pairs(x [4]vec) vec {
	for i := range x {
		x[i] = s.search(x[i])
	}
	s.g.VPACKUSDW(x[1], x[0], x[0])
	s.g.VPACKUSDW(x[3], x[2], x[2])
	s.g.VPACKUSWB(x[2], x[0], x[0])
	y := x[0]
	s.g.VPSHUFB(y, s.codes, y)
	s.g.VPERMD(y, s.order, y)
	s.g.VPMADDUBSW(s.pair, y, y)
	s.g.VPMOVWB(y, y.AsY())
	return y.AsY().(vec)
}

func (s *nibbles512) prepare() { s.bounds() }

func (s *nibbles512) whole(codes, x, n gp, adjust func(vec)) {
	s.g.loop(n, 64, func() {
		s.g.store64(s.pairs(s.g.load64(x, adjust, prefetched)), codes, s.streamed, s.beside)
		s.g.advance(x, 256)
		s.g.advance(codes, 32)
	})
}

// rest fills the unused half of a last byte with the argument zero.
func (s *nibbles512) rest(codes, x, n gp, adjust func(vec)) {
	even := operand.LabelRef(s.g.label("even"))
	y, bytes := s.pairs(s.g.loadFirst64(x, n, adjust)), s.g.GP64()
	s.g.LEAQ(mem{Base: n, Disp: 1}, bytes)
	s.g.SHRQ(operand.Imm(1), bytes)
	s.g.VMOVDQU8(y.AsZ(), s.g.first(bytes), at(codes, 0))
	s.g.ADDQ(bytes, codes)
	s.g.TESTL(operand.U32(1), n.As32())
	s.g.JZ(even)
	s.g.fillSpare(codes)
	s.g.Label(string(even))
}

// fillSpare sets the unused half of the byte in front of codes to the argument zero.
func (g *generator) fillSpare(codes gp) {
	last, zero, low := g.GP32(), g.GP32(), operand.LabelRef(g.label("low"))
	stored := g.label("stored")
	g.MOVBLZX(at(codes, -1), last)
	g.MOVBLZX(g.resolve(g.Param("zero")), zero)
	g.CMPB(g.resolve(g.Param("highFirst")), operand.U8(0))
	g.JE(low)
	g.ANDL(operand.U32(0xf0), last)
	g.JMP(operand.LabelRef(stored))
	g.Label(string(low))
	g.ANDL(operand.U32(0x0f), last)
	g.SHLL(operand.Imm(4), zero)
	g.Label(stored)
	g.ORL(zero, last)
	g.MOVB(last.As8(), at(codes, -1))
}

func quantize4AVX512(g *generator) {
	for _, f := range []struct {
		name, arguments, takes, about string
		searcher                      func(thresholds, codes gp) *nibbles512
	}{
		{"Quantize4AVX512", "thresholds *[255]float32", "thresholds", "for thresholds with magnitudes of 2^-30 to 2^20", g.bisect512},
		{"Quantize4CellsAVX512", "cells *[64]uint32", "cells", "for codebooks with codebook.NibbleCells, which it takes", g.cells512},
		{"Quantize4RangesAVX512", "ranges *[48]uint32", "ranges", "for codebooks with codebook.NibbleRanges, which it takes", g.ranges512},
	} {
		g.function(f.name, "(codes []uint8, scales, x []float32, block int, divisor, least float32, "+f.arguments+", order *[256]uint8, zero uint8, highFirst, stream bool) int",
			f.name+" is Quantize4AVX2, "+f.about+`.
With stream, codes go past the caches where their address and the block are multiples of 64.
A call of 300,000 elements takes about 100 µs.`)
		codes, scales, x := g.pointer("codes"), g.pointer("scales"), g.pointer("x")
		streamed := g.GP64()
		g.streamsBlocks(codes, 63, streamed)
		s := f.searcher(g.number(f.takes), g.number("order"))
		s.streamed = g.AllocLocal(8)
		g.MOVQ(streamed, s.streamed)
		g.quantizeBlocks512(codes, scales, x, s, func(length gp) {
			pair, high := g.GP64(), g.GP64()
			g.MOVBLZX(g.resolve(g.Param("zero")), pair.As32())
			g.MOVL(pair.As32(), high.As32())
			g.SHLL(operand.Imm(4), high.As32())
			g.ORL(high.As32(), pair.As32())
			g.LEAQ(mem{Base: x, Index: length, Scale: 4}, x)
			g.INCQ(length)
			g.SHRQ(operand.Imm(1), length)
			g.fill512(codes, length, pair)
		})
		g.fence(s.streamed)
		g.end()
		g.besides(s.beside)
	}
}

func dequantize4AVX512(g *generator) {
	g.function("Dequantize4AVX512", "(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32, highFirst, stream bool)", `
Dequantize4AVX512 is Dequantize4AVX2. With stream, dst goes past the caches where its address
is a multiple of 64 and the block one of 16. A call of 500,000 elements takes about 100 µs.`)
	dst, codes, scales := g.pointer("dst"), g.pointer("codes"), g.pointer("scales")
	values, right, left := g.ZMM(), g.ZMM(), g.ZMM()
	g.VMOVUPS(at(g.number("table"), 0), values)
	// a lane of a pair's lower half wants the first code, one of its upper half the second
	high := g.GP32()
	g.MOVBLZX(g.resolve(g.Param("highFirst")), high)
	g.SHLL(operand.Imm(2), high)
	g.VPBROADCASTQ(high.As64(), right)
	g.ADDL(operand.Imm(28), high)
	g.VPBROADCASTQ(high.As64(), left)
	decode := func(pairs vec) vec {
		second := g.ZMM()
		g.VPSLLVQ(left, pairs, second)
		g.VPSRLVQ(right, pairs, pairs)
		g.VPORQ(second, pairs, pairs)
		g.VPERMPS(values, pairs, pairs)
		return pairs
	}
	g.decodeBlocks512(dst, scales, func(n gp) (y [4]vec) {
		from := codes
		if n != nil {
			from = g.tail4(codes, n)
		}
		for i := range y {
			y[i] = g.ZMM()
			g.VPMOVZXBQ(at(from, 8*i), y[i])
			y[i] = decode(y[i])
		}
		if n == nil {
			g.advance(codes, 32)
		}
		return y
	})
	g.end()
}

// tail4 copies the bytes of n codes, which is below 64, to where 32 bytes can be read, and
// moves codes.
func (g *generator) tail4(codes, n gp) gp {
	bytes, copied, y := g.GP64(), g.GP64(), g.ZMM()
	g.LEAQ(mem{Base: n, Disp: 1}, bytes)
	g.SHRQ(operand.Imm(1), bytes)
	g.VMOVDQU8_Z(at(codes, 0), g.first(bytes), y)
	g.ADDQ(bytes, codes)
	room := g.AllocLocal(64)
	g.VMOVDQU64(y, room)
	g.LEAQ(room, copied)
	return copied
}
