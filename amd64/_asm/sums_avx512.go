package main

import "github.com/mmcloughlin/avo/operand"

func sumsAVX512(g *generator) {
	g.function("AbsmaxAVX512", "(x []float32) float32", `
AbsmaxAVX512 is the largest magnitude: 0 of an empty slice, NaN if there is a NaN. A call of
500,000 elements takes about 50 µs.

	largest := uint32(0)
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(largest)`)
	x, n := g.pointer("x"), g.length("x")
	g.VMOVSS(g.absmax512(x, n, mem{}), g.result())
	g.end()

	g.squares512("SumSquaresAVX512", "float32", "float64(v)", 4)
	g.squares512("SumSquaresBF16AVX512", "uint16", "float64(bf16.BF16(v).Float32())", 2)

	g.function("SumProductsAVX512", "(sums []float64, x, y []float32)", sumProductsDoc("SumProductsAVX512"))
	sums, chunks := g.pointer("sums"), g.length("sums")
	x, n = g.pointer("x"), g.length("x")
	s := g.summation512(cursor{x, 4}, cursor{g.pointer("y"), 4})
	s.chunks(sums, chunks, n)
	g.end()

	g.function("ScaleAVX512", "(x []float32, factor float32)", `
ScaleAVX512 multiplies in place. A call of 500,000 elements takes about 100 µs.

	for i := range x {
		x[i] *= factor
	}`)
	x, n = g.pointer("x"), g.length("x")
	factor := g.parameter512("factor")
	g.elements512(n, 4, 1, func(of part) {
		for i := range of.registers {
			z := g.loadFloats512(x, i, of)
			g.VMULPS(factor, z, z)
			g.storeFloats512(z, x, i, of)
		}
	}, cursor{x, 4})
	g.end()

	g.function("ScaleBF16AVX512", "(x []uint16, factor float32)", `
ScaleBF16AVX512 multiplies bf16 numbers in place, each product rounded to float32 and then
to bf16. A call of 500,000 elements takes about 100 µs.

	for i, v := range x {
		x[i] = uint16(bf16.FromFloat32(bf16.BF16(v).Float32() * factor))
	}`)
	x, n = g.pointer("x"), g.length("x")
	factor = g.parameter512("factor")
	r := g.rounding512()
	g.elements512(n, 4, 2, func(of part) {
		for i := 0; i < of.registers; i += 2 {
			a, b := g.loadBF16512(x, i, of), g.loadBF16512(x, i+1, of)
			g.VMULPS(factor, a, a)
			g.VMULPS(factor, b, b)
			g.storePair(r.sort(r.mixUpper(r.nearest(a), r.nearest(b))), x, i/2, of)
		}
	}, cursor{x, 2})
	g.end()
}

// absmax512 is the largest magnitude of n floats, and no less than a number, if there is
// one.
func (g *generator) absmax512(x, n gp, least mem) vec {
	magnitude := g.broadcast512(0x7fffffff)
	var largest [4]vec
	for i := range largest {
		largest[i] = g.ZMM()
		g.VPXORD(largest[i], largest[i], largest[i])
	}
	if least.Base != nil {
		g.VBROADCASTSS(least, largest[0])
	}
	g.elements512(n, 4, 1, func(of part) {
		for i := range of.registers {
			z := g.ZMM()
			if of.whole() {
				g.VPANDD(at(x, 64*i), magnitude, z)
			} else {
				g.VPANDD_Z(at(x, 64*i), magnitude, of.lanes[i], z)
			}
			g.VPMAXUD(z, largest[i], largest[i])
		}
	}, cursor{x, 4})
	g.VPMAXUD(largest[1], largest[0], largest[0])
	g.VPMAXUD(largest[3], largest[2], largest[2])
	g.VPMAXUD(largest[2], largest[0], largest[0])
	return g.largestLane512(largest[0])
}

// largestLane512 is the largest unsigned lane of z, which it spoils.
func (g *generator) largestLane512(z vec) vec {
	other := g.ZMM()
	g.VEXTRACTI64X4(operand.Imm(1), z, other.AsY())
	g.VPMAXUD(other, z, z)
	for _, order := range []uint64{0x4e, 0xb1} { // of 128-bit lanes, then words
		g.VSHUFI64X2(operand.Imm(order&3), z, z, other)
		g.VPMAXUD(other, z, z)
		g.VPSHUFD(operand.Imm(order), z, other)
		g.VPMAXUD(other, z, z)
	}
	return z.AsX().(vec)
}

func (g *generator) squares512(name, of, value string, bytes int) {
	g.function(name, "(sums []float64, x []"+of+")", sumSquaresDoc(name, value))
	sums, chunks := g.pointer("sums"), g.length("sums")
	x, n := g.pointer("x"), g.length("x")
	s := g.summation512(cursor{x, bytes})
	s.chunks(sums, chunks, n)
	g.end()
}

// summation512 adds squares of what one cursor points to, or products of two, in the
// contract's order.
//
// Of float32 numbers one register adds the first eight of sixteen lanes; of bf16 numbers,
// whose widening leaves the upper of two where it is, it adds the even ones.
type summation512 struct {
	g       *generator
	cursors []cursor
	lanes   [2]vec
	upper   vec // half of each lane, of bf16
}

