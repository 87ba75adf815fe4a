//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
)

func BenchmarkPeakFMA(b *testing.B) {
	const n = 1000
	for b.Loop() {
		amd64.PeakFMAAVX2(n)
	}
	flops(b, 14*8*n)
}

func BenchmarkGemmBlock(b *testing.B) {
	for _, k := range []int{16, 64, 128, 256, 512, 1024, 4096} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			x, y, d := make([]float32, 16*k+16), make([]float32, 16*k+16), make([]float32, 256)
			for b.Loop() {
				amd64.GemmBlockAVX2(16, k, &x[0], &y[0], &d[0], false, &d[0], 16, nil, 0, 1, 0)
			}
			flops(b, 256*k)
		})
	}
}

func flops(b *testing.B, multiplyAdds int) {
	b.ReportMetric(2*float64(multiplyAdds)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}
