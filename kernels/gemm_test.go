package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// operands are the matrices of a product, each against a guard page.
type operands struct{ a, b, c, want *testmem.Buffer[float32] }

func newOperands(t *testing.T, most int) operands {
	buffer := func() *testmem.Buffer[float32] { return testmem.New[float32](t, most) }
	return operands{buffer(), buffer(), buffer(), buffer()}
}

// matrix places a matrix, stored as rows x cols and pad more, at the end or the start of a
// buffer. What lies between the rows stays NaN.
func matrix(b *testmem.Buffer[float32], rows, cols, pad int, atEnd bool, seed uint64) kernels.Matrix {
	m := kernels.Matrix{Rows: rows, Cols: cols, Stride: cols + pad}
	size := max((rows-1)*m.Stride+cols, 0)
	if atEnd {
		m.Data.F32 = b.AtEnd(size)
	} else {
		m.Data.F32 = b.AtStart(size)
	}
	for i := range m.Data.F32 {
		m.Data.F32[i] = float32(math.NaN())
	}
	values := normal(rows*cols, seed)
	for i := range rows {
		copy(m.Data.F32[i*m.Stride:][:cols], values[i*cols:])
	}
	return m
}

func requireSameFloats(t *testing.T, want, got []float32, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		if g := got[i]; math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
			require.Failf(t, "bits differ", "element %d is %x, want %x: %s", i, g, w, fmt.Sprintf(format, args...))
		}
	}
}

var factors = [][2]float32{{1, 0}, {1, 1}, {-0.7, 0.3}, {0, 2}, {2, 0}}

// productShapes are rows, columns and depth.
func productShapes() [][3]int {
	shapes := [][3]int{{48, 64, 65}, {65, 48, 64}, {100, 100, 100}, {33, 65, 300}, {128, 96, 512}, {1, 100, 513}, {257, 1, 3}, {3, 2, 1500}, {20, 1100, 5}, {20, 33, 1100}, {1040, 18, 40}, {7, 7, 0}}
	for n := 1; n <= 33; n++ {
		shapes = append(shapes, [3]int{n, (n*7)%33 + 1, (n*13)%33 + 1})
	}
	return shapes
}

func TestGemmGivesTheReferencesBits(t *testing.T) {
	for _, impl := range kernels.OpGemmFloat32.Impls {
		t.Run(impl.Name, func(t *testing.T) {
			cputest.Need(t, impl.Needs)
			mem := newOperands(t, 67<<10)
			for n, shape := range productShapes() {
				for flags := range 4 {
					rows, cols, depth := shape[0], shape[1], shape[2]
					transA, transB := flags&1 != 0, flags&2 != 0
					factor := factors[(n+flags)%len(factors)]
					place := func(b *testmem.Buffer[float32], rows, cols int, transposed bool, seed uint64) kernels.Matrix {
						if transposed {
							rows, cols = cols, rows
						}
						return matrix(b, rows, cols, (n+int(seed))%3, (n+flags)%2 == 0, seed)
					}
					a, b := place(mem.a, rows, depth, transA, 1), place(mem.b, depth, cols, transB, 2)
					c, want := place(mem.c, rows, cols, false, 3), place(mem.want, rows, cols, false, 3)
					if factor[1] == 0 {
						c.Data.F32[0] = float32(math.NaN()) // and not read
					}
					reference.Gemm(want, a, transA, b, transB, factor[0], factor[1])
					impl.Func(c, a, transA, b, transB, factor[0], factor[1], 1+n%3)
					requireSameFloats(t, want.Data.F32, c.Data.F32, "%v, transposed %v %v, factors %v", shape, transA, transB, factor)
					mem.c.Check()
				}
			}
		})
	}
}

