package reference

import "testing"

func BenchmarkGemm(b *testing.B) {
	const n = 256
	m := func() Matrix {
		x := Matrix{Floats{F32: make([]float32, n*n)}, n, n, n}
		for i := range n * n {
			x.Data.F32[i] = float32(i*7919%1013)/1013 - 0.5
		}
		return x
	}
	x, y, z := m(), m(), m()
	for b.Loop() {
		Gemm(z, x, false, y, false, 1, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n/n/n, "ns/fma")
	b.ReportAllocs()
}
