package main

import "fmt"

// line makes the product of a row with itself, one chain, which nothing may split.
func (g *generator) line(c chain) {
	name := "GemmLine" + c.name + g.name
	const cycles = 4 // an element
	order := ""
	if c.paired {
		order = `
Pairs of products are added as VDPBF16PS does, which is not in the loop: the odd one first,
with subnormal operands and sums flushed to zero.`
	}
	g.function(name, "(x []float32, sum float32) float32", fmt.Sprintf(`
%s continues the chain of a row's product with itself. A call of 32 Ki elements takes
about %d µs.%s

	for _, v := range x {
		sum = FMA(v, v, sum)
	}
	return sum`, name, cycles<<15/3000, order))
	x := g.Load(g.Param("x").Base(), g.GP64()).(gp)
	left := g.Load(g.Param("x").Len(), g.GP64()).(gp)
	sum := g.broadcast("sum")
	if c.paired {
		g.prepareFlush()
		g.LDMXCSR(g.flush)
	}
	for _, step := range c.steps() {
		g.loop(left, step, func() {
			for u := range step {
				if c.paired && step > 1 {
					u ^= 1
				}
				y := g.vec()
				g.VBROADCASTSS(at(x, u), y)
				g.VFMADD231PS(y, y, sum)
			}
			g.advance(x, 4*step)
		})
	}
	if c.paired {
		g.LDMXCSR(g.usual)
	}
	result, err := g.ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	g.VMOVSS(sum.AsX(), result.Addr)
	g.end()
}
