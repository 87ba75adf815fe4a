package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// unroll is the number of k that a pass of the inner loop takes.
const unroll = 4

// chain is a way to compute the elements of products.
type chain struct {
	name string
	// paired chains add pairs of products as VDPBF16PS does, dotted ones by it, from pairs
	// of bf16 numbers.
	paired, dotted bool
	// rounded results are bf16 numbers, in the form that operands have.
	rounded bool
	// packing chains find b in a matrix, and make the strip.
	packing bool
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
		g.product(c, "GemmBlock"+c.name+g.name, true, g.block)
		if c == plain {
			packing := c
			packing.packing = true
			g.product(packing, "GemmPacking"+g.name, true, g.block)
		}
		g.product(c, "GemmCorner"+c.name+g.name, false, g.corner)
	}
}

func (g *generator) product(c chain, name string, limited bool, tiles []tile) {
	parameters := "k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near"
	if limited {
		parameters = "rows, " + parameters + ", next *float32, nextStride int"
	} else {
		parameters += " *float32"
	}
	if c.packing {
		parameters += ", from *float32, fromStride int"
	}
	g.function(name, "("+parameters+")", g.documentation(c, name, limited))
	a, acc := g.arg("a"), g.arg("acc")
	d, dStride := g.arg("d"), g.stride("dStride", 4)
	old, oldStride := g.arg("c"), g.stride("cStride", 4)
	if c.paired {
		g.prepareFlush()
	}
	done := "done"
	for i, t := range tiles {
		g.tile(c, t, a, acc, d, dStride, old, oldStride, limited && i == 0)
		if limited && i < len(tiles)-1 {
			g.CMPQ(g.arg("rows"), operand.I32(t.row+t.rows))
			g.JLE(operand.LabelRef(done))
		}
	}
	g.Label(done)
	g.end()
}

