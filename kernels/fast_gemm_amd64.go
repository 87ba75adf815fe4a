//go:build !purego

package kernels

import (
	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/kernels/strips"
)

const avx2 = cpufeature.AVX2 | cpufeature.FMA

var stripsAVX2 = &strips.Kernels{
	Width:     16,
	Block:     amd64.GemmBlockAVX2,
	Transpose: amd64.TransposeBlockAVX2,
	CopyRows:  amd64.CopyRowsAVX2,
	Normalize: amd64.NormalizeBlockAVX2,
}

var (
	gemmFloat32 = []Impl[GemmFunc]{{Name: "avx2", Needs: avx2, Func: stripsAVX2.Gemm}}
	syrkFloat32 = []Impl[SyrkFunc]{{Name: "avx2", Needs: avx2, Func: stripsAVX2.Syrk}}
)
