package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/operand"
)

// The order of the scalars.
const (
	gradScale = iota
	decay
	beta1
	oneMinusBeta1
	beta2
	oneMinusBeta2
	rootCorrection2
	epsilon
	stepSize
	nesterovM
	nesterovG
	scalarCount
)

// format is that of an argument's numbers.
type format struct {
	name, goType string
	bytes        int
}

var (
	float32s  = format{"F32", "float32", 4}
	bfloat16s = format{"BF16", "uint16", 2}
)

// pairs are the formats of weights and gradients.
var pairs = [][2]format{
	{float32s, float32s}, {bfloat16s, bfloat16s}, {bfloat16s, float32s}, {float32s, bfloat16s},
}

// adamW holds what the loop needs.
type adamW struct {
	g       *generator
	scalars mem // each in every lane
	round   rounding
}

// adamW loads the first of the scalars.
func (g *generator) adamW(count int) adamW {
	a := adamW{g: g, scalars: g.AllocLocal(32 * count)}
	s := g.number("s")
	for i := range count {
		y := g.YMM()
		g.VBROADCASTSS(at(s, 4*i), y)
		g.VMOVUPS(y, a.scalar(i))
	}
	return a
}

func (a adamW) scalar(i int) mem { return a.scalars.Offset(32 * i) }

// update is the contract's loop body, on new registers of w, g, m and v.
func (a adamW) update(w, g, m, v vec, nesterov bool) {
	t, d := a.g.YMM(), a.g.YMM()
	a.g.VMULPS(a.scalar(gradScale), g, g)
	a.g.VMULPS(a.scalar(decay), w, w)
	a.g.VMULPS(a.scalar(oneMinusBeta1), g, t)
	a.g.VMULPS(a.scalar(beta1), m, m)
	a.g.VADDPS(t, m, m)
	a.g.VMULPS(a.scalar(oneMinusBeta2), g, t)
	a.g.VMULPS(g, t, t)
	a.g.VMULPS(a.scalar(beta2), v, v)
	a.g.VADDPS(t, v, v)
	a.g.VSQRTPS(v, d)
	a.g.VDIVPS(a.scalar(rootCorrection2), d, d)
	a.g.VADDPS(a.scalar(epsilon), d, d)
	if nesterov {
		a.g.VMULPS(a.scalar(nesterovM), m, t)
		a.g.VMULPS(a.scalar(nesterovG), g, g)
		a.g.VADDPS(g, t, t)
		a.g.VMULPS(a.scalar(stepSize), t, t)
	} else {
		a.g.VMULPS(a.scalar(stepSize), m, t)
	}
	a.g.VDIVPS(d, t, t)
	a.g.VSUBPS(t, w, w)
}

// probe adds to y zero, or NaN in the lanes whose element is not finite: whatever is not
// finite in g or m is so in w too. It may use FMA, since no result comes of it.
func (a adamW) probe(y, zero, w, v vec, width int) {
	for _, x := range []vec{w, v} {
		if width == 1 {
			only := a.g.YMM()
			a.g.VBLENDPS(operand.Imm(1), x, zero, only)
			x = only
		}
		a.g.VFMADD231PS(zero, x, y)
	}
}

func (g *generator) load(f format, p gp, width int) vec {
	if f == bfloat16s {
		return g.loadBF16(p, 0, width)
	}
	return g.loadFloats(p, 0, width)
}

// store stores finite numbers.
func (a adamW) store(f format, y vec, p gp, width int) {
	if f == bfloat16s {
		a.round.storeNearest(y, p, 0, width)
	} else {
		a.g.storeFloats(y, p, 0, width)
	}
}

func adamWFloat32AVX2(g *generator) { adamWElements(g, float32s) }
func adamWBF16AVX2(g *generator)    { adamWElements(g, bfloat16s) }

func adamWElements(g *generator, moments format) {
	for _, pair := range pairs {
		g.adamWFunction("AVX2", pair[0], pair[1], moments)
		g.adamWLoops(pair[0], pair[1], moments)
	}
}

func (g *generator) adamWFunction(suffix string, weights, gradients, moments format) {
	name := fmt.Sprintf("AdamW%sW%sG%s%s", moments.name, weights.name, gradients.name, suffix)
	g.function(name, "(parameters [][11]uintptr, s *[11]float32, nesterov, skip bool) int", fmt.Sprintf(`
%s is a step of AdamW on parameters of %s weights,
%s gradients and %s moments. A parameter is kernels' adamWCall. The scalars are the
first fields of reference.AdamWScalars. It counts the elements that are not finite and, with
skip, leaves them as they were. A call of 100,000 elements takes about 100 µs.

	for i := range w { // of each parameter
		e := s.update(w[i], g[i], m[i], v[i])
		if !e.finite() {
			nonFinite++
			if skip {
				continue
			}
		}
		w[i], m[i], v[i] = e.w, e.m, e.v
	}
	return nonFinite`, name, weights.prose(), gradients.prose(), moments.prose()))
}

