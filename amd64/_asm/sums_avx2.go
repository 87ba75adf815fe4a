package main

import "github.com/mmcloughlin/avo/operand"

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
	g.VMOVSS(g.absmax(x, n), g.result())
	g.end()

	for _, f := range []struct {
		name, of, value string
		bytes           int
		load            func(p gp) []vec
	}{
		{"SumSquaresAVX2", "float32", "float64(v)", 4, func(p gp) []vec {
			var y []vec
			for lane := 0; lane < sumLanes; lane += 4 {
				wide := g.YMM()
				g.VCVTPS2PD(at(p, 4*lane), wide)
				y = append(y, wide)
			}
			return y
		}},
		{"SumSquaresBF16AVX2", "uint16", "float64(bf16.BF16(v).Float32())", 2, func(p gp) []vec {
			var y []vec
			for lane := 0; lane < sumLanes; lane += 4 {
				wide := g.YMM()
				g.VPMOVZXWD(at(p, 2*lane), wide.AsX())
				g.VPSLLD(operand.Imm(16), wide.AsX(), wide.AsX())
				g.VCVTPS2PD(wide.AsX(), wide)
				y = append(y, wide)
			}
			return y
		}},
	} {
		g.sumSquares(f.name, f.of, f.value, f.bytes, f.load)
	}

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

// absmax is the largest magnitude of n floats.
func (g *generator) absmax(x, n gp) vec {
	magnitude := g.broadcast(0x7fffffff)
	var largest [4]vec
	for i := range largest {
		largest[i] = g.YMM()
		g.VPXOR(largest[i], largest[i], largest[i])
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

func (g *generator) sumSquares(name, of, value string, bytes int, load func(p gp) []vec) {
	g.function(name, "(sums []float64, x []"+of+")", name+` 
sets each of the sums to that of the squares of 4096 elements of x, the last of what is
left, in a fixed order. Sixteen chunks take about 20 µs.

	for c := range sums {
		var lanes [16]float64
		for i, v := range x[c*4096 : min(c*4096+4096, len(x))] {
			lanes[i%16] += `+value+` * `+value+`
		}
		for width := 8; width > 0; width /= 2 {
			for j := range width {
				lanes[j] += lanes[j+width]
			}
		}
		sums[c] = lanes[0]
	}`)
	sums, chunks := g.pointer("sums"), g.length("sums")
	x, n := g.pointer("x"), g.length("x")
	tail := g.AllocLocal(sumLanes * bytes)
	var lanes [4]vec
	for i := range lanes {
		lanes[i] = g.YMM()
	}
	add := func(p gp) {
		for i, y := range load(p) {
			g.VMULPD(y, y, y)
			g.VADDPD(y, lanes[i], lanes[i])
		}
	}
	g.loop(chunks, 1, func() {
		for _, y := range lanes {
			g.VXORPD(y, y, y)
		}
		chunk := g.GP64()
		g.MOVL(operand.U32(sumChunk), chunk.As32())
		g.CMPQ(n, chunk)
		g.CMOVQCS(n, chunk)
		g.SUBQ(chunk, n)
		g.loop(chunk, sumLanes, func() {
			add(x)
			g.advance(x, sumLanes*bytes)
		})

		whole := operand.LabelRef(g.label("whole"))
		g.TESTQ(chunk, chunk)
		g.JZ(whole)
		zero := g.YMM()
		g.VPXOR(zero, zero, zero)
		for i := 0; i < sumLanes*bytes; i += 32 {
			g.VMOVDQU(zero, tail.Offset(i))
		}
		to, one := g.GP64(), g.GP32()
		g.LEAQ(tail, to)
		g.loop(chunk, 1, func() {
			if bytes == 4 {
				g.MOVL(at(x, 0), one)
				g.MOVL(one, at(to, 0))
			} else {
				g.MOVWLZX(at(x, 0), one)
				g.MOVW(one.As16(), at(to, 0))
			}
			g.advance(x, bytes)
			g.advance(to, bytes)
		})
		g.LEAQ(tail, to)
		add(to)
		g.Label(string(whole))

		g.VADDPD(lanes[2], lanes[0], lanes[0])
		g.VADDPD(lanes[3], lanes[1], lanes[1])
		g.VADDPD(lanes[1], lanes[0], lanes[0])
		high := g.XMM()
		g.VEXTRACTF128(operand.Imm(1), lanes[0], high)
		g.VADDPD(high, lanes[0].AsX(), high)
		second := g.XMM()
		g.VUNPCKHPD(high, high, second)
		g.VADDSD(second, high, high)
		g.VMOVSD(high, at(sums, 0))
		g.advance(sums, 8)
	})
	g.end()
}
