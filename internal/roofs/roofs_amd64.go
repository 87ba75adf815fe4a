//go:build !purego

package roofs

import (
	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

func streamFuncs() (list []streamFunc) {
	if cpufeature.Available.Has(cpufeature.AVX512) {
		list = append(list, amd64.StreamAVX512)
	}
	if cpufeature.Available.Has(cpufeature.AVX2) {
		list = append(list, amd64.StreamAVX2)
	}
	if list == nil {
		return []streamFunc{streamGo}
	}
	return list
}

var peaks = []Peak{
	{Name: "amd64/avx512", flops: 2 * 224, needs: cpufeature.AVX512, run: amd64.PeakFMAAVX512},
	{Name: "amd64/avx2", flops: 2 * 112, needs: cpufeature.AVX2 | cpufeature.FMA, run: amd64.PeakFMAAVX2},
	{Name: "amd64/avx512bf16", BF16: true, flops: 2 * 448, needs: cpufeature.AVX512 | cpufeature.BF16, run: amd64.PeakDotAVX512BF16},
}
