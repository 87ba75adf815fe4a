package lm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// waves is a test array that begins at an offset within its memory.
func waves(n, offset int, pace float64) []float32 {
	x := make([]float32, n+offset)[offset:]
	for i := range x {
		x[i] = float32(math.Sin(pace * float64(i+1)))
	}
	return x
}

var productSizes = [][3]int{{1, 1, 1}, {2, 3, 5}, {7, 33, 31}, {16, 32, 64}, {5, 300, 401}, {64, 64, 256}}

func TestProducts(t *testing.T) {
	for _, s := range productSizes {
		m, k, n := s[0], s[1], s[2]
		a, b := waves(m*k, 0, 0.7), waves(k*n, 0, 0.3)
		at, bt := make([]float32, k*m), make([]float32, n*k)
		transpose(at, a, m, k)
		transpose(bt, b, k, n)
		want := make([]float64, m*n)
		for i := range m {
			for j := range n {
				for l := range k {
					want[i*n+j] += float64(a[i*k+l]) * float64(b[l*n+j])
				}
				require.Equal(t, b[0*n+j], bt[j*k])
			}
		}
		scratch := make([]float32, max(k*n, m*k))
		for name, run := range map[string]func(c []float32){
			"a·b":  func(c []float32) { mul(c, a, b, m, k, n) },
			"a·bᵀ": func(c []float32) { mulTransposedB(c, a, bt, scratch, m, k, n) },
			"aᵀ·b": func(c []float32) { mulTransposedA(c, at, b, scratch, k, m, n) },
		} {
			c := waves(m*n, 0, 1) // overwritten, not added to
			run(c)
			for i := range c {
				require.InDelta(t, want[i], c[i], 1e-5*math.Sqrt(float64(k)), "%s of %v at %d", name, s, i)
			}
		}
	}
}

func TestProductBitsDoNotDependOnAlignment(t *testing.T) {
	for _, s := range productSizes {
		m, k, n := s[0], s[1], s[2]
		want := make([]float32, m*n)
		mul(want, waves(m*k, 0, 0.7), waves(k*n, 0, 0.3), m, k, n)
		for offset := 1; offset < 16; offset++ {
			c := waves(m*n, offset, 1)
			mul(c, waves(m*k, (3*offset)%16, 0.7), waves(k*n, (5*offset)%16, 0.3), m, k, n)
			require.Equal(t, want, c, "%v at offset %d", s, offset)
		}
	}
}
