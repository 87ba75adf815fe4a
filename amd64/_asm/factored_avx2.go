package main

import (
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
)

// factorChunk is the number of rows whose squares are added to a column before the sums
// of such chunks are.
const factorChunk = 64

// factorAhead is how many rows ahead of its use a part of a row is fetched, since the
// processor does not foresee rows that lie far apart.
const factorAhead = 8

func factorRowsDoc(name, of, value string) string {
	return name + ` sets each of means to the mean square of a row of g times scale.

	reference.FactorRows(means, reference.Floats{` + of + `: ` + value + `}, cols, scale)`
}

func factorSumsDoc(name string, f format) string {
	return name + ` sets each of the sums to that of the squares of 4096 elements of g times
scale, the last of what is left, in the order of the sums of squares. Sixteen chunks take
about 20 µs.

	for i, v := range g {
		x[i] = ` + f.widened("v") + ` * scale
	}
	reference.ChunkSums(sums, reference.Floats{F32: x})`
}

func columnSquaresDoc(name string, f format) string {
	return name + ` adds to totals the sums of the squares of the first columns of g times
scale; g has rows of stride elements. Sums of 64 rows are added one after another. A call of
200,000 elements takes about 100 µs.

	for lo := 0; lo < rows; lo += 64 {
		for j := range totals {
			sum := 0.0
			for i := lo; i < min(lo+64, rows); i++ {
				x := float64(` + f.widened("g[i*stride+j]") + ` * scale)
				sum += x * x
			}
			totals[j] += sum
		}
	}`
}

// widened is the Go expression of x in float32.
func (f format) widened(x string) string {
	if f == bfloat16s {
		return "bf16.BF16(" + x + ").Float32()"
	}
	return x
}

var factorFormats = []struct {
	suffix, of, value string
	format            format
}{
	{"", "F32", "g", float32s},
	{"BF16", "BF16", "g as bf16", bfloat16s},
}

func factoredAVX2(g *generator) {
	for _, f := range factorFormats {
		name := "FactorRows" + f.suffix + "AVX2"
		g.function(name, "(means []float32, g []"+f.format.goType+", cols int, scale float32)", factorRowsDoc(name, f.of, f.value))
		s := g.summation(cursor{g.pointer("g"), f.format.bytes})
		s.scale = g.parameter("scale")
		g.factorRows(s.chunk)

		name = "FactorSums" + f.suffix + "AVX2"
		g.function(name, "(sums []float64, g []"+f.format.goType+", scale float32)", factorSumsDoc(name, f.format))
		s = g.summation(cursor{g.pointer("g"), f.format.bytes})
		s.scale = g.parameter("scale")
		s.chunks(g.pointer("sums"), g.length("sums"), g.length("g"))
		g.end()

		name = "ColumnSquares" + f.suffix + "AVX2"
		g.function(name, "(totals []float64, g []"+f.format.goType+", rows, stride int, scale float32)", columnSquaresDoc(name, f.format))
		scale := g.parameter("scale")
		c := g.columnSquares(f.format)
		columns := g.length("totals")
		for _, width := range []int{32, 4, 1} {
			g.loop(columns, width, func() { c.addAVX2(width, scale) })
		}
		g.end()
	}
}

// factorRows ends a function that has the sum of a chunk of elements, which moves its
// pointer.
func (g *generator) factorRows(chunk func(n gp) vec) {
	means, rows, cols := g.pointer("means"), g.length("means"), g.number("cols")
	count := g.XMM()
	g.VCVTSI2SDQ(cols, count, count)
	g.loop(rows, 1, func() {
		left, total := g.GP64(), g.XMM()
		g.MOVQ(cols, left)
		g.VXORPD(total, total, total)
		g.loop(left, 1, func() {
			g.VADDSD(chunk(g.nextChunk(left)), total, total)
			g.INCQ(left) // since the loop counts chunks
		})
		g.VDIVSD(count, total, total)
		g.VCVTSD2SS(total, total, total)
		g.VMOVSS(total, at(means, 0))
		g.advance(means, 4)
	})
	g.end()
}

// columnSquares goes over columns of gradients.
type columnSquares struct {
	g                           *generator
	format                      format
	totals, first, rows, stride gp
}

func (g *generator) columnSquares(f format) columnSquares {
	c := columnSquares{g, f, g.pointer("totals"), g.pointer("g"), g.number("rows"), g.number("stride")}
	g.SHLQ(operand.Imm(uint64(f.bytes/2)), c.stride)
	return c
}

// eachChunk runs begin, row for each row at its pointer, and end for each chunk of rows,
// and fetches what follows of columns that take some bytes of a row.
func (c columnSquares) eachChunk(bytes int, begin func(), row func(p gp), end func()) {
	p, ahead, left, chunk := c.g.GP64(), c.g.GP64(), c.g.GP64(), c.g.GP64()
	c.g.MOVQ(c.first, p)
	c.g.MOVQ(c.stride, ahead)
	c.g.SHLQ(operand.Imm(uint64(bits.TrailingZeros(factorAhead))), ahead)
	c.g.ADDQ(p, ahead)
	c.g.MOVQ(c.rows, left)
	c.g.loop(left, 1, func() {
		begin()
		c.g.MOVL(operand.U32(factorChunk), chunk.As32())
		c.g.CMPQ(left, chunk)
		c.g.CMOVQCS(left, chunk)
		c.g.SUBQ(chunk, left)
		c.g.INCQ(left) // since the loop counts chunks
		c.g.loop(chunk, 1, func() {
			for line := 0; line < bytes; line += 64 {
				c.g.PREFETCHT0(at(ahead, line))
			}
			row(p)
			c.g.ADDQ(c.stride, p)
			c.g.ADDQ(c.stride, ahead)
		})
		end()
	})
}

// addAVX2 adds the squares of the next columns.
func (c columnSquares) addAVX2(width int, scale vec) {
	lanes := min(width, 4)
	sums := make([]vec, max(width/4, 1))
	for i := range sums {
		sums[i] = c.g.YMM()
	}
	c.eachChunk(width*c.format.bytes, func() {
		for _, sum := range sums {
			c.g.VXORPD(sum, sum, sum)
		}
	}, func(p gp) {
		for i, sum := range sums {
			y := c.g.YMM()
			x := y.AsX()
			switch {
			case lanes == 1:
				c.g.VMULSS(c.g.load(c.format, p, 1).AsX(), scale.AsX(), x)
			case c.format == bfloat16s:
				c.g.VPMOVZXWD(at(p, 8*i), x)
				c.g.VPSLLD(operand.Imm(16), x, x)
				c.g.VMULPS(scale.AsX(), x, x)
			default:
				c.g.VMULPS(at(p, 16*i), scale.AsX(), x)
			}
			c.g.VCVTPS2PD(x, y)
			c.g.VFMADD231PD(y, y, sum)
		}
	}, func() {
		for i, sum := range sums {
			if lanes == 1 {
				c.g.VADDSD(at(c.totals, 0), sum.AsX(), sum.AsX())
				c.g.VMOVSD(sum.AsX(), at(c.totals, 0))
			} else {
				c.g.VADDPD(at(c.totals, 32*i), sum, sum)
				c.g.VMOVUPD(sum, at(c.totals, 32*i))
			}
		}
	})
	c.g.advance(c.totals, 8*width)
	c.g.advance(c.first, c.format.bytes*width)
}
