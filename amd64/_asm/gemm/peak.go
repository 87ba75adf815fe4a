package main

import "fmt"

// peaks makes the loops that products are measured against.
func (g *generator) peak(c chain) {
	const chains = 14
	name, what, work := "PeakFMA"+g.name, "fused multiply-adds", chains*g.lanes
	if c.dotted {
		name, what, work = "PeakDot"+g.name, "multiply-adds", 2*work
	}
	g.function(name, "(n int)", fmt.Sprintf(`
%s does %d %s n times, as fast as the processor can: what the speed of products is
compared with.`, name, work, what))
	n, factor := g.arg("n"), g.vec()
	g.VXORPS(factor, factor, factor)
	sums := make([]vec, chains)
	for i := range sums {
		sums[i] = g.vec()
		g.VXORPS(sums[i], sums[i], sums[i])
	}
	g.loop(n, 1, func() {
		for _, sum := range sums {
			if c.dotted {
				g.dot(factor, factor, sum)
			} else {
				g.VFMADD231PS(factor, factor, sum)
			}
		}
	})
	g.end()
}
