package main

import (
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
)

const (
	sumChunk = 4096
	sumLanes = 16
)

func sumsAVX2(g *generator) {
	g.function("AbsmaxAVX2", "(x []float32) float32", `
AbsmaxAVX2 is the largest magnitude: 0 of an empty slice, NaN if there is a NaN. A call of
500,000 elements takes about 50 µs.

	largest := uint32(0)
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(largest)`)
	x, n := g.pointer("x"), g.length("x")
	g.VMOVSS(g.absmax(x, n, mem{}), g.result())
	g.end()

	g.squares("SumSquaresAVX2", "float32", "float64(v)", 4)
	g.squares("SumSquaresBF16AVX2", "uint16", "float64(bf16.BF16(v).Float32())", 2)

	g.function("SumProductsAVX2", "(sums []float64, x, y []float32)", sumProductsDoc("SumProductsAVX2"))
	sums, chunks := g.pointer("sums"), g.length("sums")
	x, n = g.pointer("x"), g.length("x")
	y := g.pointer("y")
	s := g.summation(cursor{x, 4}, cursor{y, 4})
	s.chunks(sums, chunks, n)
	g.end()

	g.function("ScaleAVX2", "(x []float32, factor float32)", `
ScaleAVX2 multiplies in place. A call of 500,000 elements takes about 100 µs.

	for i := range x {
		x[i] *= factor
	}`)
	x, n = g.pointer("x"), g.length("x")
	factor := g.parameter("factor")
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		for i := 0; i < width; i += 8 {
			y := g.loadFloats(x, 4*i, lanes)
			g.VMULPS(factor, y, y)
			g.storeFloats(y, x, 4*i, lanes)
		}
		g.advance(x, 4*width)
	}, 32, 8, 1)
	g.end()

	g.function("ScaleBF16AVX2", "(x []uint16, factor float32)", `
ScaleBF16AVX2 multiplies bf16 numbers in place, each product rounded to float32 and then to
bf16. A call of 500,000 elements takes about 100 µs.

	for i, v := range x {
		x[i] = uint16(bf16.FromFloat32(bf16.BF16(v).Float32() * factor))
	}`)
	x, n = g.pointer("x"), g.length("x")
	factor = g.parameter("factor")
	r := g.rounding()
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		var y []vec
		for i := 0; i < width; i += 8 {
			product := g.loadBF16(x, 2*i, lanes)
			g.VMULPS(factor, product, product)
			y = append(y, r.nearest(product))
		}
		g.storeWords(x, 0, lanes, y...)
		g.advance(x, 2*width)
	}, 16, 8, 1)
	g.end()
}

// absmax is the largest magnitude of n floats, and no less than a number, if there is one.
func (g *generator) absmax(x, n gp, least mem) vec {
	magnitude := g.broadcast(0x7fffffff)
	var largest [4]vec
	for i := range largest {
		largest[i] = g.YMM()
		g.VPXOR(largest[i], largest[i], largest[i])
	}
	if least.Base != nil {
		g.VBROADCASTSS(least, largest[0])
	}
	g.elements(n, func(width int) {
		lanes := min(width, 8)
		for i := 0; i < width; i += 8 {
			y, to := g.loadFloats(x, 4*i, lanes), largest[i/8]
			g.VPAND(magnitude, y, y)
			g.VPMAXUD(y, to, to)
		}
		g.advance(x, 4*width)
	}, 32, 8, 1)
	g.VPMAXUD(largest[1], largest[0], largest[0])
	g.VPMAXUD(largest[3], largest[2], largest[2])
	g.VPMAXUD(largest[2], largest[0], largest[0])
	return g.largestLane(largest[0])
}

// largestLane is the largest unsigned lane of y, which it spoils.
func (g *generator) largestLane(y vec) vec {
	x, other := y.AsX(), g.XMM()
	g.VEXTRACTI128(operand.Imm(1), y, other)
	g.VPMAXUD(other, x, x)
	for _, order := range []uint64{0x4e, 0xb1} {
		g.VPSHUFD(operand.Imm(order), x, other)
		g.VPMAXUD(other, x, x)
	}
	return x.(vec)
}

