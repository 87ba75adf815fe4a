//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

const avx512BF16 = cpufeature.AVX512 | cpufeature.BF16

// guarded returns n numbers that end at a page that may not be touched.
func guarded(t *testing.T, n int) (*testmem.Buffer[float32], []float32) {
	b := testmem.New[float32](t, n)
	x := b.AtEnd(n)
	copy(x, noise(n))
	return b, x
}

// narrow returns n bf16 numbers that end at a page that may not be touched.
func narrow(t *testing.T, n int) (*testmem.Buffer[uint16], []uint16) {
	b := testmem.New[uint16](t, n)
	x := b.AtEnd(n)
	for i, v := range noise(n) {
		x[i] = uint16(bf16.FromFloat32(v))
	}
	return b, x
}

func requireBits(t *testing.T, want, got []float32, format string, args ...any) {
	t.Helper()
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "bits differ", "element %d is %x, want %x: %s", i, got[i], want[i], fmt.Sprintf(format, args...))
		}
	}
}

func widen(x uint16) float32 { return bf16.BF16(x).Float32() }

func rounded(x float32) float32 { return bf16.FromFloat32(x).Float32() }

func asIs(x float32) float32 { return x }

// pairLane is a bf16 number of a pair, which setNumber rounds to.
func pairLane(pair float32, i int) float32 {
	return math.Float32frombits(math.Float32bits(pair) >> (16 * i) << 16)
}

func setNumber(pair *float32, i int, x float32) {
	kept := math.Float32bits(*pair) &^ (0xffff << (16 * i))
	*pair = math.Float32frombits(kept | uint32(bf16.FromFloat32(x))<<(16*i))
}

type (
	blockFunc  = func(rows, k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int)
	cornerFunc = func(rows, k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near *float32)
)

// blocks are the kernels of products: the rows of their tiles, and what becomes of results.
var blocks = []struct {
	name   string
	needs  cpufeature.Set
	block  blockFunc
	corner cornerFunc
	tiles  []int
	round  func(float32) float32
	paired bool // chains are in pairs
	dotted bool // so are the operands' numbers
	joined bool // and the results'
}{
	{"AVX2", avx2, amd64.GemmBlockAVX2, amd64.GemmCornerAVX2, []int{6, 5, 5}, asIs, false, false, false},
	{"PairsAVX2", avx2, amd64.GemmBlockPairsAVX2, amd64.GemmCornerPairsAVX2, []int{6, 5, 5}, asIs, true, false, false},
	{"BF16AVX2", avx2, amd64.GemmBlockBF16AVX2, amd64.GemmCornerBF16AVX2, []int{6, 5, 5}, rounded, true, false, false},
	{"AVX512", cpufeature.AVX512, amd64.GemmBlockAVX512, amd64.GemmCornerAVX512, []int{12, 10, 10}, asIs, false, false, false},
	{"PairsAVX512", cpufeature.AVX512, amd64.GemmBlockPairsAVX512, amd64.GemmCornerPairsAVX512, []int{12, 10, 10}, asIs, true, false, false},
	{"BF16AVX512", cpufeature.AVX512, amd64.GemmBlockBF16AVX512, amd64.GemmCornerBF16AVX512, []int{12, 10, 10}, rounded, true, false, false},
	{"PairsAVX512BF16", avx512BF16, amd64.GemmBlockPairsAVX512BF16, amd64.GemmCornerPairsAVX512BF16, []int{12, 10, 10}, asIs, true, true, false},
	{"BF16AVX512BF16", avx512BF16, amd64.GemmBlockBF16AVX512BF16, amd64.GemmCornerBF16AVX512BF16, []int{12, 10, 10}, rounded, true, true, true},
}

// chain is what a product's kernel makes of an element's chain.
func chain(acc float32, k, width, i, j int, a, b []float32, paired, dotted bool) float32 {
	add := func(x, y float32) { acc = reference.FMA(x, y, acc) }
	for l := range k {
		switch {
		case dotted:
			for _, half := range []int{1, 0} {
				add(pairLane(a[l*width+i], half), pairLane(b[l*width+j], half))
			}
		case paired && l^1 < k:
			add(a[(l^1)*width+i], b[(l^1)*width+j])
		default:
			add(a[l*width+i], b[l*width+j])
		}
	}
	return acc
}

