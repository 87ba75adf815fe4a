package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// unroll is the number of k that a pass of the inner loop takes.
const unroll = 4

// block makes the one kernel of all products: a block as wide and as high as a strip.
func (g *generator) block() {
	name := "GemmBlock" + g.name
	order, rounding := "", ""
	if g.bfloat16 {
		order = `
Pairs of products are added as VDPBF16PS does, which is not in the loop: the odd one first,
with subnormal operands and sums flushed to zero.`
		rounding = "\n\t\t\td[i*dStride+j] = bf16.FromFloat32(d[i*dStride+j]).Float32()"
	}
	g.function(name, "(rows, k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32)",
		fmt.Sprintf(`
%[1]s multiplies k rows of two strips of %[2]d columns, a transposed by b, into a
block of %[2]d columns. The block's chains begin at zero, or resume those in acc; without d
they are left in acc for another call to resume. c may be nil, or d itself. Rows are worked
on in parts of %[3]v: those of a part begun are all written. A call of k = 1024 takes
about 5 µs.%[4]s

	for i := range rows {
		for j := range %[2]d {
			x := float32(0)
			if resume {
				x = acc[i*%[2]d+j]
			}
			for l := range k {
				x = FMA(a[l*%[2]d+i], b[l*%[2]d+j], x)
			}
			if d == nil {
				acc[i*%[2]d+j] = x
				continue
			}
			x = alpha * (x + 0)
			if c != nil {
				x += float32(beta * c[i*cStride+j])
			}
			d[i*dStride+j] = x%[5]s
		}
	}`, name, g.width, g.parts, order, rounding))
	rows := g.arg("rows")
	a, acc := g.arg("a"), g.arg("acc")
	d, dStride := g.arg("d"), g.stride("dStride")
	c, cStride := g.arg("c"), g.stride("cStride")
	if g.bfloat16 {
		g.prepareFlush()
	}
	done := "done"
	for i, part := range g.parts {
		g.part(part, a, acc, d, dStride, c, cStride)
		if i == len(g.parts)-1 {
			break
		}
		g.SUBQ(operand.I32(part), rows)
		g.JLE(operand.LabelRef(done))
		g.advance(a, 4*part)
		g.advance(acc, 4*part*g.width)
	}
	g.Label(done)
	g.end()
}

// steps are the numbers of k that loops take at a time.
func (g *generator) steps() []int {
	if g.bfloat16 {
		return []int{unroll, 2, 1}
	}
	return []int{unroll, 1}
}

// part does the next rows of a block, and moves d and c past them.
func (g *generator) part(rows int, a, acc, d, dStride, c, cStride gp) {
	vectors := g.width / g.lanes
	sum := make([][]vec, rows)
	for i := range sum {
		for range vectors {
			sum[i] = append(sum[i], g.vec())
		}
	}
	each := func(do func(i, v int)) {
		for i := range rows {
			for v := range vectors {
				do(i, v)
			}
		}
	}
	tile := func(i, v int) mem { return at(acc, i*g.width+v*g.lanes) }

	fresh, begin := g.label("fresh"), g.label("begin")
	resume := g.Load(g.Param("resume"), g.GP8())
	g.TESTB(resume, resume)
	g.JZ(operand.LabelRef(fresh))
	each(func(i, v int) { g.VMOVUPS(tile(i, v), sum[i][v]) })
	g.JMP(operand.LabelRef(begin))
	g.Label(fresh)
	each(func(i, v int) { g.VXORPS(sum[i][v], sum[i][v], sum[i][v]) })
	g.Label(begin)

	for i := range rows {
		g.PREFETCHT0(at(acc, (g.width+i)*g.width)) // of the block that is likely next
	}
	n, p, q := g.arg("k"), g.copyOf(a), g.arg("b")
	g.control(g.flush)
	for _, step := range g.steps() {
		g.loop(n, step, func() {
			for u := range step {
				if g.bfloat16 && step > 1 {
					u ^= 1
				}
				g.multiply(sum, at(p, u*g.width), at(q, u*g.width))
			}
			g.advance(p, 4*step*g.width)
			g.advance(q, 4*step*g.width)
		})
	}

	g.control(g.usual)
	finish, plain, next := g.label("finish"), g.label("plain"), g.label("next")
	g.TESTQ(d, d)
	g.JNZ(operand.LabelRef(finish))
	each(func(i, v int) { g.VMOVUPS(sum[i][v], tile(i, v)) })
	g.JMP(operand.LabelRef(next))

	g.Label(finish)
	alpha, zero := g.broadcast("alpha"), g.vec()
	g.VXORPS(zero, zero, zero)
	each(func(i, v int) {
		g.VADDPS(zero, sum[i][v], sum[i][v])
		g.VMULPS(alpha, sum[i][v], sum[i][v])
	})
	g.TESTQ(c, c)
	g.JZ(operand.LabelRef(plain))
	beta, old := g.broadcast("beta"), g.vec()
	for i := range rows {
		for v := range vectors {
			g.VMULPS(at(c, v*g.lanes), beta, old)
			g.VADDPS(old, sum[i][v], sum[i][v])
		}
		g.ADDQ(cStride, c)
	}
	g.Label(plain)
	for i := range rows {
		for v := range vectors {
			if g.bfloat16 {
				g.round(sum[i][v])
			}
			g.VMOVUPS(sum[i][v], at(d, v*g.lanes))
		}
		g.ADDQ(dStride, d)
	}
	g.Label(next)
}

// multiply adds the products of a column of a with a row of b.
func (g *generator) multiply(sum [][]vec, a, b mem) {
	row := make([]vec, len(sum[0]))
	for v := range row {
		row[v] = g.vec()
		g.VMOVUPS(b.Offset(4*v*g.lanes), row[v])
	}
	for i := range sum {
		x := g.vec()
		g.VBROADCASTSS(a.Offset(4*i), x)
		for v := range row {
			g.VFMADD231PS(row[v], x, sum[i][v])
		}
	}
}
