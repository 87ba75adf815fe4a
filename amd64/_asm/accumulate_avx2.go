package main

import "fmt"

func accumulateDoc(name string, sums, gradients format) string {
	sum := fmt.Sprintf("%s + %s", sums.widened("sums[i]"), gradients.widened("g[i]"))
	if sums == bfloat16s {
		sum = "uint16(bf16.FromFloat32(" + sum + "))"
	}
	return fmt.Sprintf(`
%s adds %s gradients to %s sums, each rounded once; both have one
length. A call of 500,000 elements takes about 100 µs.

	for i := range sums {
		sums[i] = %s
	}`, name, gradients.prose(), sums.prose(), sum)
}

func accumulateAVX2(g *generator) {
	for _, pair := range pairs {
		sums, gradients := pair[0], pair[1]
		name := fmt.Sprintf("Accumulate%sG%sAVX2", sums.name, gradients.name)
		g.function(name, fmt.Sprintf("(sums []%s, g []%s)", sums.goType, gradients.goType), accumulateDoc(name, sums, gradients))
		p, pg, n := g.pointer("sums"), g.pointer("g"), g.length("sums")
		var r rounding
		if sums == bfloat16s {
			r = g.rounding()
		}
		g.elements(n, func(width int) {
			lanes := min(width, 8)
			var y []vec
			for i := 0; i < width; i += 8 {
				sum := g.loadAt(sums, p, i, lanes)
				g.VADDPS(g.loadAt(gradients, pg, i, lanes), sum, sum)
				y = append(y, sum)
			}
			r.storeAll(g, sums, y, p, lanes)
			g.advance(p, sums.bytes*width)
			g.advance(pg, gradients.bytes*width)
		}, 16, 8, 1)
		g.end()
	}
}

// loadAt loads 8 numbers, or 1, from element i on.
func (g *generator) loadAt(f format, p gp, i, lanes int) vec {
	if f == bfloat16s {
		return g.loadBF16(p, 2*i, lanes)
	}
	return g.loadFloats(p, 4*i, lanes)
}

// storeAll stores any numbers: the lanes of one register or, all of them, of two.
func (r rounding) storeAll(g *generator, f format, y []vec, p gp, lanes int) {
	for i := range y {
		if f == bfloat16s {
			y[i] = r.nearest(y[i])
		} else {
			g.storeFloats(y[i], p, 32*i, lanes)
		}
	}
	if f == bfloat16s {
		g.storeWords(p, 0, lanes, y...)
	}
}