func TestSyrkGivesTheReferencesBits(t *testing.T) {
	for _, impl := range kernels.OpSyrkFloat32.Impls {
		t.Run(impl.Name, func(t *testing.T) {
			cputest.Need(t, impl.Needs)
			mem := newOperands(t, 1100*1102)
			shapes := [][2]int{{48, 64}, {64, 65}, {65, 300}, {50, 1030}, {80, 513}, {5, 0}, {1100, 3}}
			for n := 1; n <= 33; n++ {
				shapes = append(shapes, [2]int{n, (n*13)%33 + 1})
			}
			for n, shape := range shapes {
				for i, factor := range factors {
					a := matrix(mem.a, shape[0], shape[1], n%3, i%2 == 0, 1)
					c, want := matrix(mem.c, shape[0], shape[0], i%2, i%2 == 0, 2), matrix(mem.want, shape[0], shape[0], i%2, i%2 == 0, 2)
					for row := 1; row < c.Rows; row++ {
						c.Data.F32[row*c.Stride+row-1] = float32(math.NaN()) // below the diagonal, and not read
					}
					reference.Syrk(want, a, factor[0], factor[1])
					impl.Func(c, a, factor[0], factor[1], 1+i%3)
					requireSameFloats(t, want.Data.F32, c.Data.F32, "%v, factors %v", shape, factor)
					mem.c.Check()
				}
			}
		})
	}
}

// TestLargeSyrk is of more than one section.
func TestLargeSyrk(t *testing.T) {
	const n, depth = 1050, 3
	a, c, want := normal(n*depth, 1), normal(n*n, 2), normal(n*n, 2)
	square := func(x []float32) kernels.Matrix {
		return kernels.Matrix{Data: kernels.Float32s(x), Rows: n, Cols: n, Stride: n}
	}
	m := kernels.Matrix{Data: kernels.Float32s(a), Rows: n, Cols: depth, Stride: depth}
	reference.Syrk(square(want), m, -0.7, 0.3)
	require.NoError(t, kernels.Syrk(square(c), m, -0.7, 0.3))
	requireSameFloats(t, want, c, "")
}

// TestGemmOfSpecialNumbers has chains that are not finite, cancel, underflow or overflow.
func TestGemmOfSpecialNumbers(t *testing.T) {
	specials := []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
		math.MaxFloat32, math.SmallestNonzeroFloat32, -1e-30, 1e-38, 3e38, 1 + 1.0/(1<<23), 5e-20}
	const n, depth = 35, 40
	fill := func(m kernels.Matrix, seed int) kernels.Matrix {
		for i := range m.Data.F32 {
			if i*seed%5 == 0 {
				m.Data.F32[i] = specials[i*seed/5%len(specials)]
			}
		}
		return m
	}
	for _, impl := range kernels.OpGemmFloat32.Impls {
		t.Run(impl.Name, func(t *testing.T) {
			cputest.Need(t, impl.Needs)
			mem := newOperands(t, n*depth)
			for seed := range 40 {
				a := fill(matrix(mem.a, n, depth, 0, true, uint64(seed)), seed+1)
				b := fill(matrix(mem.b, depth, n, 0, true, uint64(seed)+50), seed+3)
				c, want := matrix(mem.c, n, n, 0, true, 3), matrix(mem.want, n, n, 0, true, 3)
				factor := factors[seed%len(factors)]
				reference.Gemm(want, a, false, b, false, factor[0], factor[1])
				impl.Func(c, a, false, b, false, factor[0], factor[1], 1)
				requireSameFloats(t, want.Data.F32, c.Data.F32, "seed %d", seed)
			}
		})
	}
}

func TestGemmOfIntegersIsExact(t *testing.T) {
	const rows, cols, depth = 70, 50, 2100
	a, b, c := make([]float32, rows*depth), make([]float32, depth*cols), make([]float32, rows*cols)
	for i := range a {
		a[i] = float32(i*7%17 - 8)
	}
	for i := range b {
		b[i] = float32(i*5%13 - 6)
	}
	require.NoError(t, kernels.Gemm(
		kernels.Matrix{Data: kernels.Float32s(c), Rows: rows, Cols: cols, Stride: cols},
		kernels.Matrix{Data: kernels.Float32s(a), Rows: rows, Cols: depth, Stride: depth}, false,
		kernels.Matrix{Data: kernels.Float32s(b), Rows: depth, Cols: cols, Stride: cols}, false, 1, 0))
	for i := range rows {
		for j := range cols {
			sum := 0
			for k := range depth {
				sum += ((i*depth+k)*7%17 - 8) * ((k*cols+j)*5%13 - 6)
			}
			require.Equal(t, float32(sum), c[i*cols+j])
		}
	}
}