// sumSquaresDoc is the comment of a function that sums squares.
func sumSquaresDoc(name, value string) string {
	return name + ` 
sets each of the sums to that of the squares of 4096 elements of x, the last of what is
left, in a fixed order. Sixteen chunks take about 20 µs.

	for c := range sums {
		var lanes [16]float64
		for i, v := range x[c*4096 : min(c*4096+4096, len(x))] {
			lanes[i%16] += ` + value + ` * ` + value + `
		}
		for width := 8; width > 0; width /= 2 {
			for j := range width {
				lanes[j] += lanes[j+width]
			}
		}
		sums[c] = lanes[0]
	}`
}

func sumProductsDoc(name string) string {
	return name + ` sums the products of x and y, which have one length, in the order of
the sums of squares. Sixteen chunks take about 30 µs.

	reference.ChunkDots(sums, x, y)`
}

func (g *generator) squares(name, of, value string, bytes int) {
	g.function(name, "(sums []float64, x []"+of+")", sumSquaresDoc(name, value))
	sums, chunks := g.pointer("sums"), g.length("sums")
	x, n := g.pointer("x"), g.length("x")
	s := g.summation(cursor{x, bytes})
	s.chunks(sums, chunks, n)
	g.end()
}

// summation adds squares of what one cursor points to, or products of two, in the
// contract's order.
type summation struct {
	g       *generator
	cursors []cursor
	tails   []mem // room for the last of the elements, as float32, and zeros
	lanes   [4]vec
}

func (g *generator) summation(cursors ...cursor) summation {
	s := summation{g: g, cursors: cursors}
	for range cursors {
		s.tails = append(s.tails, g.AllocLocal(4*sumLanes))
	}
	for i := range s.lanes {
		s.lanes[i] = g.YMM()
	}
	return s
}

