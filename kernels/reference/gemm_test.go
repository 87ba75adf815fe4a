package reference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
)

var notANumber = float32(math.NaN())

// gaussian returns a matrix of rounded normal numbers, its rows followed by pad NaN.
func gaussian(rows, cols, pad int, bfloat16 bool, seed uint64) Matrix {
	m := Matrix{newFloats(rows*(cols+pad), bfloat16), rows, cols, cols + pad}
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range rows {
		for j := range cols + pad {
			x := float32(r.NormFloat64())
			if j >= cols {
				x = notANumber
			}
			m.Data.set(i*m.Stride+j, x, nil)
		}
	}
	return m
}

func newFloats(n int, bfloat16 bool) Floats {
	if bfloat16 {
		return Floats{BF16: make([]bf16.BF16, n)}
	}
	return Floats{F32: make([]float32, n)}
}

// fromRows returns an fp32 matrix.
func fromRows(rows ...[]float32) Matrix {
	m := Matrix{Floats{}, len(rows), len(rows[0]), len(rows[0])}
	for _, row := range rows {
		m.Data.F32 = append(m.Data.F32, row...)
	}
	return m
}

func (m Matrix) at(i, j int) float32 { return m.Data.At(i*m.Stride + j) }

func (m Matrix) clone() Matrix {
	m.Data.F32 = append([]float32(nil), m.Data.F32...)
	m.Data.BF16 = append([]bf16.BF16(nil), m.Data.BF16...)
	return m
}

func (m Matrix) transpose() Matrix {
	t := Matrix{newFloats(m.Rows*m.Cols, m.Data.BF16 != nil), m.Cols, m.Rows, m.Rows}
	for i := range m.Rows {
		for j := range m.Cols {
			t.Data.set(j*t.Stride+i, m.at(i, j), nil)
		}
	}
	return t
}

// requireSame compares bits, and that the elements between the rows still are NaN.
func requireSame(t *testing.T, want, got Matrix, msg ...any) {
	t.Helper()
	require.Equal(t, []int{want.Rows, want.Cols}, []int{got.Rows, got.Cols}, msg...)
	for i := range want.Rows {
		for j := range got.Stride {
			if i*got.Stride+j >= got.Data.Len() {
				break
			}
			w := notANumber
			if j < want.Cols {
				w = want.at(i, j)
			}
			if bits(w) != bits(got.at(i, j)) {
				require.Failf(t, "bits differ", "element (%d, %d) is %x, want %x %v", i, j, got.at(i, j), w, msg)
			}
		}
	}
}

// plainGemm is the contract's sentence, element by element, in either order.
func plainGemm(c, a, b Matrix, alpha, beta float32, pairs bool) {
	for i := range c.Rows {
		for j := range c.Cols {
			acc := float32(0)
			for k := range a.Cols {
				if pairs && k%2 == 1 {
					continue
				}
				if pairs && k+1 < a.Cols {
					acc = flushSubnormal(FMA(flushSubnormal(a.at(i, k+1)), flushSubnormal(b.at(k+1, j)), acc))
				}
				acc = FMA(a.at(i, k), b.at(k, j), acc)
				if pairs {
					acc = flushSubnormal(acc)
				}
			}
			x := float32(alpha * (acc + 0))
			if beta != 0 {
				x = x + float32(beta*c.at(i, j))
			}
			c.Data.set(i*c.Stride+j, x, nil)
		}
	}
}

func TestGemmIsThePlainLoop(t *testing.T) {
	shapes := [][3]int{{1, 1, 1}, {1, 5, 3}, {7, 1, 2}, {3, 4, 0}, {0, 3, 2}, {2, 0, 3}, {15, 31, 63}, {16, 32, 64}, {17, 33, 65}, {5, 70, 130}, {40, 3, 200}}
	factors := [][2]float32{{1, 0}, {1, 1}, {-0.7, 0}, {2.0315, -4.775}, {0, 3}, {0.1, 1e-30}}
	for i, shape := range shapes {
		for flags := range 32 {
			factor := factors[(i+flags)%len(factors)]
			transA, transB, bfA, bfC, pairs := flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0, flags&16 != 0
			a := gaussian(shape[0], shape[2], 0, bfA, 1)
			b := gaussian(shape[2], shape[1], 0, bfA, 2)
			c := gaussian(shape[0], shape[1], flags%3, bfC, 3)
			want := c.clone()
			plainGemm(want, a, b, factor[0], factor[1], pairs)
			if transA {
				a = a.transpose()
			}
			if transB {
				b = b.transpose()
			}
			gemm := Gemm
			if pairs {
				gemm = GemmPairs
			}
			gemm(c, a, transA, b, transB, factor[0], factor[1])
			requireSame(t, want, c, shape, factor, flags)
		}
	}
}