func (g *generator) summation512(cursors ...cursor) summation512 {
	s := summation512{g: g, cursors: cursors, lanes: [2]vec{g.ZMM(), g.ZMM()}}
	if cursors[0].bytes == 2 {
		s.upper = g.broadcast512(0xffff0000)
	}
	return s
}

// chunks stores the sums of chunks, the last of which may end early.
func (s summation512) chunks(sums, chunks, n gp) {
	second := s
	second.lanes, second.cursors = [2]vec{s.g.ZMM(), s.g.ZMM()}, s.g.cursorsLike(s.cursors)
	s.g.pairsOfChunks(sums, chunks, n, s.cursors, second.cursors, func(count gp) (vec, vec) {
		s.clear()
		second.clear()
		s.g.loop(count, sumLanes, func() {
			s.add(nil)
			second.add(nil)
			s.g.advanceAll(s.cursors, sumLanes)
			s.g.advanceAll(second.cursors, sumLanes)
		})
		return s.total(), second.total()
	})
	s.g.loop(chunks, 1, func() {
		s.g.VMOVSD(s.chunk(s.g.nextChunk(n)), at(sums, 0))
		s.g.advance(sums, 8)
	})
}

// chunk is the sum of n elements, which it spoils.
func (s summation512) chunk(n gp) vec {
	s.clear()
	s.g.loop(n, sumLanes, func() {
		s.add(nil)
		s.g.advanceAll(s.cursors, sumLanes)
	})
	whole := operand.LabelRef(s.g.label("whole"))
	s.g.TESTQ(n, n)
	s.g.JZ(whole)
	s.add(n)
	for _, c := range s.cursors {
		s.g.LEAQ(mem{Base: c.gp, Index: n, Scale: uint8(c.bytes)}, c.gp)
	}
	s.g.Label(string(whole))
	return s.total()
}

func (s summation512) clear() {
	for _, z := range s.lanes {
		s.g.VPXORQ(z, z, z)
	}
}

// total is the sum of the lanes, which it spoils.
func (s summation512) total() vec {
	a, b := s.lanes[0], s.lanes[1]
	if s.cursors[0].bytes == 4 {
		s.g.VADDPD(b, a, a)
		return s.g.sumEight(a)
	}
	even, odd := s.g.sumEight(a), s.g.sumEight(b)
	s.g.VADDSD(odd, even, even)
	return even
}

// sumEight adds the lanes of z, which it spoils: 4 apart, 2 and 1.
func (g *generator) sumEight(z vec) vec {
	other, x := g.ZMM(), z.AsX().(vec)
	g.VEXTRACTF64X4(operand.Imm(1), z, other.AsY())
	g.VADDPD(other.AsY(), z.AsY(), z.AsY())
	g.VEXTRACTF64X2(operand.Imm(1), z.AsY(), other.AsX())
	g.VADDPD(other.AsX(), x, x)
	g.VUNPCKHPD(x, x, other.AsX())
	g.VADDSD(other.AsX(), x, x)
	return x
}

// add adds the squares or products, each of which is exact, of sixteen elements, or of the
// first n.
func (s summation512) add(n gp) {
	var of part
	if n != nil {
		of = s.g.firstElements(n, 1)
	}
	values := make([][2]vec, len(s.cursors))
	for i, c := range s.cursors {
		if c.bytes == 2 {
			values[i] = s.evenAndOdd(c, of)
		} else {
			values[i] = s.lowAndHigh(c, of)
		}
	}
	for i, sum := range s.lanes {
		s.g.VFMADD231PD(values[len(values)-1][i], values[0][i], sum)
	}
}

// lowAndHigh are sixteen float32 numbers in float64, zero where there is none.
func (s summation512) lowAndHigh(c cursor, of part) (values [2]vec) {
	for i := range values {
		z := s.g.ZMM()
		y := z.AsY()
		switch {
		case !of.whole():
			k := of.lanes[0]
			if i == 1 {
				k = s.g.K()
				s.g.KSHIFTRW(operand.Imm(8), of.lanes[0], k)
			}
			s.g.VMOVUPS_Z(at(c.gp, 32*i), k, y)
			s.g.VCVTPS2PD(y, z)
		default:
			s.g.VCVTPS2PD(at(c.gp, 32*i), z)
		}
		values[i] = z
	}
	return values
}

// evenAndOdd are sixteen bf16 numbers in float64, zero where there is none.
func (s summation512) evenAndOdd(c cursor, of part) [2]vec {
	even, odd := s.g.ZMM(), s.g.ZMM()
	if of.whole() {
		s.g.VPSLLD(operand.Imm(16), at(c.gp, 0), even.AsY())
		s.g.VPANDD(at(c.gp, 0), s.upper.AsY(), odd.AsY())
	} else {
		s.g.VMOVDQU16_Z(at(c.gp, 0), of.lanes[0], odd.AsY())
		s.g.VPSLLD(operand.Imm(16), odd, even)
		s.g.VPANDD(odd, s.upper, odd)
	}
	for _, z := range []vec{even, odd} {
		s.g.VCVTPS2PD(z.AsY(), z)
	}
	return [2]vec{even, odd}
}
