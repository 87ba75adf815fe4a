//go:build amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x

package reference

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
)

// Rows and matrices that begin past 2^31 elements; the memory between them is mapped but
// never touched.
func TestOffsetsPast32Bits(t *testing.T) {
	const far, elements = 1<<31 + 5, 3 * (1<<31 + 5)
	memory, err := syscall.Mmap(-1, 0, 2*elements, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(memory)) })
	data := Floats{BF16: unsafe.Slice((*bf16.BF16)(unsafe.Pointer(&memory[0])), elements)}
	place := func(m Matrix, first, stride int) Matrix {
		view := Matrix{data.Slice(first, elements), m.Rows, m.Cols, stride}
		for i := range m.Rows {
			for j := range m.Cols {
				view.Data.set(i*stride+j, m.at(i, j), nil)
			}
		}
		return view
	}
	same := func(want, got Matrix) {
		t.Helper()
		for i := range want.Rows {
			for j := range want.Cols {
				require.Equal(t, bits(want.at(i, j)), bits(got.at(i, j)))
			}
		}
	}
	a, b, c := gaussian(3, 3, 0, true, 1), gaussian(3, 3, 0, true, 2), gaussian(3, 3, 0, true, 3)
	farA, farB, farC := place(a, 0, far), place(b, 10, far), place(c, 20, far)
	Gemm(farC, farA, false, farB, true, 1, -1)
	Gemm(c, a, false, b, true, 1, -1)
	same(c, farC)

	plan := jordan.plan()
	want, _ := run(stack(a, b), plan)
	farStack := Stack{data, 2, 3, 3, 3, far}
	place(a, 0, 3)
	place(b, far, 3)
	require.Zero(t, NewtonSchulz(farStack, farStack, &plan, make([]float32, plan.WorkSize(3, 3))))
	for k := range 2 {
		same(want.Matrix(k), farStack.Matrix(k))
	}
}