// fewRows are those of a block that is one small tile.
const fewRows = 4

// eachPart tries the least and the most rows with which kernels write up to each of the
// ends of their parts.
func eachPart(ends []int, try func(rows, written int)) {
	least := 1
	for _, end := range ends {
		try(least, end)
		try(end, end)
		least = end + 1
	}
}

func TestGemmBlocks(t *testing.T) {
	for _, f := range blocks {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			width := f.tiles[0] + f.tiles[1] + f.tiles[2]
			for _, k := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 49, 98, 147, 203} {
				eachPart([]int{fewRows, f.tiles[0], f.tiles[0] + f.tiles[1], width}, func(rows, written int) {
					done := func(i, _ int) bool { return i < written }
					testProduct(t, k, width, f.paired, f.dotted, f.joined, f.round, done,
						func(a, b, acc *float32, k int, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near *float32) {
							f.block(rows, k, a, b, acc, resume, d, dStride, c, cStride, alpha, beta, near, near, 1)
						})
				})
				eachPart(slices.Compact([]int{fewRows, width / 4, width / 2, width}), func(rows, written int) {
					done := func(i, j int) bool { return i < written && (i < width/2 || j >= width/2) }
					testProduct(t, k, width, f.paired, f.dotted, f.joined, f.round, done,
						func(a, b, acc *float32, k int, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near *float32) {
							f.corner(rows, k, a, b, acc, resume, d, dStride, c, cStride, alpha, beta, near)
						})
				})
			}
		})
	}
}

// TestGemmInPlace compares with the kernels that find A, B or both in strips.
func TestGemmInPlace(t *testing.T) {
	for _, f := range []struct {
		name        string
		needs       cpufeature.Set
		width       int
		block       blockFunc
		packing     func(rows, k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int, from *float32, fromStride int)
		rows        func(rows, k int, a *float32, aStride int, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int)
		rowsPacking func(rows, k int, a *float32, aStride int, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int, from *float32, fromStride int)
	}{
		{"AVX2", avx2, 16, amd64.GemmBlockAVX2, amd64.GemmPackingAVX2, amd64.GemmRowsAVX2, amd64.GemmRowsPackingAVX2},
		{"AVX512", cpufeature.AVX512, 32, amd64.GemmBlockAVX512, amd64.GemmPackingAVX512, amd64.GemmRowsAVX512, amd64.GemmRowsPackingAVX512},
	} {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			w := f.width
			for k := 1; k < 70; k++ {
				for _, padding := range []int{0, 3} {
					for _, rows := range []int{1, fewRows, fewRows + 1, w/2 + 1, w} {
						for _, resume := range []bool{false, true} {
							stride, aStride := w+padding, k+padding
							_, a := guarded(t, aStride*(w-1)+k)
							_, from := guarded(t, stride*(k-1)+w)
							_, acc := guarded(t, w*w)
							_, want := guarded(t, w*w)
							left, strip := make([]float32, w*k), make([]float32, w*k)
							for l := range k {
								for i := range w {
									left[l*w+i] = a[i*aStride+l]
								}
								copy(strip[l*w:][:w], from[l*stride:])
							}
							f.block(rows, k, &left[0], &strip[0], &acc[0], resume, &want[0], w, &acc[0], w, 1.5, 0.5, nil, nil, 0)
							try := func(name string, product func(b, d *float32)) {
								_, got := guarded(t, w*w)
								bMemory, b := guarded(t, w*k)
								copy(b, strip)
								if strings.HasSuffix(name, "packing") {
									clear(b)
								}
								product(&b[0], &got[0])
								requireBits(t, strip, b, "strip of %s k=%d padding=%d rows=%d", name, k, padding, rows)
								requireBits(t, want, got, "%s k=%d padding=%d rows=%d resume=%v", name, k, padding, rows, resume)
								bMemory.Check()
							}
							try("packing", func(b, d *float32) {
								f.packing(rows, k, &left[0], b, &acc[0], resume, d, w, &acc[0], w, 1.5, 0.5, nil, nil, 0, &from[0], stride)
							})
							try("rows", func(b, d *float32) {
								f.rows(rows, k, &a[0], aStride, b, &acc[0], resume, d, w, &acc[0], w, 1.5, 0.5, nil, nil, 0)
							})
							try("rows, packing", func(b, d *float32) {
								f.rowsPacking(rows, k, &a[0], aStride, b, &acc[0], resume, d, w, &acc[0], w, 1.5, 0.5, nil, nil, 0, &from[0], stride)
							})
						}
					}
				}
			}
		})
	}
}

