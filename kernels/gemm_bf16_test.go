package kernels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// narrowed is a matrix of the format and elements of a bf16 one, at the end of a buffer.
func narrowed(t *testing.T, b *testmem.Buffer[uint16], rows, cols, pad int, seed uint64) kernels.Matrix {
	m := kernels.Matrix{Rows: rows, Cols: cols, Stride: cols + pad}
	data := b.AtEnd(max((rows-1)*m.Stride+cols, 0))
	for i := range data {
		data[i] = 0x7fc0 // between the rows
	}
	values := make([]bf16.BF16, rows*cols)
	require.NoError(t, kernels.Round(values, normal(rows*cols, seed)))
	for i := range rows {
		for j, x := range values[i*cols:][:cols] {
			data[i*m.Stride+j] = uint16(x)
		}
	}
	m.Data = kernels.BF16s(data)
	return m
}

// requireSameResult holds a result in float32 or bf16 against another.
func requireSameResult(t *testing.T, want, got kernels.Matrix, format string, args ...any) {
	t.Helper()
	wide := func(f kernels.Floats) []float32 {
		x := make([]float32, f.Len())
		for i := range x {
			x[i] = f.At(i)
		}
		return x
	}
	requireSameFloats(t, wide(want.Data), wide(got.Data), format, args...)
}

// TestProductsOfBF16OnEveryLevel finds one result, that of VDPBF16PS, on all levels of
// amd64.
func TestProductsOfBF16OnEveryLevel(t *testing.T) {
	shapes := append([][3]int{{70, 33, 130}, {64, 64, 2100}}, productShapes()...)
	for n, impl := range kernels.OpGemmBF16.Impls {
		if !strings.HasPrefix(impl.Name, "amd64/") {
			continue
		}
		syrk := kernels.OpSyrkBF16.Impls[n]
		require.Equal(t, impl.Name, syrk.Name)
		t.Run(impl.Name, func(t *testing.T) {
			cputest.Need(t, impl.Needs)
			const most = 140 << 10
			memA, memB, memC := testmem.New[uint16](t, most), testmem.New[uint16](t, most), testmem.New[uint16](t, most)
			wide, wideWant := testmem.New[float32](t, most), testmem.New[float32](t, most)
			memWant := testmem.New[uint16](t, most)
			for n, shape := range shapes {
				for flags := range 8 {
					rows, cols, depth := shape[0], shape[1], shape[2]
					transA, transB, narrowC := flags&1 != 0, flags&2 != 0, flags&4 != 0
					factor := factors[(n+flags)%len(factors)]
					place := func(b *testmem.Buffer[uint16], rows, cols int, transposed bool, seed uint64) kernels.Matrix {
						if transposed {
							rows, cols = cols, rows
						}
						return narrowed(t, b, rows, cols, (n+int(seed))%3, seed)
					}
					results := func(rows, cols int) (c, want kernels.Matrix) {
						if narrowC {
							return narrowed(t, memC, rows, cols, n%3, 3), narrowed(t, memWant, rows, cols, n%3, 3)
						}
						return matrix(wide, rows, cols, n%3, true, 3), matrix(wideWant, rows, cols, n%3, true, 3)
					}
					a, b := place(memA, rows, depth, transA, 1), place(memB, depth, cols, transB, 2)
					c, want := results(rows, cols)
					reference.GemmPairs(want, a, transA, b, transB, factor[0], factor[1])
					impl.Func(c, a, transA, b, transB, factor[0], factor[1], 1+n%3)
					requireSameResult(t, want, c, "%v, transposed %v %v, bf16 %v, factors %v", shape, transA, transB, narrowC, factor)

					if transA || !transB || rows > 300 {
						continue
					}
					c, want = results(rows, rows)
					reference.GemmPairs(want, a, false, a, true, factor[0], factor[1])
					for i := range rows {
						for j := range i {
							to, from := i*want.Stride+j, j*want.Stride+i
							if narrowC {
								want.Data.BF16[to] = want.Data.BF16[from]
							} else {
								want.Data.F32[to] = want.Data.F32[from]
							}
						}
					}
					syrk.Func(c, a, factor[0], factor[1], 1+n%3)
					requireSameResult(t, want, c, "syrk of %v, bf16 %v, factors %v", shape, narrowC, factor)
				}
			}
			memC.Check()
			wide.Check()
		})
	}
}
