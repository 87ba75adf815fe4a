package main

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
)

// unroll is the number of k that a pass of the inner loop takes.
const unroll = 4

// cacheLine is a line of the caches in float32.
const cacheLine = 16

// chain is a way to compute the elements of products.
type chain struct {
	name string
	// paired chains add pairs of products as VDPBF16PS does, dotted ones by it, from pairs
	// of bf16 numbers.
	paired, dotted bool
	// rounded results are bf16 numbers, in the form that operands have.
	rounded bool
	// packing chains find b in a matrix, and make the strip. In-place ones find a in the
	// rows of a matrix.
	packing, inPlace bool
	// corner chains are those of a block on the diagonal of a symmetric product.
	corner bool
}

var (
	plain   = chain{}
	paired  = chain{name: "Pairs", paired: true}
	rounded = chain{name: "BF16", paired: true, rounded: true}

	dotted        = chain{name: "Pairs", dotted: true}
	dottedRounded = chain{name: "BF16", dotted: true, rounded: true}
)

// products makes the kernels of all products: a block as wide and as high as a strip, and
// one on the diagonal of a symmetric product.
func (g *generator) products(chains ...chain) {
	for _, c := range chains {
		g.product(c, "GemmBlock"+c.name+g.name, g.block)
		if c == plain {
			g.product(chain{packing: true}, "GemmPacking"+g.name, g.block)
			g.product(chain{inPlace: true}, "GemmRows"+g.name, g.block)
			g.product(chain{inPlace: true, packing: true}, "GemmRowsPacking"+g.name, g.block)
		}
		c.corner = true
		g.product(c, "GemmCorner"+c.name+g.name, g.corner)
	}
}

func (g *generator) product(c chain, name string, tiles []tile) {
	operands := "a, b, acc *float32"
	if c.inPlace {
		operands = "a *float32, aStride int, b, acc *float32"
	}
	parameters := "rows, k int, " + operands + ", resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near"
	if c.corner {
		parameters += " *float32"
	} else {
		parameters += ", next *float32, nextStride int"
	}
	if c.packing {
		parameters += ", from *float32, fromStride int"
	}
	g.function(name, "("+parameters+")", g.documentation(c, name, tiles))
	g.table = g.AllocLocal(stageBytes * stageCount)
	if c.paired {
		g.prepareFlush()
	}
	done := "done"
	if tiles[0].rows > few.rows {
		many := "many"
		g.CMPQ(g.arg("rows"), operand.I32(few.rows))
		g.JGT(operand.LabelRef(many))
		g.tile(c, few, !c.corner)
		g.JMP(operand.LabelRef(done))
		g.Label(many)
	}
	for i, t := range tiles {
		g.tile(c, t, i == 0 && !c.corner)
		if i < len(tiles)-1 {
			g.CMPQ(g.arg("rows"), operand.I32(t.row+t.rows))
			g.JLE(operand.LabelRef(done))
		}
	}
	g.Label(done)
	g.end()
}