// testProduct tries a kernel that works on the elements that done tells.
func testProduct(t *testing.T, k, width int, paired, dotted, joined bool, round func(float32) float32, done func(i, j int) bool,
	product func(a, b, acc *float32, k int, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near *float32)) {
	t.Helper()
	operand := func() []float32 {
		_, x := guarded(t, k*width+1) // may not be empty
		for i := range x {
			if x[i] = round(x[i]); dotted {
				setNumber(&x[i], 0, float32(i%9)-x[i])
				setNumber(&x[i], 1, float32(i%7)+x[i])
			}
		}
		return x[1:]
	}
	a, b := operand(), operand()
	dStride, cStride, unit := width+3, width+7, 1
	get := func(x []float32, stride, i, j int) float32 { return x[i*stride+j] }
	set := func(x []float32, stride, i, j int, v float32) { x[i*stride+j] = v }
	if joined {
		unit = 2
		get = func(x []float32, stride, i, j int) float32 { return pairLane(x[i/2*stride+j], i%2) }
		set = func(x []float32, stride, i, j int, v float32) { setNumber(&x[i/2*stride+j], i%2, v) }
	}
	accMemory, acc := guarded(t, width*width)
	dMemory, d := guarded(t, (width/unit-1)*dStride+width)
	_, c := guarded(t, (width/unit-1)*cStride+width)
	each := func(do func(i, j int)) {
		for i := range width {
			for j := range width {
				if done(i, j) {
					do(i, j)
				}
			}
		}
	}
	want := slices.Clone(acc)
	each(func(i, j int) {
		want[i*width+j] = chain(acc[i*width+j], k, width, i, j, a, b, paired, dotted)
	})
	first, second := unsafe.SliceData(a), unsafe.SliceData(b)
	product(first, second, &acc[0], k, true, nil, 0, nil, 0, 0, 0, nil)
	requireBits(t, want, acc, "chains of k = %d", k)
	accMemory.Check()

	want = slices.Clone(d)
	each(func(i, j int) {
		x := float32(-0.7 * (acc[i*width+j] + 0))
		set(want, dStride, i, j, round(x+float32(0.3*get(c, cStride, i, j))))
	})
	product(nil, nil, &acc[0], 0, true, &d[0], dStride, &c[0], cStride, -0.7, 0.3, nil)
	requireBits(t, want, d, "result")
	each(func(i, j int) {
		set(want, dStride, i, j, round(2*(chain(0, k, width, i, j, a, b, paired, dotted)+0)))
	})
	product(first, second, nil, k, false, &d[0], dStride, nil, 0, 2, float32(math.NaN()), &acc[0])
	requireBits(t, want, d, "result without C, k = %d", k)
	dMemory.Check()
}

