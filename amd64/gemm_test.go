//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

const blockWidth = 16

// guarded returns n numbers that end at a page that may not be touched.
func guarded(t *testing.T, n int) (*testmem.Buffer[float32], []float32) {
	b := testmem.New[float32](t, n)
	x := b.AtEnd(n)
	copy(x, noise(n))
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

func TestGemmBlock(t *testing.T) {
	cputest.Need(t, avx2)
	for _, f := range []struct {
		name  string
		block func(rows, k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32)
		pairs bool
		round func(float32) float32
	}{
		{"GemmBlockAVX2", amd64.GemmBlockAVX2, false, func(x float32) float32 { return x }},
		{"GemmBlockBF16AVX2", amd64.GemmBlockBF16AVX2, true, func(x float32) float32 { return bf16.FromFloat32(x).Float32() }},
	} {
		t.Run(f.name, func(t *testing.T) {
			for k := range 12 {
				for _, rows := range []int{1, 6, 7, 11, 12, 16} {
					written := 6
					if rows > 6 {
						written = 11
					}
					if rows > 11 {
						written = 16
					}
					_, a := guarded(t, k*blockWidth+1)
					_, b := guarded(t, k*blockWidth+1)
					a, b = a[1:], b[1:]
					for i := range a {
						a[i], b[i] = f.round(a[i]), f.round(b[i])
					}
					const dStride, cStride = 19, 23
					accMemory, acc := guarded(t, blockWidth*blockWidth)
					dMemory, d := guarded(t, 15*dStride+blockWidth)
					_, c := guarded(t, 15*cStride+blockWidth)
					chains := make([]float32, len(acc))
					for i := range written * blockWidth {
						x := acc[i]
						for at := range k {
							if f.pairs && at^1 < k {
								at ^= 1
							}
							x = reference.FMA(a[at*blockWidth+i/blockWidth], b[at*blockWidth+i%blockWidth], x)
						}
						chains[i] = x
					}
					first := func(x []float32) *float32 {
						if len(x) == 0 {
							return nil
						}
						return &x[0]
					}
					start := slices.Clone(acc)
					f.block(rows, k, first(a), first(b), &acc[0], true, nil, 0, nil, 0, 0, 0)
					copy(start[:written*blockWidth], chains)
					requireBits(t, start, acc, "chains of k = %d, %d rows", k, rows)
					accMemory.Check()

					want := slices.Clone(d)
					for i := range written {
						for j := range blockWidth {
							x := float32(-0.7 * (acc[i*blockWidth+j] + 0))
							want[i*dStride+j] = f.round(x + float32(0.3*c[i*cStride+j]))
						}
					}
					f.block(rows, 0, nil, nil, &acc[0], true, &d[0], dStride, &c[0], cStride, -0.7, 0.3)
					requireBits(t, want, d, "result, %d rows", rows)
					for i := range written {
						clear(want[i*dStride:][:blockWidth])
					}
					f.block(rows, 0, nil, nil, &acc[0], false, &d[0], dStride, nil, 0, 2, float32(math.NaN()))
					requireBits(t, want, d, "no chains, %d rows", rows)
					dMemory.Check()
				}
			}
		})
	}
}

func TestBlockMoves(t *testing.T) {
	cputest.Need(t, avx2)
	const dStride, sStride = 21, 17
	_, src := guarded(t, 15*sStride+blockWidth)
	for _, f := range []struct {
		name string
		move func(dst *float32)
		want func(dst []float32, i, j int, x float32)
	}{
		{"TransposeBlock", func(dst *float32) { amd64.TransposeBlockAVX2(dst, dStride, &src[0], sStride) },
			func(dst []float32, i, j int, x float32) { dst[j*dStride+i] = x }},
		{"CopyRows", func(dst *float32) { amd64.CopyRowsAVX2(blockWidth, dst, dStride, &src[0], sStride) },
			func(dst []float32, i, j int, x float32) { dst[i*dStride+j] = x }},
		{"CopyRows of none", func(dst *float32) { amd64.CopyRowsAVX2(0, dst, dStride, &src[0], sStride) },
			func([]float32, int, int, float32) {}},
		{"NormalizeBlock", func(dst *float32) { amd64.NormalizeBlockAVX2(dst, &src[0], sStride, 0.7, 1e30, 3e29) },
			func(dst []float32, i, j int, x float32) {
				dst[i*blockWidth+j] = float32(float32(x*0.7)*1e30) / 3e29
			}},
		{"NormalizeBlockBF16", func(dst *float32) { amd64.NormalizeBlockBF16AVX2(dst, &src[0], sStride, 0.7, 1e30, 3e29) },
			func(dst []float32, i, j int, x float32) {
				dst[i*blockWidth+j] = bf16.FromFloat32(float32(float32(x*0.7)*1e30) / 3e29).Float32()
			}},
	} {
		memory, dst := guarded(t, 15*dStride+blockWidth)
		want := slices.Clone(dst)
		for i := range blockWidth {
			for j := range blockWidth {
				f.want(want, i, j, src[i*sStride+j])
			}
		}
		f.move(&dst[0])
		requireBits(t, want, dst, "%s", f.name)
		memory.Check()
	}
}
