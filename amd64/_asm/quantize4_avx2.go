package main

import "github.com/mmcloughlin/avo/operand"

// searcher finds 4-bit codes by a binary search in 15 thresholds, four comparisons deep.
type searcher struct {
	g      *generator
	middle vec    // the threshold of the first comparison
	levels [3]vec // those of the next, at minus the comparisons' outcome so far
	scale  vec
	codes  vec // the code of each index
	pairs  vec // 1 and 16, or 16 and 1
}

func (g *generator) searcher(thresholds, codes gp, highFirst mem) searcher {
	s := searcher{g: g, middle: g.YMM(), scale: g.YMM(), codes: g.YMM(), pairs: g.YMM()}
	g.VBROADCASTSS(at(thresholds, 4*7), s.middle)
	lanes := g.AllocLocal(32)
	for level := range s.levels {
		for outcome := range 2 << level {
			t, step := g.GP32(), 8>>level
			g.MOVL(at(thresholds, 4*(outcome*step+step/2-1)), t)
			g.MOVL(t, lanes.Offset(4*(-outcome&7)))
		}
		s.levels[level] = g.YMM()
		g.VMOVUPS(lanes, s.levels[level])
	}
	g.VBROADCASTI128(at(codes, 0), s.codes)
	pairs, high := g.GP32(), g.GP32()
	g.MOVL(operand.U32(0x1001), pairs)
	g.MOVL(operand.U32(0x0110), high)
	g.CMPB(highFirst, operand.Imm(0))
	g.CMOVLNE(high, pairs)
	g.VMOVD(pairs, s.pairs.AsX())
	g.VPBROADCASTW(s.pairs.AsX(), s.pairs)
	return s
}

// search gives minus the index of each x.
func (s searcher) search(x vec) vec {
	index := s.g.YMM()
	s.g.VDIVPS(s.scale, x, x)
	s.g.VCMPPS(operand.Imm(0x1e), s.middle, x, index) // above
	for _, level := range s.levels {
		above := s.g.YMM()
		s.g.VPERMPS(level, index, above)
		s.g.VCMPPS(operand.Imm(0x1e), above, x, above)
		s.g.VPADDD(index, index, index)
		s.g.VPADDD(above, index, index)
	}
	return index
}

// encode codes n numbers, the last of which get spare in the unused half of a byte, and
// moves all three.
func (s searcher) encode(codes, x, n gp, spare mem) {
	s.g.loop(n, 32, func() {
		var halves [2]vec
		for i := range halves {
			s.g.PREFETCHT0(at(x, prefetched+64*i))
			a, b := s.search(s.g.loadFloats(x, 64*i, 8)), s.search(s.g.loadFloats(x, 64*i+32, 8))
			s.g.VPACKSSDW(b, a, a)
			halves[i] = a
		}
		y := halves[0]
		s.g.VPACKSSWB(halves[1], y, y)
		s.g.VPERMD(y, s.g.wide("order", 0, 4, 1, 5, 2, 6, 3, 7), y)
		s.g.VPABSB(y, y)
		s.g.VPSHUFB(y, s.codes, y)
		s.g.VPMADDUBSW(s.pairs, y, y)
		s.g.VPACKUSWB(y, y, y)
		s.g.VPERMQ(operand.Imm(0x08), y, y)
		s.g.VMOVDQU(y.AsX(), at(codes, 0))
		s.g.advance(x, 128)
		s.g.advance(codes, 16)
	})
	packed := func(x, kept vec) gp {
		y, high, bytes := s.search(x), s.g.XMM(), s.g.GP32()
		for _, z := range []vec{y, kept} {
			if z != nil {
				s.g.VEXTRACTI128(operand.Imm(1), z, high)
				s.g.VPACKSSDW(high, z.AsX(), z.AsX())
				s.g.VPACKSSWB(z.AsX(), z.AsX(), z.AsX())
			}
		}
		s.g.VPABSB(y.AsX(), y.AsX())
		s.g.VPSHUFB(y.AsX(), s.codes.AsX(), y.AsX())
		if kept != nil {
			s.g.VPBROADCASTB(spare, high)
			s.g.VPBLENDVB(kept.AsX(), y.AsX(), high, y.AsX())
		}
		s.g.VPMADDUBSW(s.pairs.AsX(), y.AsX(), y.AsX())
		s.g.VPACKUSWB(y.AsX(), y.AsX(), y.AsX())
		s.g.VMOVD(y.AsX(), bytes)
		return bytes
	}
	s.g.loop(n, 8, func() {
		s.g.MOVL(packed(s.g.loadFloats(x, 0, 8), nil), at(codes, 0))
		s.g.advance(x, 32)
		s.g.advance(codes, 4)
	})
	s.g.upToSeven(n, func(kept vec) {
		y := s.g.YMM()
		s.g.VMASKMOVPS(at(x, 0), kept, y)
		bytes := packed(y, kept)
		s.g.LEAQ(mem{Base: x, Index: n, Scale: 4}, x)
		s.g.INCQ(n)
		s.g.SHRQ(operand.Imm(1), n)
		s.g.loop(n, 1, func() {
			s.g.MOVB(bytes.As8(), at(codes, 0))
			s.g.SHRL(operand.Imm(8), bytes)
			s.g.advance(codes, 1)
		})
	})
}

// upToSeven runs body, unless n is 0, with all ones in the first n lanes.
func (g *generator) upToSeven(n gp, body func(kept vec)) {
	none := g.label("none")
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(none))
	kept, lanes := g.YMM(), g.YMM()
	g.VMOVD(n.As32(), kept.AsX())
	g.VPBROADCASTD(kept.AsX(), kept)
	g.VMOVDQU(g.data("order", 0, 1, 2, 3, 4, 5, 6, 7), lanes)
	g.VPCMPGTD(lanes, kept, kept)
	body(kept)
	g.Label(none)
}