// TestGemmBlocksOfBF16 has subnormal operands and sums, and results that round to NaN.
func TestGemmBlocksOfBF16(t *testing.T) {
	specials := []uint16{0, 0x8000, 1, 0x807f, 0x80, 0x8080, 0x3f80, 0xbf81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x0040, 0x1f80, 0x9f80}
	for _, f := range blocks {
		if !f.paired {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			width := f.tiles[0] + f.tiles[1] + f.tiles[2]
			const depth = 6
			for seed := range 50 {
				values := make([]uint16, 2*depth*width)
				for i := range values {
					values[i] = specials[(i*i+seed*i/3+i/5)%len(specials)]
				}
				left := reference.Matrix{Data: bf16Floats(values[:depth*width]), Rows: depth, Cols: width, Stride: width}
				right := reference.Matrix{Data: bf16Floats(values[depth*width:]), Rows: depth, Cols: width, Stride: width}
				want := reference.Matrix{Data: reference.Floats{F32: make([]float32, width*width)}, Rows: width, Cols: width, Stride: width}
				reference.GemmPairs(want, left, true, right, false, 1, 0)
				strip := func(m reference.Matrix) []float32 {
					x := make([]float32, depth*width)
					for i := range x {
						if row, col := i/width, i%width; f.dotted {
							setNumber(&x[row/2*width+col], row%2, m.Data.At(i))
						} else {
							x[i] = m.Data.At(i)
						}
					}
					return x
				}
				a, b, layers := strip(left), strip(right), depth
				if f.dotted {
					layers /= 2
				}
				got := make([]float32, width*width)
				f.block(width, layers, &a[0], &b[0], nil, false, &got[0], width, nil, 0, 1, 0, nil, nil, 0)
				for i := range want.Data.F32 {
					w, g := f.round(want.Data.F32[i]), got[i]
					if f.joined {
						g = pairLane(got[i/width/2*width+i%width], i/width%2)
					}
					if math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
						require.Failf(t, "bits differ", "seed %d, element %d is %x, want %x", seed, i, g, w)
					}
				}
			}
		})
	}
}

func bf16Floats(x []uint16) reference.Floats {
	f := reference.Floats{}
	for _, v := range x {
		f.BF16 = append(f.BF16, bf16.BF16(v))
	}
	return f
}

// TestGemmLine has bf16 numbers too whose products and sums are subnormal.
func TestGemmLine(t *testing.T) {
	for _, f := range []struct {
		name   string
		needs  cpufeature.Set
		paired bool
		line   func(x []float32, sum float32) float32
	}{
		{"AVX2", avx2, false, amd64.GemmLineAVX2},
		{"PairsAVX2", avx2, true, amd64.GemmLinePairsAVX2},
		{"AVX512", cpufeature.AVX512, false, amd64.GemmLineAVX512},
		{"PairsAVX512", cpufeature.AVX512, true, amd64.GemmLinePairsAVX512},
	} {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			for n := range 40 {
				_, x := guarded(t, n)
				for _, sum := range []float32{0, 1e-3, 7} {
					requireBits(t, []float32{chain(sum, n, 1, 0, 0, x, x, f.paired, false)}, []float32{f.line(x, sum)}, "%d elements after %g", n, sum)
				}
				for i := range x {
					x[i] = rounded(x[i] * []float32{1e-19, 2e-20, 1e-39, float32(math.Copysign(0, -1))}[(i*i+n)%4])
				}
				row := reference.Matrix{Data: reference.Floats{F32: x}, Rows: 1, Cols: n, Stride: n}
				want := reference.Matrix{Data: reference.Floats{F32: make([]float32, 1)}, Rows: 1, Cols: 1, Stride: 1}
				product := reference.Gemm
				if f.paired {
					product = reference.GemmPairs
				}
				product(want, row, false, row, true, 1, 0)
				requireBits(t, want.Data.F32, []float32{f.line(x, 0)}, "%d small elements", n)
			}
		})
	}
}

