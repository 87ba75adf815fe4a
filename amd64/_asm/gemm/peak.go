package main

import "fmt"

// peak makes the loop that products are measured against.
func (g *generator) peak() {
	const chains = 12
	name := "PeakFMA" + g.name
	g.function(name, "(n int)", fmt.Sprintf(`
%[1]s does %[3]d*%[2]d fused multiply-adds n times, as fast as the processor can: what
the speed of products is compared with.`, name, g.lanes, chains))
	n, factor := g.arg("n"), g.vec()
	g.VXORPS(factor, factor, factor)
	sums := make([]vec, chains)
	for i := range sums {
		sums[i] = g.vec()
		g.VXORPS(sums[i], sums[i], sums[i])
	}
	g.loop(n, 1, func() {
		for _, sum := range sums {
			g.VFMADD231PS(factor, factor, sum)
		}
	})
	g.end()
}