func TestGemmOnStridedViews(t *testing.T) {
	for flags := range 4 {
		transA, transB := flags&1 != 0, flags&2 != 0
		a, b := gaussian(20, 20, 5, false, 1), gaussian(20, 20, 3, false, 2)
		c, want := gaussian(20, 20, 9, false, 3), gaussian(20, 20, 9, false, 3)
		dense := func(m Matrix, transposed bool) Matrix {
			if m = m.transpose(); transposed {
				return m
			}
			return m.transpose()
		}
		plainGemm(want, dense(a, transA), dense(b, transB), 0.5, -2, false)
		Gemm(c, a, transA, b, transB, 0.5, -2)
		requireSame(t, want, c, flags)
	}
}

func TestSyrkIsGemmMirrored(t *testing.T) {
	for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 50, 65} {
		for _, bfloat16 := range []bool{false, true} {
			a := gaussian(n, 40, 2, bfloat16, uint64(n))
			c := gaussian(n, n, 1, bfloat16, 9)
			want := c.clone()
			Gemm(want, a, false, a, true, 2.0315, -4.775)
			for i := range n {
				for j := range i {
					want.Data.set(i*want.Stride+j, want.at(j, i), nil)
					c.Data.set(i*c.Stride+j, notANumber, nil) // not read
				}
			}
			Syrk(c, a, 2.0315, -4.775)
			requireSame(t, want, c, n, bfloat16)
		}
	}
}

func TestGemmSpecialValues(t *testing.T) {
	inf, minusZero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	one := func(x float32) Matrix { return fromRows([]float32{x}) }
	for _, c := range []struct {
		name                    string
		a, b, alpha, beta, c, d float32
	}{
		{"beta 0 does not read C", 2, 3, 1, 0, notANumber, 6},
		{"minus 0 as beta neither", 2, 3, 1, minusZero, notANumber, 6},
		{"a zero sum is positive", minusZero, 1, 1, 0, 0, 0},
		{"and takes the sign of alpha", 0, 1, -1, 0, 0, minusZero},
		{"alpha 0 keeps a NaN", notANumber, 1, 0, 0, 0, notANumber},
		{"alpha 0 times Inf", inf, 1, 0, 0, 0, notANumber},
		{"beta times Inf", 1, 1, 1, 0.5, inf, inf},
		{"overflow", 0x1p100, 0x1p100, 1, 0, 0, inf},
		{"subnormal", 0x1p-100, 0x1p-45, 1, 0, 0, 0x1p-145},
		{"subnormal factor", 0x1p-149, 0x1p100, 1, 0, 0, 0x1p-49},
		{"each operation is rounded", 1, 1, 0x1.000002p0, 0x1.000002p0, 0x1.000002p0, 2 + 0x1p-21},
	} {
		d := one(c.c)
		Gemm(d, one(c.a), false, one(c.b), false, c.alpha, c.beta)
		requireSame(t, one(c.d), d, c.name)
	}
}

// The order of GemmPairs is within the bound that every bf16 product has to R.
func TestGemmPairsIsWithinTheTolerance(t *testing.T) {
	for _, k := range []int{1, 2, 7, 64, 500} {
		a, b := gaussian(6, k, 0, true, 1), gaussian(k, 6, 0, true, 2)
		r, c := gaussian(6, 6, 0, false, 3), gaussian(6, 6, 0, false, 4)
		narrow := gaussian(6, 6, 0, true, 5)
		Gemm(r, a, false, b, false, 1, 0)
		GemmPairs(c, a, false, b, false, 1, 0)
		GemmPairs(narrow, a, false, b, false, 1, 0)
		for i := range 6 {
			for j := range 6 {
				sum := 0.0
				for k := range k {
					sum += math.Abs(float64(a.at(i, k)) * float64(b.at(k, j)))
				}
				bound := float64(k) * 0x1p-22 * sum
				require.InDelta(t, float64(r.at(i, j)), float64(c.at(i, j)), bound)
				require.InDelta(t, float64(r.at(i, j)), float64(narrow.at(i, j)), bound+0x1p-7*math.Abs(float64(r.at(i, j))))
			}
		}
	}
}