// TestBlockMoves tries what moves blocks between matrices and strips.
func TestBlockMoves(t *testing.T) {
	const dStride, sStride = 37, 35
	const avx512 = cpufeature.AVX512
	scaled := func(x float32) float32 { return float32(float32(x*0.7)*1e30) / 3e29 }
	mirrored := func(dst, _ []float32, i, j int) { dst[max(i, j)*dStride+min(i, j)] = dst[min(i, j)*dStride+max(i, j)] }
	src := func(rows, cols int) []float32 { _, x := guarded(t, (rows-1)*sStride+cols); return x }
	for _, f := range []struct {
		name  string
		needs cpufeature.Set
		width int
		rows  int // of the result, at a stride
		move  func(dst, src *float32)
		want  func(dst, src []float32, i, j int)
	}{
		{"TransposeBlockAVX2", avx2, 16, 16, func(dst, src *float32) { amd64.TransposeBlockAVX2(dst, dStride, src, sStride) },
			func(dst, src []float32, i, j int) { dst[j*dStride+i] = src[i*sStride+j] }},
		{"TransposeBlockAVX512", avx512, 32, 32, func(dst, src *float32) { amd64.TransposeBlockAVX512(dst, dStride, src, sStride) },
			func(dst, src []float32, i, j int) { dst[j*dStride+i] = src[i*sStride+j] }},
		{"TransposePairsAVX512BF16", avx512BF16, 32, 16, func(dst, src *float32) { amd64.TransposePairsAVX512BF16(dst, dStride, src, sStride) },
			func(dst, src []float32, i, j int) {
				setNumber(&dst[j/2*dStride+i], j%2, pairLane(src[i/2*sStride+j], i%2))
			}},
		{"MirrorBlockAVX2", avx2, 16, 16, func(dst, _ *float32) { amd64.MirrorBlockAVX2(dst, dStride) }, mirrored},
		{"MirrorBlockAVX512", avx512, 32, 32, func(dst, _ *float32) { amd64.MirrorBlockAVX512(dst, dStride) }, mirrored},
		{"CopyRowsAVX2", avx2, 16, 16, func(dst, src *float32) { amd64.CopyRowsAVX2(16, dst, dStride, src, sStride) },
			func(dst, src []float32, i, j int) { dst[i*dStride+j] = src[i*sStride+j] }},
		{"CopyRowsAVX512", avx512, 32, 32, func(dst, src *float32) { amd64.CopyRowsAVX512(32, dst, dStride, src, sStride) },
			func(dst, src []float32, i, j int) { dst[i*dStride+j] = src[i*sStride+j] }},
		{"CopyRowsAVX512 of none", avx512, 32, 32, func(dst, src *float32) { amd64.CopyRowsAVX512(0, dst, dStride, src, sStride) },
			func([]float32, []float32, int, int) {}},
		{"NormalizeBlockAVX2", avx2, 16, 16, func(dst, src *float32) { amd64.NormalizeBlockAVX2(dst, src, sStride, 0.7, 1e30, 3e29) },
			func(dst, src []float32, i, j int) { dst[i*16+j] = scaled(src[i*sStride+j]) }},
		{"NormalizeBlockBF16AVX2", avx2, 16, 16, func(dst, src *float32) { amd64.NormalizeBlockBF16AVX2(dst, src, sStride, 0.7, 1e30, 3e29) },
			func(dst, src []float32, i, j int) { dst[i*16+j] = rounded(scaled(src[i*sStride+j])) }},
		{"NormalizeBlockAVX512", avx512, 32, 32, func(dst, src *float32) { amd64.NormalizeBlockAVX512(dst, src, sStride, 0.7, 1e30, 3e29) },
			func(dst, src []float32, i, j int) { dst[i*32+j] = scaled(src[i*sStride+j]) }},
		{"NormalizeBlockBF16AVX512", avx512, 32, 32, func(dst, src *float32) { amd64.NormalizeBlockBF16AVX512(dst, src, sStride, 0.7, 1e30, 3e29) },
			func(dst, src []float32, i, j int) { dst[i*32+j] = rounded(scaled(src[i*sStride+j])) }},
		{"NormalizeBlockBF16AVX512BF16", avx512BF16, 32, 16, func(dst, src *float32) { amd64.NormalizeBlockBF16AVX512BF16(dst, src, sStride, 0.7, 1e30, 3e29) },
			func(dst, src []float32, i, j int) { setNumber(&dst[i/2*32+j], i%2, scaled(src[i*sStride+j])) }},
		{"UnpairRowsAVX512BF16", avx512BF16, 32, 32, func(dst, src *float32) { amd64.UnpairRowsAVX512BF16(16, dst, dStride, src, sStride) },
			func(dst, src []float32, i, j int) { dst[i*dStride+j] = pairLane(src[i/2*sStride+j], i%2) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			from := src(f.width, f.width)
			if strings.Contains(f.name, "Pair") { // of whose rows there are half
				from = src(f.width/2, f.width)
			}
			memory, dst := guarded(t, (f.rows-1)*dStride+f.width)
			want := slices.Clone(dst)
			for i := range f.width {
				for j := range f.width {
					f.want(want, from, i, j)
				}
			}
			f.move(&dst[0], &from[0])
			requireBits(t, want, dst, "")
			memory.Check()
		})
	}
}

