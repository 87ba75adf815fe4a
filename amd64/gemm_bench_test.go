//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
)

// BenchmarkPeak runs the loops that products are measured against.
func BenchmarkPeak(b *testing.B) {
	for _, f := range []struct {
		name  string
		needs cpufeature.Set
		peak  func(n int)
		work  int
	}{
		{"FMA/AVX2", avx2, amd64.PeakFMAAVX2, 14 * 8},
		{"FMA/AVX512", cpufeature.AVX512, amd64.PeakFMAAVX512, 14 * 16},
		{"Dot/AVX512BF16", avx512BF16, amd64.PeakDotAVX512BF16, 14 * 32},
	} {
		b.Run(f.name, func(b *testing.B) {
			cputest.Need(b, f.needs)
			const n = 1000
			for b.Loop() {
				f.peak(n)
			}
			flops(b, f.work*n)
		})
	}
}

func BenchmarkGemmBlock(b *testing.B) {
	for _, f := range []struct {
		name         string
		needs        cpufeature.Set
		width, pairs int
		block        blockFunc
	}{
		{"AVX2", avx2, 16, 1, amd64.GemmBlockAVX2},
		{"AVX512", cpufeature.AVX512, 32, 1, amd64.GemmBlockAVX512},
		{"PairsAVX512BF16", avx512BF16, 32, 2, amd64.GemmBlockPairsAVX512BF16},
	} {
		for _, k := range []int{16, 64, 128, 256, 512, 1024, 4096} {
			b.Run(fmt.Sprintf("%s/%d", f.name, k), func(b *testing.B) {
				cputest.Need(b, f.needs)
				w := f.width
				x, y, d := make([]float32, w*k), make([]float32, w*k), make([]float32, w*w)
				for b.Loop() {
					f.block(w, k, &x[0], &y[0], &d[0], false, &d[0], w, nil, 0, 1, 0, nil, nil, 0)
				}
				flops(b, w*w*k*f.pairs)
			})
		}
	}
}

func flops(b *testing.B, multiplyAdds int) {
	b.ReportMetric(2*float64(multiplyAdds)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}