func (f format) prose() string { return strings.ToLower(strings.Replace(f.name, "F32", "float32", 1)) }

func (g *generator) adamWLoops(weights, gradients, moments format) {
	a := g.adamW(scalarCount)
	if weights == bfloat16s || moments == bfloat16s {
		a.round = g.rounding()
	}
	zero, counts := g.YMM(), g.YMM()
	g.VXORPS(zero, zero, zero)
	g.VXORPS(counts, counts, counts)

	parameter, end := g.label("parameter"), g.label("end")
	g.Label(parameter)
	call := g.nextCall(end)
	pw, pg, pm, pv := g.word(call, weightsOfCall), g.word(call, gradientsOfCall), g.word(call, mOfCall), g.word(call, vOfCall)
	n := g.word(call, lengthOfCall)

	var outOfLine []func()
	loops := func(nesterov bool) {
		g.elements(n, func(width int) {
			w, m, v := g.load(weights, pw, width), g.load(moments, pm, width), g.load(moments, pv, width)
			a.update(w, g.load(gradients, pg, width), m, v, nesterov)
			probed, found := g.YMM(), g.GP32()
			g.VXORPS(probed, probed, probed)
			a.probe(probed, zero, w, v, width)
			g.VCMPPS(operand.Imm(3), probed, probed, probed)
			g.VMOVMSKPS(probed, found)
			g.TESTL(found, found)
			bad, resume := g.label("bad"), g.label("resume")
			g.JNZ(operand.LabelRef(bad))
			a.store(weights, w, pw, width)
			a.store(moments, m, pm, width)
			a.store(moments, v, pv, width)
			g.Label(resume)
			g.advance(pw, weights.bytes*width)
			g.advance(pg, gradients.bytes*width)
			g.advance(pm, moments.bytes*width)
			g.advance(pv, moments.bytes*width)

			outOfLine = append(outOfLine, func() {
				g.Label(bad)
				g.VPSUBD(probed, counts, counts)
				unless := g.GP32()
				g.MOVBLZX(g.resolve(g.Param("skip")), unless)
				g.DECL(unless) // 0 to skip, else all ones
				keep := g.YMM()
				g.VMOVD(unless, keep.AsX())
				g.VPBROADCASTD(keep.AsX(), keep)
				g.VPANDN(probed, keep, keep)
				a.storeUnless(keep, weights, w, pw, width)
				a.storeUnless(keep, moments, m, pm, width)
				a.storeUnless(keep, moments, v, pv, width)
				g.JMP(operand.LabelRef(resume))
			})
		}, 8, 1)
	}
	plain := g.label("plain")
	g.CMPB(g.resolve(g.Param("nesterov")), operand.Imm(0))
	g.JE(operand.LabelRef(plain))
	loops(true)
	g.JMP(operand.LabelRef(parameter))
	g.Label(plain)
	loops(false)
	g.JMP(operand.LabelRef(parameter))

	g.Label(end)
	total := g.GP64()
	g.MOVL(g.sumLanes(counts), total.As32())
	g.MOVQ(total, g.result())
	g.end()
	for _, emit := range outOfLine {
		emit()
	}
}

// storeUnless stores the lanes of y that keep does not name, and what was there for
// those that it does.
func (a adamW) storeUnless(keep vec, f format, y vec, p gp, width int) {
	if f == bfloat16s {
		rounded := a.round.nearest(y)
		a.g.VPBLENDVB(keep, a.g.loadWords(p, 0, width), rounded, rounded)
		a.g.storeWords(p, 0, width, rounded)
	} else {
		a.g.VBLENDVPS(keep, a.g.loadFloats(p, 0, width), y, y)
		a.g.storeFloats(y, p, 0, width)
	}
}

// sumLanes adds the lanes of y, which it spoils.
func (g *generator) sumLanes(y vec) gp {
	x, other, sum := y.AsX(), g.XMM(), g.GP32()
	g.VEXTRACTI128(operand.Imm(1), y, other)
	g.VPADDD(other, x, x)
	for _, order := range []uint64{0x4e, 0xb1} {
		g.VPSHUFD(operand.Imm(order), x, other)
		g.VPADDD(other, x, x)
	}
	g.VMOVD(x, sum)
	return sum
}
