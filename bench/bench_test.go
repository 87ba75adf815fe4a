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
	for _, l := range Loads() {
		for _, n := range sizes(l) {
			work := l.Prepare(shapeOf(l, n)...)
			for _, impl := range l.Row.Implementations {
				if call := work.Calls[impl.Name]; call != nil {
					l.measure(b, impl.Name, n, work.Flops, func() { call(n, 1) })
				}
			}
			for _, p := range peers[l.name()] {
				l.measure(b, p.name, n, work.Flops, p.call(n))
			}
		}
	}
}

// sizes are a block, in cache and in memory, or those of square matrices.
func sizes(l Load) []int {
	switch {
	case l.Shapes == nil:
		return []int{128, 64 << 10, 4 << 20}
	case l.Method == "gram":
		return nil // squares have no such form
	}
	return []int{64, 256, 512}
}

func shapeOf(l Load, n int) Shape {
	if l.Shapes == nil {
		return Shape{n}
	}
	return Shape{n, n}
}

func (l Load) name() string { return l.Row.Name + "/" + l.Row.Variant }

func (l Load) measure(b *testing.B, implementation string, n int, flops float64, call func()) {
	implementation = strings.ReplaceAll(implementation, "/", "_") // benchstat splits names there
	name := fmt.Sprintf("op=%s/variant=%s/impl=%s/n=%d", l.Row.Name, l.Row.Variant, implementation, n)
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(l.Row.Streams.Bytes() * float64(n)))
		b.ReportAllocs()
		for b.Loop() {
			call()
		}
		if flops != 0 {
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
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
	names := map[string]bool{}
	for _, l := range Loads() {
		require.Contains(t, kernels.Table(), l.Row)
		names[l.name()] = true
	}
	for _, row := range kernels.Table() {
		require.True(t, names[row.Name+"/"+row.Variant], "no load for %s %s", row.Name, row.Variant)
	}
	for name := range peers {
		require.True(t, names[name], "a peer of no row: %s", name)
	}
}

func TestEveryLoadRuns(t *testing.T) {
	for _, l := range Loads() {
		shapes := l.Shapes
		if shapes == nil {
			shapes = []Shape{{1}, {100}, {1000}, {70_000}}
		} else {
			shapes = []Shape{{24, 40}}
			if l.Method != "" {
				shapes = append(shapes, Shape{3, 8, 8})
			}
		}
		for _, shape := range shapes {
			work := l.Prepare(shape...)
			require.Equal(t, l.Shapes != nil, work.Flops > 0)
			require.Len(t, work.Arrays.Read, len(l.Row.Streams.Read), l.name())
			require.Len(t, work.Arrays.Write, len(l.Row.Streams.Write), l.name())
			require.Len(t, work.Arrays.InPlace, len(l.Row.Streams.InPlace), l.name())
			for _, impl := range l.Row.Implementations {
				call := work.Calls[impl.Name]
				require.Equal(t, impl.Available, call != nil, "%s %s", l.name(), impl.Name)
				for threads := range 3 {
					if call != nil {
						call(shape.Elements(), threads+1)
						call((shape.Elements()+1)/2, threads+1)
					}
				}
			}
		}
		for _, p := range peers[l.name()] {
			p.call(8)()
		}
	}
}