func (g *generator) documentation(c chain, name string, tiles []tile) string {
	text := fmt.Sprintf("%s multiplies k rows of two strips of %d columns,\na transposed by b, into a block of %[2]d columns.", name, g.width)
	parts := []int{}
	for _, t := range tiles {
		parts = append(parts, t.rows)
	}
	text += fmt.Sprintf(" Rows are worked on in parts of %v, or one of %d\nif there are no more: those of a part begun are all written.", parts, few.rows)
	skip, order := "", ""
	if c.corner {
		text += " The block is one on the\ndiagonal of a symmetric product, of which the lower left quarter is not computed."
		skip = fmt.Sprintf("\n\t\t\tif i >= %d && j < %[1]d {\n\t\t\t\tcontinue\n\t\t\t}", g.width/2)
	}
	text += `

Its chains begin at zero, or resume those in acc; without d they are left in acc for another
call to resume. c may be nil, or d itself. What is at near, in rows as far apart as those of
d, is brought into the cache. A call of k = 1024 takes about ` + g.time(c) + ` µs.`
	if !c.corner {
		text += `
Up to k/4 rows at next, if it is not nil, are brought into it too.`
	}
	if c.packing {
		text += `
First b is copied from a matrix.`
	}
	factor := "a[l*%[1]d+i]"
	if c.inPlace {
		factor = "a[i*aStride+l]"
	}
	add, old, store := "x = FMA("+factor+", b[l*%[1]d+j], x)", "c[i*cStride+j]", "d[i*dStride+j] = x"
	copying := "\n"
	if c.packing {
		copying += `
	for l := range k {
		copy(b[l*%[1]d:][:%[1]d], from[l*fromStride:])
	}`
	}
	switch {
	case c.dotted:
		order = `
The elements of strips are pairs of bf16 numbers, of rows 2l and 2l+1, the first in the low
half.`
		add = "x = VDPBF16PS(a[l*%[1]d+i], b[l*%[1]d+j], x)"
		if c.rounded {
			order += " So are those of c and d: strides are from one pair of rows to the next."
			old, store = "number(c[i/2*cStride+j], i%%2)", "setNumber(&d[i/2*dStride+j], i%%2, bf16.FromFloat32(x))"
		}
	case c.paired:
		order = `
Pairs of products are added as VDPBF16PS does, which is not in the loop: the odd one first,
with subnormal operands and sums flushed to zero.`
		if c.rounded {
			store = "d[i*dStride+j] = bf16.FromFloat32(x).Float32()"
		}
	}
	return text + order + fmt.Sprintf(copying+`
	for i := range rows {
		for j := range %[1]d {`+skip+`
			x := float32(0)
			if resume {
				x = acc[i*%[1]d+j]
			}
			for l := range k {
				`+add+`
			}
			if d == nil {
				acc[i*%[1]d+j] = x
				continue
			}
			x = alpha * (x + 0)
			if c != nil {
				x += float32(beta * `+old+`)
			}
			`+store+`
		}
	}`, g.width)
}

// time is what a block takes at 3 GHz with two multiply-adds a cycle, or half a VDPBF16PS.
func (g *generator) time(c chain) string {
	cycles := 1024 * g.width * g.width / g.lanes / 2
	if c.dotted {
		cycles *= 4
	}
	return fmt.Sprint(cycles / 3000)
}

// steps are the numbers of k that loops take at a time.
func (c chain) steps() []int {
	if c.paired {
		return []int{unroll, 2, 1}
	}
	return []int{unroll, 1}
}

// unit is the number of rows of a result that lie together.
func (c chain) unit() int {
	if c.dotted && c.rounded {
		return 2
	}
	return 1
}