// wide is 8 words in a register.
func (g *generator) wide(name string, words ...uint32) vec {
	y := g.YMM()
	g.VMOVDQU(g.data(name, words...), y)
	return y
}

func quantize4AVX2(g *generator) {
	g.function("Quantize4AVX2", "(codes []uint8, scales, x []float32, block int, divisor, least float32, thresholds *[255]float32, order *[256]uint8, zero uint8, highFirst bool) int", `
Quantize4AVX2 is QuantizeAVX2 for 4-bit codes, two to a byte: the first of them in the low
half, or in the high half. Thresholds, the code of each index and that of zero are the
codebook's. The block is even, or not shorter than x. A call of 100,000 elements takes about
60 µs.

	for b := range scales {
		// the scale is that of QuantizeAVX2
		for i, v := range x[b*block : min(b*block+block, len(x))] {
			code := zero
			if scale > 0 {
				code = book.Encode(v / scale)
			}
			order.Put(codes, b*block+i, code)
		}
	}
	if len(x)%2 == 1 {
		order.Put(codes, len(x), zero)
	}
	return poisoned`)
	codes, scales, x := g.pointer("codes"), g.pointer("scales"), g.pointer("x")
	s := g.searcher(g.number("thresholds"), g.number("order"), g.resolve(g.Param("highFirst")))
	zero := g.resolve(g.Param("zero"))
	g.quantizeBlocks(x, scales, s.scale, func(length gp) { s.encode(codes, x, length, zero) }, func(length gp) {
		pair, high := g.GP64(), g.GP64()
		g.MOVBLZX(zero, pair.As32())
		g.MOVL(pair.As32(), high.As32())
		g.SHLL(operand.Imm(4), high.As32())
		g.ORL(high.As32(), pair.As32())
		g.LEAQ(mem{Base: x, Index: length, Scale: 4}, x)
		g.INCQ(length)
		g.SHRQ(operand.Imm(1), length)
		g.fill(codes, length, pair)
	})
	g.end()
}

func dequantize4AVX2(g *generator) {
	g.function("Dequantize4AVX2", "(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32, highFirst bool)", `
Dequantize4AVX2 decodes blocks of 4-bit codes, packed as by Quantize4AVX2. The block is
even, or not shorter than dst. A call of 300,000 elements takes about 100 µs.

	for i := range dst {
		dst[i] = table[order.Get(codes, i)] * scales[i/block]
	}`)
	dst, codes, scales := g.pointer("dst"), g.pointer("codes"), g.pointer("scales")
	d := g.decoder4(g.number("table"), g.resolve(g.Param("highFirst")))
	g.blocks(g.length("dst"), func(n gp) {
		scale := g.YMM()
		g.VBROADCASTSS(at(scales, 0), scale)
		g.elements(n, func(width int) {
			for i := 0; i < width; i += 8 {
				y := g.YMM()
				g.VPBROADCASTD(at(codes, i/2), y)
				y = d.decode(y)
				g.VMULPS(scale, y, y)
				g.storeFloats(y, dst, 4*i, 8)
			}
			g.advance(codes, width/2)
			g.advance(dst, 4*width)
		}, 32, 8)
		g.upToSeven(n, func(kept vec) {
			y := g.loadPairs(codes, n)
			y = d.decode(y)
			g.VMULPS(scale, y, y)
			g.VMASKMOVPS(y, kept, at(dst, 0))
			g.LEAQ(mem{Base: dst, Index: n, Scale: 4}, dst)
			g.INCQ(n)
			g.SHRQ(operand.Imm(1), n)
			g.ADDQ(n, codes)
		})
		g.advance(scales, 4)
	})
	g.end()
}

// decoder4 looks 4-bit codes up in a table of 16.
type decoder4 struct {
	g                 *generator
	low, high, shifts vec
}

func (g *generator) decoder4(table gp, highFirst mem) decoder4 {
	d := decoder4{g, g.YMM(), g.YMM(), g.wide("shifts", 0, 4, 8, 12, 16, 20, 24, 28)}
	g.VMOVUPS(at(table, 0), d.low)
	g.VMOVUPS(at(table, 32), d.high)
	low := g.label("low")
	g.CMPB(highFirst, operand.Imm(0))
	g.JE(operand.LabelRef(low))
	g.VMOVDQU(g.data("shifts", 4, 0, 12, 8, 20, 16, 28, 24), d.shifts)
	g.Label(low)
	return d
}

// decode gives the values of the 8 codes that every lane holds.
func (d decoder4) decode(y vec) vec {
	low, high := d.g.YMM(), d.g.YMM()
	d.g.VPSRLVD(d.shifts, y, y)
	d.g.VPERMPS(d.low, y, low)
	d.g.VPERMPS(d.high, y, high)
	d.g.VPSLLD(operand.Imm(28), y, y)
	d.g.VBLENDVPS(y, high, low, low)
	return low
}

// loadPairs loads n codes, 1 to 7, into every lane.
func (g *generator) loadPairs(codes, n gp) vec {
	bytes, all, left := g.GP32(), g.GP32(), g.GP64()
	g.XORL(all, all)
	g.MOVQ(n, left)
	g.INCQ(left)
	g.SHRQ(operand.Imm(1), left)
	g.loop(left, 1, func() {
		g.MOVBLZX(mem{Base: codes, Index: left, Scale: 1, Disp: -1}, bytes)
		g.SHLL(operand.Imm(8), all)
		g.ORL(bytes, all)
	})
	y := g.YMM()
	g.VMOVD(all, y.AsX())
	g.VPBROADCASTD(y.AsX(), y)
	return y
}