func TestGemmPairsOrderAndFlush(t *testing.T) {
	row := func(x ...float32) Matrix { return fromRows(x) }
	for _, c := range []struct {
		name        string
		a, b        Matrix
		pairs, want float32
	}{
		{"the odd product is rounded before the even cancels it", row(1, 1+0x1p-12), row(-1-0x1p-11, 1+0x1p-12), 0, 0x1p-24},
		{"1 and -1 meet before the second small one", row(0x1p-24, 1, 0x1p-24, -1), row(1, 1, 1, 1), 0x1p-24, 0},
		{"a subnormal operand", row(0x1p-130), row(0x1p100), 0, 0x1p-30},
		{"a subnormal sum", row(0x1p-70, 0), row(0x1p-70, 0), 0, 0x1p-140},
		{"a subnormal sum on the way", row(1, 0x1p-70), row(0x1.8p-126, -0x1p-58), 0x1.8p-126, 0x1.8p-126 - 0x1p-128},
	} {
		got := fromRows([]float32{notANumber})
		GemmPairs(got, c.a, false, c.b, true, 1, 0)
		require.Equal(t, c.pairs, got.at(0, 0), c.name)
		Gemm(got, c.a, false, c.b, true, 1, 0)
		require.Equal(t, c.want, got.at(0, 0), c.name)
	}
}

// Padding a dimension with zeros changes no element, which lets kernels pad to a tile.
func TestGemmPaddedWithZeros(t *testing.T) {
	a, b := gaussian(9, 37, 0, false, 1), gaussian(37, 11, 0, false, 2)
	want := gaussian(9, 11, 0, false, 3)
	got := want.clone()
	Gemm(want, a, false, b, false, -1, 0)
	wide := Matrix{newFloats(9*64, false), 9, 64, 64}
	for i := range 9 {
		copy(wide.Data.F32[i*64:], a.Data.F32[i*37:(i+1)*37])
	}
	tall := Matrix{newFloats(64*11, false), 64, 11, 11}
	copy(tall.Data.F32, b.Data.F32)
	Gemm(got, wide, false, tall, false, -1, 0)
	requireSame(t, want, got)
}

func TestGemmIntegersAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, bfloat16 := range []bool{false, true} {
		a, b := gaussian(20, 50, 0, bfloat16, 1), gaussian(50, 30, 0, bfloat16, 2)
		for _, m := range []Matrix{a, b} {
			for i := range m.Data.Len() {
				m.Data.set(i, float32(r.IntN(201)-100), nil)
			}
		}
		c := gaussian(20, 30, 0, false, 3)
		Gemm(c, a, false, b, false, 1, 0)
		for i := range 20 {
			for j := range 30 {
				sum := 0
				for k := range 50 {
					sum += int(a.at(i, k)) * int(b.at(k, j))
				}
				require.Equal(t, float32(sum), c.at(i, j))
			}
		}
	}
}

func TestProductsAllocateNothing(t *testing.T) {
	a, b, c := gaussian(20, 20, 0, false, 1), gaussian(20, 20, 0, true, 2), gaussian(20, 20, 0, false, 3)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		Gemm(c, a, false, b, true, 1, 1)
		Syrk(c, a, 1, 1)
	}))
}

func BenchmarkGemm(b *testing.B) {
	const n = 256
	for _, bfloat16 := range []bool{false, true} {
		b.Run(fmt.Sprintf("bfloat16=%t", bfloat16), func(b *testing.B) {
			x, y, z := gaussian(n, n, 0, bfloat16, 1), gaussian(n, n, 0, bfloat16, 2), gaussian(n, n, 0, bfloat16, 3)
			for b.Loop() {
				Gemm(z, x, false, y, false, 1, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n/n/n, "ns/fma")
		})
	}
}