func (g *generator) documentation(c chain, name string, limited bool) string {
	text := fmt.Sprintf("%s multiplies k rows of two strips of %d columns,\na transposed by b, into a block of %[2]d columns.", name, g.width)
	rows, skip, order := "rows", "", ""
	if limited {
		parts := []int{}
		for _, t := range g.block {
			parts = append(parts, t.rows)
		}
		text += fmt.Sprintf(" Rows are worked on in parts of %v: those of a part begun are all\nwritten.", parts)
	} else {
		text += " The block is one on the diagonal of a symmetric product, of which the\nlower left quarter is not computed."
		rows = fmt.Sprint(g.width)
		skip = fmt.Sprintf("\n\t\t\tif i >= %d && j < %[1]d {\n\t\t\t\tcontinue\n\t\t\t}", g.width/2)
	}
	text += `

Its chains begin at zero, or resume those in acc; without d they are left in acc for another
call to resume. c may be nil, or d itself. What is at near, in rows as far apart as those of
d, is brought into the cache. A call of k = 1024 takes about ` + g.time(c) + ` µs.`
	if limited {
		text += `
Up to k/4 rows at next, if it is not nil, are brought into the second-level cache.`
	}
	if c.packing {
		text += `
First b is copied from a matrix.`
	}
	add, old, store := "x = FMA(a[l*%[1]d+i], b[l*%[1]d+j], x)", "c[i*cStride+j]", "d[i*dStride+j] = x"
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
	for i := range `+rows+` {
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

// tile does one of a block's tiles.
func (g *generator) tile(c chain, t tile, a, acc, d, dStride, old, oldStride gp, looksAhead bool) {
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
	chains := func(i, v int) mem { return at(acc, (t.row+i)*g.width+column(v)) }

	fresh, begin := g.label("fresh"), g.label("begin")
	resume := g.Load(g.Param("resume"), g.GP8())
	g.TESTB(resume, resume)
	g.JZ(operand.LabelRef(fresh))
	each(func(i, v int) { g.VMOVUPS(chains(i, v), sum[i][v]) })
	g.JMP(operand.LabelRef(begin))
	g.Label(fresh)
	each(func(i, v int) { g.VXORPS(sum[i][v], sum[i][v], sum[i][v]) })
	g.Label(begin)

	n, p, q := g.arg("k"), g.copyOf(a), g.arg("b")
	if c.paired {
		g.LDMXCSR(g.flush)
	}
	first, ahead := g.prefetched(c, t, n, d, dStride, old, oldStride)
	var source rows
	if c.packing && t.row == 0 {
		source = rows{g.arg("from"), g.stride("fromStride", 4)}
	}
	g.loop(first, unroll, func() {
		for _, row := range ahead {
			for v := 0; v < t.vectors; v += 16 / g.lanes {
				g.PREFETCHT0(at(row.p, column(v)))
			}
			g.ADDQ(row.stride, row.p)
		}
		g.multiplyAdd(c, t, sum, p, q, source, unroll)
	})
	g.ADDQ(first, n)
	whole := func() { g.multiplyAdd(c, t, sum, p, q, source, unroll) }
	if looksAhead {
		next, nextStride := g.arg("next"), g.stride("nextStride", 4)
		g.TESTQ(next, next)
		g.CMOVQEQ(q, next)
		whole = func() {
			for v := 0; v < t.vectors; v += 16 / g.lanes {
				g.PREFETCHT1(at(next, column(v)))
			}
			g.ADDQ(nextStride, next)
			g.multiplyAdd(c, t, sum, p, q, source, unroll)
		}
	}
	g.loop(n, unroll, whole)
	for _, step := range c.steps()[1:] {
		g.loop(n, step, func() { g.multiplyAdd(c, t, sum, p, q, source, step) })
	}
	if c.paired {
		g.LDMXCSR(g.usual)
	}

	finish, alone, next := g.label("finish"), g.label("alone"), g.label("next")
	g.TESTQ(d, d)
	g.JNZ(operand.LabelRef(finish))
	each(func(i, v int) { g.VMOVUPS(sum[i][v], chains(i, v)) })
	g.JMP(operand.LabelRef(next))

	g.Label(finish)
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

type rows struct{ p, stride gp }

// prefetched are the rows that a tile's end needs. They are asked for one by one in the
// first part of the chains, which is taken from n.
func (g *generator) prefetched(c chain, t tile, n, d, dStride, old, oldStride gp) (first gp, ahead []rows) {
	first = g.GP64()
	begin := g.label("unfinished")
	g.XORQ(first, first)
	to, from, near := g.rowPointer(d, dStride, t.row/c.unit()), g.rowPointer(old, oldStride, t.row/c.unit()), g.arg("near")
	g.TESTQ(old, old)
	g.CMOVQEQ(to, from)
	mirror := g.rowPointer(near, dStride, t.row/c.unit())
	g.TESTQ(near, near)
	g.CMOVQEQ(to, mirror)
	g.TESTQ(d, d)
	g.JZ(operand.LabelRef(begin))
	g.MOVQ(operand.I32(unroll*t.rows/c.unit()), first)
	g.CMPQ(n, first)
	g.CMOVQLT(n, first)
	g.SUBQ(first, n)
	g.Label(begin)
	return first, []rows{{to, dStride}, {from, oldStride}, {mirror, dStride}}
}

// multiplyAdd adds the products of so many layers to the sums.
func (g *generator) multiplyAdd(c chain, t tile, sum [][]vec, p, q gp, source rows, layers int) {
	for u := range layers {
		if c.paired && layers > 1 {
			u ^= 1
		}
		row := []vec{}
		for v := range t.vectors {
			y, strip := g.vec(), at(q, u*g.width+(t.vector+v)*g.lanes)
			if source.p == nil {
				g.VMOVUPS(strip, y)
			} else {
				g.VMOVUPS(at(source.p, v*g.lanes), y)
				g.VMOVUPS(y, strip)
			}
			row = append(row, y)
		}
		if source.p != nil {
			g.ADDQ(source.stride, source.p)
		}
		for i := range t.rows {
			x := g.vec()
			g.VBROADCASTSS(at(p, u*g.width+t.row+i), x)
			for v, y := range row {
				if c.dotted {
					g.dot(y, x, sum[i][v])
				} else {
					g.VFMADD231PS(y, x, sum[i][v])
				}
			}
		}
	}
	g.advance(p, 4*layers*g.width)
	g.advance(q, 4*layers*g.width)
}
