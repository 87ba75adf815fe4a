package main

import "github.com/mmcloughlin/avo/operand"

// rounding512 holds the constants of rounding to bf16.
type rounding512 struct {
	halves
	half, one, quiet vec
}

func (g *generator) rounding512() rounding512 {
	return rounding512{g.halves(), g.broadcast512(0x7fff), g.broadcast512(1), g.broadcast512(0x00400000)}
}

// nearest rounds each lane of x to bf16, which it leaves in the lane's upper half.
func (r rounding512) nearest(x vec) vec {
	y := r.g.ZMM()
	nan := r.g.unordered(x)
	r.g.VPSRLD(operand.Imm(16), x, y)
	r.g.VPANDD(r.one, y, y)
	r.g.VPADDD(r.half, y, y)
	r.g.VPADDD(x, y, y)
	r.g.VPORD(r.quiet, x, nan, y)
	return y
}

// truncate makes the lanes of x that are NaN quiet.
func (r rounding512) truncate(x vec) vec {
	r.g.VPORD(r.quiet, x, r.g.unordered(x), x)
	return x
}

func roundAVX512(g *generator) {
	g.narrow512("RoundAVX512", `
RoundAVX512 rounds to bf16, to nearest with ties to even; dst has the length of src. With
stream, dst goes past the caches. A call of a million elements takes about 100 µs.

	for i, x := range src {
		dst[i] = uint16(bf16.FromFloat32(x))
	}`, rounding512.nearest)
	g.narrow512("TruncateAVX512", `
TruncateAVX512 rounds to bf16 towards zero; dst has the length of src. With stream, dst
goes past the caches. A call of a million elements takes about 100 µs.

	for i, x := range src {
		dst[i] = uint16(bf16.Truncate(x))
	}`, rounding512.truncate)

	g.function("WidenAVX512", "(dst []float32, src []uint16, stream bool)", `
WidenAVX512 widens bf16, exactly; dst has the length of src. With stream, dst goes past the
caches. A call of a million elements takes about 100 µs.

	for i, x := range src {
		dst[i] = bf16.BF16(x).Float32()
	}`)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	widen := func(of part) {
		for i := range of.registers {
			g.storeFloats512(g.loadBF16512(src, i, of), dst, i, of)
		}
	}
	cursors := []cursor{{dst, 4}, {src, 2}}
	g.streamed512(n, 4, 1, widen, func(of part) {
		for i := range of.registers {
			g.VMOVNTPS(g.loadBF16512(src, i, of), at(dst, 64*i))
		}
	}, cursors...)
	g.elements512(n, 4, 1, widen, cursors...)
	g.end()
}

// narrow512 is a function that rounds float32 numbers to the upper halves of lanes.
func (g *generator) narrow512(name, doc string, round func(rounding512, vec) vec) {
	g.function(name, "(dst []uint16, src []float32, stream bool)", doc)
	dst, src, n := g.pointer("dst"), g.pointer("src"), g.length("src")
	r := g.rounding512()
	narrow := func(store func(z vec, pair int, of part)) func(part) {
		return func(of part) {
			for i := 0; i < of.registers; i += 2 {
				a, b := round(r, g.loadFloats512(src, i, of)), round(r, g.loadFloats512(src, i+1, of))
				store(r.sort(r.mixUpper(a, b)), i/2, of)
			}
		}
	}
	plain := narrow(func(z vec, pair int, of part) { g.storePair(z, dst, pair, of) })
	cursors := []cursor{{dst, 2}, {src, 4}}
	g.streamed512(n, 4, 2, plain, narrow(func(z vec, pair int, _ part) { g.VMOVNTDQ(z, at(dst, 64*pair)) }), cursors...)
	g.elements512(n, 4, 2, plain, cursors...)
	g.end()
}