// TestNarrowMoves tries what moves blocks of bf16 matrices.
func TestNarrowMoves(t *testing.T) {
	const dStride, sStride = 37, 67
	const avx512 = cpufeature.AVX512
	for _, f := range []struct {
		name          string
		needs         cpufeature.Set
		rows, cols    int // of the source
		layers, width int // of the result
		move          func(dst *float32, src *uint16)
		want          func(dst []float32, i, j int, x float32)
	}{
		{"TransposeWidenAVX2", avx2, 16, 16, 16, 16, func(dst *float32, src *uint16) { amd64.TransposeWidenAVX2(dst, dStride, src, sStride) },
			func(dst []float32, i, j int, x float32) { dst[j*dStride+i] = x }},
		{"TransposeWidenAVX512", avx512, 32, 32, 32, 32, func(dst *float32, src *uint16) { amd64.TransposeWidenAVX512(dst, dStride, src, sStride) },
			func(dst []float32, i, j int, x float32) { dst[j*dStride+i] = x }},
		{"TransposePairAVX512BF16", avx512BF16, 32, 64, 32, 32, func(dst *float32, src *uint16) { amd64.TransposePairAVX512BF16(dst, dStride, src, sStride) },
			func(dst []float32, i, j int, x float32) { setNumber(&dst[j/2*dStride+i], j%2, x) }},
		{"WidenRowsAVX2", avx2, 16, 16, 16, 16, func(dst *float32, src *uint16) { amd64.WidenRowsAVX2(16, dst, dStride, src, sStride) },
			func(dst []float32, i, j int, x float32) { dst[i*dStride+j] = x }},
		{"WidenRowsAVX512", avx512, 32, 32, 32, 32, func(dst *float32, src *uint16) { amd64.WidenRowsAVX512(32, dst, dStride, src, sStride) },
			func(dst []float32, i, j int, x float32) { dst[i*dStride+j] = x }},
		{"PairRowsAVX512BF16", avx512BF16, 64, 32, 32, 32, func(dst *float32, src *uint16) { amd64.PairRowsAVX512BF16(32, dst, dStride, src, sStride) },
			func(dst []float32, i, j int, x float32) { setNumber(&dst[i/2*dStride+j], i%2, x) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			_, src := narrow(t, (f.rows-1)*sStride+f.cols)
			memory, dst := guarded(t, (f.layers-1)*dStride+f.width)
			want := slices.Clone(dst)
			for i := range f.rows {
				for j := range f.cols {
					f.want(want, i, j, widen(src[i*sStride+j]))
				}
			}
			f.move(&dst[0], &src[0])
			requireBits(t, want, dst, "")
			memory.Check()
		})
	}
}

func TestNarrowRows(t *testing.T) {
	const dStride, sStride = 37, 35
	for _, f := range []struct {
		name   string
		needs  cpufeature.Set
		width  int
		narrow func(rows int, dst *uint16, dStride int, src *float32, sStride int)
	}{
		{"AVX2", avx2, 16, amd64.NarrowRowsAVX2},
		{"AVX512", cpufeature.AVX512, 32, amd64.NarrowRowsAVX512},
	} {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			for rows := range 4 {
				_, src := guarded(t, 3*sStride+f.width)
				copy(src[f.width:], []float32{math.MaxFloat32, float32(math.Inf(-1)), float32(math.NaN()), 1e-40, float32(math.Copysign(0, -1)), 1 + 1.0/256, 1 + 3.0/256})
				copy(src, src[f.width:][:7])
				memory, dst := narrow(t, 3*dStride+f.width)
				want := slices.Clone(dst)
				for i := range rows {
					for j := range f.width {
						want[i*dStride+j] = uint16(bf16.FromFloat32(src[i*sStride+j]))
					}
				}
				f.narrow(rows, &dst[0], dStride, &src[0], sStride)
				require.Equal(t, want, dst)
				memory.Check()
			}
		})
	}
}
