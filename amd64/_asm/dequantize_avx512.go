package main

import "github.com/mmcloughlin/avo/operand"

// decoder512 looks 64 codes at a time up in a table of 256 floats, byte by byte: a plane
// is the bytes of one significance.
type decoder512 struct {
	g      *generator
	planes [4][4]vec // of each significance the quarters of the table
	order  vec
}

const planeBytes = 4 * 256

// transposed are the positions of a matrix of 4x4 in the order of its columns.
var transposed = []uint32{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}

// storePlanes takes a table apart into planes: planeBytes of memory.
func (g *generator) storePlanes(table gp, planes mem) {
	turn, order := g.turnedBytes(), g.ZMM()
	g.VMOVDQU32(g.data("transposed", transposed...), order)
	for quarter := range 4 {
		for i := range 4 {
			z := g.ZMM()
			g.VMOVDQU32(at(table, 256*quarter+64*i), z)
			g.VPSHUFB(turn, z, z)
			g.VPERMD(z, order, z) // 16 bytes of each plane
			for plane := range 4 {
				g.VEXTRACTI32X4(operand.Imm(uint64(plane)), z, planes.Offset(256*plane+64*quarter+16*i))
			}
		}
	}
}

// turnedBytes gives VPSHUFB the first bytes of four lanes, their second bytes and so on.
func (g *generator) turnedBytes() vec {
	z := g.ZMM()
	g.VBROADCASTI32X4(g.data("turned", 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703), z)
	return z
}

// decoder512 takes up planes from memory.
func (g *generator) decoder512(planes mem) decoder512 {
	d := decoder512{g: g, order: g.ZMM()}
	g.VMOVDQU32(g.data("transposed", transposed...), d.order)
	for plane := range d.planes {
		for quarter := range d.planes[plane] {
			d.planes[plane][quarter] = g.ZMM()
			g.VMOVDQU64(planes.Offset(256*plane+64*quarter), d.planes[plane][quarter])
		}
	}
	return d
}

// decode gives the values of 64 codes, in four registers; it spoils the codes.
func (d decoder512) decode(codes vec) [4]vec {
	upper, lower := d.g.K(), d.g.K()
	d.g.VPERMD(codes, d.order, codes)
	d.g.VPMOVB2M(codes, upper)
	d.g.KNOTQ(upper, lower)
	var bytes [4]vec
	for i, plane := range d.planes {
		b := d.g.ZMM()
		d.g.VMOVDQA64(codes, b)
		d.g.VPERMI2B(plane[1], plane[0], lower, b)
		d.g.VPERMI2B(plane[3], plane[2], upper, b)
		bytes[i] = b
	}
	var words [4]vec // of lower and upper halves, for lower and upper codes
	for i := range words {
		words[i] = d.g.ZMM()
	}
	d.g.VPUNPCKLBW(bytes[1], bytes[0], words[0])
	d.g.VPUNPCKHBW(bytes[1], bytes[0], words[1])
	d.g.VPUNPCKLBW(bytes[3], bytes[2], words[2])
	d.g.VPUNPCKHBW(bytes[3], bytes[2], words[3])
	values := bytes
	d.g.VPUNPCKLWD(words[2], words[0], values[0])
	d.g.VPUNPCKHWD(words[2], words[0], values[1])
	d.g.VPUNPCKLWD(words[3], words[1], values[2])
	d.g.VPUNPCKHWD(words[3], words[1], values[3])
	return values
}