// tile does one of a block's tiles. One that looks ahead brings rows of the next strip
// near.
func (g *generator) tile(c chain, t tile, looksAhead bool) {
	sum := make([][]vec, t.rows)
	for i := range sum {
		for range t.vectors {
			sum[i] = append(sum[i], g.vec())
		}
	}
	each := func(do func(i, v int)) {
		for i := range t.rows {
			for v := range t.vectors {
				do(i, v)
			}
		}
	}
	column := func(v int) int { return (t.vector + v) * g.lanes }
	chains := func(acc gp, i, v int) mem { return at(acc, (t.row+i)*g.width+column(v)) }

	fresh, begin := g.label("fresh"), g.label("begin")
	resume := g.Load(g.Param("resume"), g.GP8())
	g.TESTB(resume, resume)
	g.JZ(operand.LabelRef(fresh))
	unfinished := g.arg("acc")
	each(func(i, v int) { g.VMOVUPS(chains(unfinished, i, v), sum[i][v]) })
	g.JMP(operand.LabelRef(begin))
	g.Label(fresh)
	each(func(i, v int) { g.VXORPS(sum[i][v], sum[i][v], sum[i][v]) })
	g.Label(begin)

	n := g.plan(c, t, looksAhead)
	left, right := g.leftOperand(c, t), g.rightOperand(c, t)
	if c.paired {
		g.LDMXCSR(g.flush)
	}
	g.stages(t, func() { g.multiplyAdd(c, t, sum, left, right, unroll) })
	for _, step := range c.steps()[1:] {
		g.loop(n, step, func() { g.multiplyAdd(c, t, sum, left, right, step) })
	}
	if c.paired {
		g.LDMXCSR(g.usual)
	}

	finish, alone, next := g.label("finish"), g.label("alone"), g.label("next")
	d, dStride := g.arg("d"), g.stride("dStride", 4)
	g.TESTQ(d, d)
	g.JNZ(operand.LabelRef(finish))
	acc := g.arg("acc")
	each(func(i, v int) { g.VMOVUPS(sum[i][v], chains(acc, i, v)) })
	g.JMP(operand.LabelRef(next))

	g.Label(finish)
	old, oldStride := g.arg("c"), g.stride("cStride", 4)
	alpha, zero := g.broadcast("alpha"), g.vec()
	g.VXORPS(zero, zero, zero)
	each(func(i, v int) {
		g.VADDPS(zero, sum[i][v], sum[i][v])
		g.VMULPS(alpha, sum[i][v], sum[i][v])
	})
	g.TESTQ(old, old)
	g.JZ(operand.LabelRef(alone))
	beta := g.broadcast("beta")
	if c.dotted && c.rounded {
		from, r := g.rowPointer(old, oldStride, t.row/2), g.rounding()
		for i := 0; i < t.rows; i += 2 {
			for v := range t.vectors {
				first, second := g.vec(), g.vec()
				g.VPSLLD(operand.U8(16), at(from, column(v)), first)
				g.VPANDD(at(from, column(v)), r.high, second)
				for half, y := range []vec{first, second} {
					g.VMULPS(beta, y, y)
					g.VADDPS(y, sum[i+half][v], sum[i+half][v])
				}
			}
			g.ADDQ(oldStride, from)
		}
	} else {
		from := g.rowPointer(old, oldStride, t.row)
		for i := range t.rows {
			for v := range t.vectors {
				y := g.vec()
				g.VMULPS(at(from, column(v)), beta, y)
				g.VADDPS(y, sum[i][v], sum[i][v])
			}
			g.ADDQ(oldStride, from)
		}
	}
	g.Label(alone)
	r := rounding{}
	if c.rounded {
		r = g.rounding()
		each(func(i, v int) { r.nearest(sum[i][v]) })
	}
	if c.dotted && c.rounded {
		to := g.rowPointer(d, dStride, t.row/2)
		for i := 0; i < t.rows; i += 2 {
			for v := range t.vectors {
				r.pair(sum[i][v], sum[i+1][v])
				g.VMOVUPS(sum[i][v], at(to, column(v)))
			}
			g.ADDQ(dStride, to)
		}
	} else {
		to := g.rowPointer(d, dStride, t.row)
		for i := range t.rows {
			for v := range t.vectors {
				g.VMOVUPS(sum[i][v], at(to, column(v)))
			}
			g.ADDQ(dStride, to)
		}
	}
	g.Label(next)
}

// rowPointer is the address of a row.
func (g *generator) rowPointer(p, stride gp, row int) gp {
	q := g.GP64()
	g.IMUL3Q(operand.I32(row), stride, q)
	g.ADDQ(p, q)
	return q
}

// rows are what lies at distances of a stride.
type rows struct{ p, stride gp }

// A table on the stack divides the passes of a tile's inner loop into stages, each with a
// row of memory that is asked for with every pass: a pointer, a stride, a number of passes.
const (
	stageCount = 5
	stageBytes = 24
)

// plan fills the table: first come the rows that the tile's end needs and those that the
// next tile begins with, and then, if it looks ahead, rows of the next strip. What is left
// of k is returned.
func (g *generator) plan(c chain, t tile, looksAhead bool) (rest gp) {
	left, none := g.arg("k"), g.GP64()
	g.SHRQ(operand.U8(bits.TrailingZeros(unroll)), left)
	g.XORQ(none, none)
	stages := g.table
	// put adds a stage with so many rows, unless one of the pointers is nil.
	put := func(p, stride gp, rows int, unless ...gp) {
		passes := g.GP64()
		g.MOVQ(operand.I32(rows), passes)
		for _, u := range unless {
			g.TESTQ(u, u)
			g.CMOVQEQ(none, passes)
		}
		g.CMPQ(passes, left)
		g.CMOVQGT(left, passes)
		g.SUBQ(passes, left)
		for _, word := range []gp{p, stride, passes} {
			g.MOVQ(word, stages)
			stages = stages.Offset(8)
		}
	}
	d := g.arg("d")
	for _, of := range [][2]string{{"d", "dStride"}, {"c", "cStride"}, {"near", "dStride"}} {
		p, stride := g.arg(of[0]), g.stride(of[1], 4)
		put(g.rowPointer(p, stride, t.row/c.unit()), stride, t.rows/c.unit(), p, d)
	}

	acc, stride, resume := g.arg("acc"), g.GP64(), g.GP64()
	g.advance(acc, 4*g.width*(t.row+t.rows))
	g.MOVQ(operand.I32(4*g.width), stride)
	g.MOVBQZX(g.Load(g.Param("resume"), g.GP8()), resume)
	put(acc, stride, t.rows, resume)

	next, nextStride := g.arg("b"), none
	if looksAhead {
		b := next
		next, nextStride = g.arg("next"), g.stride("nextStride", 4)
		g.TESTQ(next, next)
		g.CMOVQEQ(b, next)
	}
	put(next, nextStride, math.MaxInt32)

	rest = g.arg("k")
	g.ANDQ(operand.I32(unroll-1), rest)
	return rest
}

