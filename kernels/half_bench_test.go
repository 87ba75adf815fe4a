package kernels_test

import (
	"testing"
	"time"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

func BenchmarkHalves(b *testing.B) {
	const n = 1 << 24
	x := normal(1<<20, 1)
	narrow, wide := make([]uint16, n), make([]float32, n)
	for i := range wide {
		wide[i] = x[i&(1<<20-1)]
	}
	for _, f := range []kernels.Format{{Codebook: codebook.Dynamic8(), Block: 256}, {Codebook: codebook.Linear8(), Block: 256}, {Codebook: codebook.NF4(), Block: 64}} {
		codes, scales := make([]uint8, f.CodeBytes(n)), make([]float32, f.Scales(n))
		run := func(name string, call func()) {
			b.Run(f.Codebook.Name()+"/"+name, func(b *testing.B) {
				best := time.Hour
				for b.Loop() {
					start := time.Now()
					call()
					best = min(best, time.Since(start))
				}
				b.ReportMetric(n/best.Seconds()/1e9, "Gelem/s")
			})
		}
		run("float32", func() { _, _ = kernels.Quantize(codes, scales, wide, f, 1) })
		for _, half := range halfFormats {
			for i := range narrow {
				narrow[i] = half.round(wide[i])
			}
			run(half.name, func() { _, _ = half.quantize(codes, scales, narrow, f, 1) })
		}
		run("to float32", func() { _ = kernels.Dequantize(wide, codes, scales, f, 1) })
		for _, half := range halfFormats {
			run("to "+half.name, func() { _ = half.dequantize(narrow, codes, scales, f, 1) })
		}
	}
}
