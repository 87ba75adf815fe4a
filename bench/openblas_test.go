//go:build (linux || darwin) && (amd64 || arm64)

package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

// openBLAS is the library on one thread, where the system has it. Its kernels are chosen
// by the environment's OPENBLAS_CORETYPE, SkylakeX or Haswell, and otherwise by itself.
type openBLAS struct {
	core  string
	sgemm func(order, transA, transB, m, n, k int32, alpha float32, a unsafe.Pointer, lda int32, b unsafe.Pointer, ldb int32, beta float32, c unsafe.Pointer, ldc int32)
}

var loadOpenBLAS = sync.OnceValue(func() *openBLAS {
	for _, name := range []string{
		"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib",
		"/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "/usr/local/opt/openblas/lib/libopenblas.dylib",
	} {
		library, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			continue
		}
		var threads func(int32)
		var core func() string
		o := &openBLAS{}
		purego.RegisterLibFunc(&threads, library, "openblas_set_num_threads")
		purego.RegisterLibFunc(&core, library, "openblas_get_corename")
		purego.RegisterLibFunc(&o.sgemm, library, "cblas_sgemm")
		threads(1)
		o.core = core()
		return o
	}
	return nil
})

func init() {
	o := loadOpenBLAS()
	if o == nil {
		return
	}
	add := func(row string, call func(n int) func()) {
		peers[row] = append(peers[row], peer{"openblas_" + o.core, call})
	}
	add("gemm_float32/", func(n int) func() {
		a, b, c := normal(n*n), normal(n*n), make([]float32, n*n)
		return func() { o.multiply(c, a, b, n, false, 1, 0) }
	})
	add("newton_schulz_float32/", func(n int) func() {
		dst, src, work := make([]float32, n*n), normal(n*n), make([]float32, 3*n*n)
		return func() { o.newtonSchulz(dst, src, work, n) }
	})
}

// multiply sets C to alpha*A·B + beta*C, with Bᵀ if asked, of square row-major matrices.
func (o *openBLAS) multiply(c, a, b []float32, n int, transB bool, alpha, beta float32) {
	const rowMajor, plain, transposed = 101, 111, 112
	second, size := int32(plain), int32(n)
	if transB {
		second = transposed
	}
	o.sgemm(rowMajor, plain, second, size, size, size, alpha, unsafe.Pointer(&a[0]), size, unsafe.Pointer(&b[0]), size, beta, unsafe.Pointer(&c[0]), size)
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(c)
}

// newtonSchulz is the iteration as it is usually written, of full products.
func (o *openBLAS) newtonSchulz(dst, src, work []float32, n int) {
	x, a, b := work[:n*n], work[n*n:2*n*n], work[2*n*n:]
	sum := 0.0
	for _, v := range src {
		sum += float64(v) * float64(v)
	}
	norm := float32(math.Sqrt(sum))
	for i, v := range src {
		dst[i] = v / norm
	}
	for range newtonSchulzSteps {
		copy(x, dst)
		o.multiply(a, x, x, n, true, 1, 0)
		copy(b, a)
		o.multiply(b, a, a, n, false, jordan[2], jordan[1])
		o.multiply(dst, b, x, n, false, 1, jordan[0])
	}
}

func TestOpenBLASDoesTheSame(t *testing.T) {
	o := loadOpenBLAS()
	if o == nil {
		t.Skip("there is no OpenBLAS to compare with")
	}
	require.NotEmpty(t, o.core)
	const n = 48
	src, got, want := normal(n*n), make([]float32, n*n), make([]float32, n*n)
	o.newtonSchulz(got, src, make([]float32, 3*n*n), n)
	plan := &kernels.NewtonSchulzPlan{Steps: slices.Repeat([][3]float32{jordan}, newtonSchulzSteps), Safety: 1}
	stack := func(x []float32) kernels.Stack {
		return kernels.Stack{Data: kernels.Float32s(x), Count: 1, Rows: n, Cols: n, Stride: n}
	}
	_, err := kernels.NewtonSchulz(stack(want), stack(src), plan, make([]float32, plan.WorkSize(n, n)))
	require.NoError(t, err)
	for i := range want {
		require.InDelta(t, want[i], got[i], 1e-4, fmt.Sprint(i))
	}
}