// stages runs body, which takes a pass of the inner loop, as planned.
func (g *generator) stages(t tile, body func()) {
	stages, row, stride, passes := g.GP64(), g.GP64(), g.GP64(), g.GP64()
	begin, again, done := g.label("stage"), g.label("loop"), g.label("done")
	g.LEAQ(g.table, stages)
	g.Label(begin)
	g.MOVQ(mem{Base: stages}, row)
	g.MOVQ(mem{Base: stages, Disp: 8}, stride)
	g.MOVQ(mem{Base: stages, Disp: 16}, passes)
	g.TESTQ(passes, passes)
	g.JZ(operand.LabelRef(done))
	g.Label(again)
	for v := 0; v < t.vectors; v += cacheLine / g.lanes {
		g.PREFETCHT0(at(row, (t.vector+v)*g.lanes))
	}
	g.ADDQ(stride, row)
	body()
	g.DECQ(passes)
	g.JNZ(operand.LabelRef(again))
	g.Label(done)
	g.advance(stages, stageBytes)
	end := g.GP64()
	g.LEAQ(g.table.Offset(stageBytes*stageCount), end)
	g.CMPQ(stages, end)
	g.JNE(operand.LabelRef(begin))
}

// left is the operand whose elements are broadcast, right the one whose vectors are
// loaded.
type (
	left struct {
		p      []gp // of a strip, or of every rowsAPointer rows
		stride gp
	}
	right struct {
		p    gp
		from rows // to be copied to p
	}
)

// rowsAPointer are reached from one pointer, at one or two times the stride.
const rowsAPointer = 3

func (g *generator) leftOperand(c chain, t tile) left {
	a := g.arg("a")
	if !c.inPlace {
		return left{p: []gp{a}}
	}
	l := left{stride: g.stride("aStride", 4)}
	for row := 0; row < t.rows; row += rowsAPointer {
		l.p = append(l.p, g.rowPointer(a, l.stride, t.row+row))
	}
	return l
}

func (g *generator) rightOperand(c chain, t tile) right {
	r := right{p: g.arg("b")}
	if c.packing && t.row == 0 {
		r.from = rows{g.arg("from"), g.stride("fromStride", 4)}
	}
	return r
}

// multiplyAdd adds the products of so many layers to the sums.
func (g *generator) multiplyAdd(c chain, t tile, sum [][]vec, a left, b right, layers int) {
	element := func(layer, row int) mem {
		if !c.inPlace {
			return at(a.p[0], layer*g.width+t.row+row)
		}
		m := at(a.p[row/rowsAPointer], layer)
		if scale := row % rowsAPointer; scale > 0 {
			m.Index, m.Scale = a.stride, uint8(scale)
		}
		return m
	}
	for u := range layers {
		if c.paired && layers > 1 {
			u ^= 1
		}
		row := []vec{}
		for v := range t.vectors {
			y, strip := g.vec(), at(b.p, u*g.width+(t.vector+v)*g.lanes)
			if b.from.p == nil {
				g.VMOVUPS(strip, y)
			} else {
				g.VMOVUPS(at(b.from.p, v*g.lanes), y)
				g.VMOVUPS(y, strip)
			}
			row = append(row, y)
		}
		if b.from.p != nil {
			g.ADDQ(b.from.stride, b.from.p)
		}
		for i := range t.rows {
			x := g.vec()
			g.VBROADCASTSS(element(u, i), x)
			for v, y := range row {
				if c.dotted {
					g.dot(y, x, sum[i][v])
				} else {
					g.VFMADD231PS(y, x, sum[i][v])
				}
			}
		}
	}
	if c.inPlace {
		for _, p := range a.p {
			g.advance(p, 4*layers)
		}
	} else {
		g.advance(a.p[0], 4*layers*g.width)
	}
	g.advance(b.p, 4*layers*g.width)
}
