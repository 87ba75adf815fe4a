package main

import "fmt"

func accumulateAVX512(g *generator) {
	for _, pair := range pairs {
		sums, gradients := pair[0], pair[1]
		name := fmt.Sprintf("Accumulate%sG%sAVX512", sums.name, gradients.name)
		g.function(name, fmt.Sprintf("(sums []%s, g []%s)", sums.goType, gradients.goType), accumulateDoc(name, sums, gradients))
		p, pg, n := g.pointer("sums"), g.pointer("g"), g.length("sums")
		store := g.storing512(sums)
		g.elements512(n, 4, 2, func(of part) {
			for i := 0; i < of.registers; i += 2 {
				var z [2]vec
				for j := range z {
					z[j] = g.load512(sums, p, i+j, of)
					g.VADDPS(g.load512(gradients, pg, i+j, of), z[j], z[j])
				}
				store(z, p, i, of)
			}
		}, cursor{p, sums.bytes}, cursor{pg, gradients.bytes})
		g.end()
	}
}

// storing512 prepares to store numbers of a format, as registers i and i+1.
func (g *generator) storing512(f format) func(z [2]vec, p gp, i int, of part) {
	if f == bfloat16s {
		r := g.rounding512()
		return func(z [2]vec, p gp, i int, of part) {
			g.storePair(r.sort(r.mixUpper(r.nearest(z[0]), r.nearest(z[1]))), p, i/2, of)
		}
	}
	return func(z [2]vec, p gp, i int, of part) {
		g.storeFloats512(z[0], p, i, of)
		g.storeFloats512(z[1], p, i+1, of)
	}
}
