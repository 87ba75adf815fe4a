//go:build !purego

package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// TestCrowdedCaches has rows of A whose lines take the same few places of a cache, and that
// are packed for those where this is too many.
func TestCrowdedCaches(t *testing.T) {
	cputest.Need(t, cpufeature.AVX512)
	const rows, cols, depth = 33, 32, 40
	matrix := func(rows, cols, stride, seed int) Matrix {
		x := make([]float32, rows*stride)
		for i := range x {
			x[i] = float32((i*seed)%37-18) / 7
		}
		return Matrix{Data: Float32s(x), Rows: rows, Cols: cols, Stride: stride}
	}
	for _, stride := range []int{depth, 1024, 2048} {
		for _, crowded := range []bool{false, true} {
			t.Run(fmt.Sprintf("stride=%d crowded=%v", stride, crowded), func(t *testing.T) {
				a, b := matrix(rows, depth, stride, 5), matrix(depth, cols, cols, 11)
				want, got := matrix(rows, cols, cols, 1), matrix(rows, cols, cols, 1)
				reference.Gemm(want, a, false, b, false, 1, 0)
				e := *stripsAVX512
				e.Crowded = crowded
				e.Gemm(got, a, false, b, false, 1, 0, 1)
				require.Equal(t, want.Data.F32, got.Data.F32)
			})
		}
	}
}
