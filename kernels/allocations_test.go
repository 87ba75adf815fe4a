//go:build !race

package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

// The race detector makes pools forget what they hold, so this runs without it.
func TestMatrixProductsAllocateNothing(t *testing.T) {
	for _, n := range []int{20, 150} {
		m := func(seed uint64) kernels.Matrix {
			return kernels.Matrix{Data: kernels.Float32s(normal(n*n, seed)), Rows: n, Cols: n, Stride: n}
		}
		a, b, c := m(1), m(2), m(3)
		stack := stackOf(3, n, n, 0)
		plan := newtonSchulzPlans["standard"]
		work := make([]float32, kernels.NewtonSchulzWork(&plan, 3, n, n))
		for name, call := range map[string]func(){
			"gemm":          func() { _ = kernels.Gemm(c, a, false, b, false, 1, 0) },
			"syrk":          func() { _ = kernels.Syrk(c, a, 1, 0) },
			"newton-schulz": func() { _, _ = kernels.NewtonSchulz(stack, stack, &plan, work) },
		} {
			require.Zerof(t, testing.AllocsPerRun(5, call), "%s of %dx%d", name, n, n)
		}
	}
}