// chunks stores the sums of chunks, the last of which may end early.
func (s summation) chunks(sums, chunks, n gp) {
	second := s
	second.cursors = s.g.cursorsLike(s.cursors)
	for i := range second.lanes {
		second.lanes[i] = s.g.YMM()
	}
	s.g.pairsOfChunks(sums, chunks, n, s.cursors, second.cursors, func(count gp) (vec, vec) {
		s.clear()
		second.clear()
		s.g.loop(count, sumLanes, func() {
			s.add(s.fourOf)
			second.add(second.fourOf)
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

// pairsOfChunks runs body on two whole chunks at a time, whose sums do not wait for each
// other's additions: on one of the first half of the chunks, at the cursors, and on that of
// the second half, at the others, since a Zen 4 reads slowly what lies one chunk apart. The
// body moves all cursors over as many elements as a chunk has, and gives the sums.
func (g *generator) pairsOfChunks(sums, chunks, n gp, cursors, others []cursor, body func(count gp) (first, second vec)) {
	pairs, secondSums := g.GP64(), g.GP64()
	g.MOVQ(n, pairs)
	g.SHRQ(operand.Imm(uint64(bits.TrailingZeros(2*sumChunk))), pairs)
	for i, c := range cursors {
		g.IMUL3Q(operand.U32(uint32(sumChunk*c.bytes)), pairs, others[i].gp)
		g.ADDQ(c.gp, others[i].gp)
	}
	g.LEAQ(mem{Base: sums, Index: pairs, Scale: 8}, secondSums)
	g.loop(pairs, 1, func() {
		count := g.GP64()
		g.MOVL(operand.U32(sumChunk), count.As32())
		first, second := body(count)
		g.VMOVSD(first, at(sums, 0))
		g.VMOVSD(second, at(secondSums, 0))
		g.advance(sums, 8)
		g.advance(secondSums, 8)
		g.SUBQ(operand.Imm(2), chunks)
		g.SUBQ(operand.U32(2*sumChunk), n)
	})
	g.MOVQ(secondSums, sums)
	for i, c := range cursors {
		g.MOVQ(others[i].gp, c.gp)
	}
}

// cursorsLike are registers for cursors over the same formats.
func (g *generator) cursorsLike(cursors []cursor) (others []cursor) {
	for _, c := range cursors {
		others = append(others, cursor{g.GP64(), c.bytes})
	}
	return others
}

// advanceAll moves cursors over elements.
func (g *generator) advanceAll(cursors []cursor, elements int) {
	for _, c := range cursors {
		g.advance(c.gp, elements*c.bytes)
	}
}

// nextChunk takes as many elements as a chunk has, or all, away from n.
func (g *generator) nextChunk(n gp) gp {
	chunk := g.GP64()
	g.MOVL(operand.U32(sumChunk), chunk.As32())
	g.CMPQ(n, chunk)
	g.CMOVQCS(n, chunk)
	g.SUBQ(chunk, n)
	return chunk
}

// chunk is the sum of n elements, which it spoils.
func (s summation) chunk(n gp) vec {
	s.clear()
	s.g.loop(n, sumLanes, func() {
		s.add(s.fourOf)
		s.g.advanceAll(s.cursors, sumLanes)
	})

	whole := operand.LabelRef(s.g.label("whole"))
	s.g.TESTQ(n, n)
	s.g.JZ(whole)
	zero, index := s.g.YMM(), s.g.GP64()
	s.g.VPXOR(zero, zero, zero)
	for _, tail := range s.tails {
		s.g.VMOVDQU(zero, tail)
		s.g.VMOVDQU(zero, tail.Offset(32))
	}
	s.g.XORL(index.As32(), index.As32())
	s.g.loop(n, 1, func() {
		for i, c := range s.cursors {
			x := s.g.load(formatOf(c), c.gp, 1)
			s.g.VMOVSS(x.AsX(), s.tails[i].Idx(index, 4))
			s.g.advance(c.gp, c.bytes)
		}
		s.g.INCQ(index)
	})
	tails := map[gp]mem{}
	for i, c := range s.cursors {
		tails[c.gp] = s.tails[i]
	}
	s.add(func(c cursor, lane int) vec {
		y := s.g.YMM()
		s.g.VCVTPS2PD(tails[c.gp].Offset(4*lane), y)
		return y
	})
	s.g.Label(string(whole))
	return s.total()
}

func (s summation) clear() {
	for _, y := range s.lanes {
		s.g.VXORPD(y, y, y)
	}
}

// total is the sum of the lanes, which it spoils.
func (s summation) total() vec {
	sum, high := s.lanes[0], s.g.XMM()
	s.g.VADDPD(s.lanes[2], sum, sum)
	s.g.VADDPD(s.lanes[3], s.lanes[1], s.lanes[1])
	s.g.VADDPD(s.lanes[1], sum, sum)
	s.g.VEXTRACTF128(operand.Imm(1), sum, high)
	s.g.VADDPD(high, sum.AsX(), high)
	second := s.g.XMM()
	s.g.VUNPCKHPD(high, high, second)
	s.g.VADDSD(second, high, high)
	return high
}

// add adds the squares or products of sixteen elements, each of which is exact.
func (s summation) add(four func(c cursor, lane int) vec) {
	for i, sum := range s.lanes {
		x := four(s.cursors[0], 4*i)
		y := x
		if len(s.cursors) > 1 {
			y = four(s.cursors[1], 4*i)
		}
		s.g.VFMADD231PD(y, x, sum)
	}
}

// fourOf is four elements in float64.
func (s summation) fourOf(c cursor, lane int) vec {
	y := s.g.YMM()
	x := y.AsX()
	if c.bytes == 2 {
		s.g.VPMOVZXWD(at(c.gp, 2*lane), x)
		s.g.VPSLLD(operand.Imm(16), x, x)
		s.g.VCVTPS2PD(x, y)
	} else {
		s.g.VCVTPS2PD(at(c.gp, 4*lane), y)
	}
	return y
}

func formatOf(c cursor) format {
	if c.bytes == 2 {
		return bfloat16s
	}
	return float32s
}
