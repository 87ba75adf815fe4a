package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/viterin/vek/vek32"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/lowbit-go/lowbit/kernels"
)

func Benchmark(b *testing.B) {
	for _, l := range loads {
		for _, impl := range l.row.Implementations {
			for _, n := range l.sizes {
				if call := l.call(impl.Name, n); call != nil {
					l.measure(b, impl.Name, n, call)
				}
			}
		}
		for _, p := range peers[l.row.Name+"/"+l.row.Variant] {
			for _, n := range l.sizes {
				l.measure(b, p.name, n, p.call(n))
			}
		}
	}
}

func (l load) measure(b *testing.B, implementation string, n int, call func()) {
	implementation = strings.ReplaceAll(implementation, "/", "_") // benchstat splits names there
	name := fmt.Sprintf("op=%s/variant=%s/impl=%s/n=%d", l.row.Name, l.row.Variant, implementation, n)
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(l.row.Bytes * float64(n)))
		b.ReportAllocs()
		for b.Loop() {
			call()
		}
		if l.flops != nil {
			b.ReportMetric(l.flops(float64(n))*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		}
	})
}

type peer struct {
	name string
	call func(n int) func()
}

// peers do the work of a row elsewhere.
var peers = map[string][]peer{
	"norm/float32": {
		{"vek", func(n int) func() { x := normal(n); return func() { vek32.Norm(x) } }},
		{"gonum", func(n int) func() { x := vector(n); return func() { blas32.Nrm2(x) } }},
	},
	"dot/": {
		{"vek", func(n int) func() { x, y := normal(n), normal(n); return func() { vek32.Dot(x, y) } }},
		{"gonum", func(n int) func() { x, y := vector(n), vector(n); return func() { blas32.DDot(x, y) } }},
	},
	"scale/float32": {
		{"vek", func(n int) func() { x := normal(n); return func() { vek32.MulNumber_Inplace(x, -1) } }},
		{"gonum", func(n int) func() { x := vector(n); return func() { blas32.Scal(-1, x) } }},
	},
	"gemm_float32/": {
		{"vek", func(n int) func() {
			a, b, c := normal(n*n), normal(n*n), make([]float32, n*n)
			return func() { vek32.MatMul_Into(c, a, b, n) }
		}},
		{"gonum", func(n int) func() {
			general := func() blas32.General { return blas32.General{Rows: n, Cols: n, Stride: n, Data: normal(n * n)} }
			a, b, c := general(), general(), general()
			return func() { blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 0, c) }
		}},
	},
}

func vector(n int) blas32.Vector { return blas32.Vector{N: n, Inc: 1, Data: normal(n)} }

func TestEveryRowHasALoad(t *testing.T) {
	rows := []kernels.Row{}
	names := map[string]bool{}
	for _, l := range loads {
		rows = append(rows, l.row)
		names[l.row.Name+"/"+l.row.Variant] = true
	}
	require.ElementsMatch(t, kernels.Table(), rows)
	for name := range peers {
		require.True(t, names[name], "a peer of no row: %s", name)
	}
}

func TestEveryLoadRuns(t *testing.T) {
	for _, l := range loads {
		for _, impl := range l.row.Implementations {
			call := l.call(impl.Name, l.sizes[0])
			require.Equal(t, impl.Available, call != nil, "%s %s %s", l.row.Name, l.row.Variant, impl.Name)
			if call != nil {
				call()
			}
		}
		for _, p := range peers[l.row.Name+"/"+l.row.Variant] {
			p.call(l.sizes[0])()
		}
	}
}