func dequantizeAVX512(g *generator) {
	g.function("DequantizeAVX512VBMI", "(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32, stream bool)", `
DequantizeAVX512VBMI decodes blocks of 8-bit codes; codes has the length of dst. With
stream, dst goes past the caches where its address is a multiple of 64 and the block one of
16. A call of 500,000 elements takes about 100 µs.

	for i, code := range codes {
		dst[i] = table[code] * scales[i/block]
	}`)
	dst, codes, scales, table := g.pointer("dst"), g.pointer("codes"), g.pointer("scales"), g.number("table")
	planes := g.AllocLocal(planeBytes)
	g.storePlanes(table, planes)
	d := g.decoder512(planes)
	g.decodeBlocks512(dst, scales, func(n gp) [4]vec {
		z := g.ZMM()
		if n == nil {
			g.VMOVDQU64(at(codes, 0), z)
			g.advance(codes, 64)
		} else {
			g.VMOVDQU8_Z(at(codes, 0), g.first(n), z)
			g.ADDQ(n, codes)
		}
		return d.decode(z)
	})
	g.end()
}

// first selects the first n of 64 bytes.
func (g *generator) first(n gp) mask {
	bits, k := g.GP64(), g.K()
	g.MOVQ(operand.I64(-1), bits)
	g.BZHIQ(n, bits, bits)
	g.KMOVQ(bits, k)
	return k
}

// decodeBlocks512 sets dst to what decode gives, times the scale of its block. It decodes
// 64 numbers or, where n is not nil, n, and moves its codes.
func (g *generator) decodeBlocks512(dst, scales gp, decode func(n gp) [4]vec) {
	streamed, n := g.GP64(), g.length("dst")
	g.streamsBlocks(dst, 15, streamed)
	g.blocks(n, func(n gp) {
		plain := operand.LabelRef(g.label("plain"))
		scaled := func(store func(value vec, i int), n gp) {
			for i, value := range decode(n) {
				g.VMULPS_BCST(at(scales, 0), value, value)
				store(value, i)
			}
		}
		g.TESTQ(streamed, streamed)
		g.JZ(plain)
		g.loop(n, 64, func() {
			scaled(func(value vec, i int) { g.VMOVNTPS(value, at(dst, 64*i)) }, nil)
			g.advance(dst, 256)
		})
		g.Label(string(plain))
		g.loop(n, 64, func() {
			scaled(func(value vec, i int) { g.VMOVUPS(value, at(dst, 64*i)) }, nil)
			g.advance(dst, 256)
		})
		none := operand.LabelRef(g.label("none"))
		g.TESTQ(n, n)
		g.JZ(none)
		lanes := g.GP64()
		g.MOVQ(operand.I64(-1), lanes)
		g.BZHIQ(n, lanes, lanes)
		scaled(func(value vec, i int) {
			k := g.K()
			g.KMOVW(lanes.As32(), k)
			g.SHRQ(operand.Imm(lanes512), lanes)
			g.VMOVUPS(value, k, at(dst, 64*i))
		}, n)
		g.LEAQ(mem{Base: dst, Index: n, Scale: 4}, dst)
		g.Label(string(none))
		g.advance(scales, 4)
	})
	g.fence(streamed)
}

// fence orders the stores that went past the caches, if streamed is not 0.
func (g *generator) fence(streamed operand.Op) {
	none := operand.LabelRef(g.label("unfenced"))
	g.CMPQ(streamed, operand.Imm(0))
	g.JEQ(none)
	g.SFENCE()
	g.Label(string(none))
}

// streamsBlocks sets streamed to 1 or 0: whether the argument stream is set, the results
// begin at a multiple of 64 bytes, and so do those of each block, of which the bits in
// rest are 0.
func (g *generator) streamsBlocks(results gp, rest uint32, streamed gp) {
	no, bits := operand.LabelRef(g.label("cached")), g.GP64()
	g.XORL(streamed.As32(), streamed.As32())
	g.CMPB(g.resolve(g.Param("stream")), operand.U8(0))
	g.JE(no)
	g.MOVQ(g.resolve(g.Param("block")), bits)
	g.TESTQ(operand.U32(rest), bits)
	g.JNZ(no)
	g.TESTQ(operand.U32(63), results)
	g.JNZ(no)
	g.INCQ(streamed)
	g.Label(string(no))
}
