package main

import "github.com/mmcloughlin/avo/operand"

const (
	bandRows    = 64   // whose squares are added to a column before the sums of such bands are
	bandColumns = 1024 // of a call: of each row a page of memory
)

func factorBandDoc(name string, f format) string {
	return name + ` adds the squares of the first columns of g, up to 1024, times scale to the
sums, and those of each row, in the order of the sums of squares, to its lanes. The first
columns of a chunk begin the lanes, and after the last ones their sum is added to the total. g
has a row of stride elements for each total, up to 64. Sums after the columns may change too.
A call of 64 rows takes about 10 µs.

	for i := range totals {
		if first {
			lanes[i] = [16]float64{}
		}
		for j := range columns {
			x := float64(` + f.widened("g[i*stride+j]") + ` * scale)
			lanes[i][j%16] += x * x
			sums[j] += x * x
		}
		if last {
			totals[i] += sum(lanes[i])
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

// factorFormats are those of gradients, by the names of their functions.
var factorFormats = []struct {
	suffix string
	format format
}{{"", float32s}, {"BF16", bfloat16s}}

func factoredAVX2(g *generator) {
	for _, f := range factorFormats {
		b := g.factorBand("FactorBand"+f.suffix+"AVX2", f.format)
		b.scale = g.parameter("scale")
		b.tail = g.AllocLocal(4 * sumLanes)
		lanes := [4]vec{g.YMM(), g.YMM(), g.YMM(), g.YMM()}
		b.rows(lanes[:], func(y vec) { g.VXORPD(y, y, y) }, func(n gp) { b.rowAVX2(lanes, n) },
			func() vec { return summation{g: g, lanes: lanes}.total() })
		g.end()
	}
}

// factorBand goes over rows of gradients.
type factorBand struct {
	g         *generator
	format    format
	row, sums gp // of the next columns
	stride    gp // in bytes
	lanes     gp
	scale     vec
	tail      mem // room for the last elements of a row, and zeros
}

func (g *generator) factorBand(name string, f format) *factorBand {
	g.function(name, "(totals []float64, lanes *[64][16]float64, sums *[1024]float64, g []"+f.goType+", columns, stride int, scale float32, first, last bool)", factorBandDoc(name, f))
	b := &factorBand{g: g, format: f, row: g.GP64(), sums: g.GP64(), stride: g.number("stride"), lanes: g.number("lanes")}
	if f.bytes == 4 {
		g.SHLQ(operand.Imm(2), b.stride)
	} else {
		g.SHLQ(operand.Imm(1), b.stride)
	}
	return b
}

// rows goes over the rows: it clears or loads the lanes, adds n columns, and keeps the lanes
// or adds their sum to the total.
func (b *factorBand) rows(lanes []vec, clear func(vec), add func(n gp), total func() vec) {
	g := b.g
	totals, rows, from := g.pointer("totals"), g.length("totals"), g.pointer("g")
	g.loop(rows, 1, func() {
		began, begin, kept, keep := g.label("began"), g.label("begin"), g.label("kept"), g.label("keep")
		g.CMPB(g.resolve(g.Param("first")), operand.Imm(0))
		g.JNE(operand.LabelRef(begin))
		for i, lane := range lanes {
			g.VMOVUPD(b.lane(i, len(lanes)), lane)
		}
		g.JMP(operand.LabelRef(began))
		g.Label(begin)
		for _, lane := range lanes {
			clear(lane)
		}
		g.Label(began)
		g.MOVQ(from, b.row)
		g.MOVQ(g.resolve(g.Param("sums")), b.sums)
		add(g.number("columns"))
		g.CMPB(g.resolve(g.Param("last")), operand.Imm(0))
		g.JE(operand.LabelRef(keep))
		sum := total()
		g.VADDSD(at(totals, 0), sum, sum)
		g.VMOVSD(sum, at(totals, 0))
		g.JMP(operand.LabelRef(kept))
		g.Label(keep)
		for i, lane := range lanes {
			g.VMOVUPD(lane, b.lane(i, len(lanes)))
		}
		g.Label(kept)
		g.advance(totals, 8)
		g.advance(b.lanes, 8*sumLanes)
		g.ADDQ(b.stride, from)
	})
}

// lane is where one of so many registers of lanes is kept.
func (b *factorBand) lane(i, of int) mem { return at(b.lanes, 8*sumLanes/of*i) }

// rowAVX2 adds the squares of n elements of a row.
func (b *factorBand) rowAVX2(lanes [4]vec, n gp) {
	g, width := b.g, b.format.bytes
	square := func(i int, x vec) {
		y, sum := g.YMM(), at(b.sums, 32*i)
		g.VCVTPS2PD(x.AsX(), y)
		g.VFMADD231PD(y, y, lanes[i])
		g.VFMADD213PD(sum, y, y)
		g.VMOVUPD(y, sum)
	}
	g.loop(n, sumLanes, func() {
		for i := range lanes {
			x := g.YMM()
			if b.format == bfloat16s {
				g.VPMOVZXWD(at(b.row, 8*i), x.AsX())
				g.VPSLLD(operand.Imm(16), x.AsX(), x.AsX())
				g.VMULPS(b.scale.AsX(), x.AsX(), x.AsX())
			} else {
				g.VMULPS(at(b.row, 16*i), b.scale.AsX(), x.AsX())
			}
			square(i, x)
		}
		g.advance(b.row, width*sumLanes)
		g.advance(b.sums, 8*sumLanes)
	})
	whole := g.label("whole")
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(whole))
	zero, index := g.YMM(), g.GP64()
	g.VPXOR(zero, zero, zero)
	g.VMOVDQU(zero, b.tail)
	g.VMOVDQU(zero, b.tail.Offset(32))
	g.XORL(index.As32(), index.As32())
	g.loop(n, 1, func() {
		x := g.load(b.format, b.row, 1).AsX()
		g.VMULSS(b.scale.AsX(), x, x)
		g.VMOVSS(x, b.tail.Idx(index, 4))
		g.advance(b.row, width)
		g.INCQ(index)
	})
	for i := range lanes {
		x := g.YMM()
		g.VMOVUPS(b.tail.Offset(16*i), x.AsX())
		square(i, x)
	}
	g.Label(whole)
}
