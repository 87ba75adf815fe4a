//go:build !purego

package kernels

import (
	"slices"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/kernels/strips"
)

var (
	gemmFloat32 = avx512[GemmFunc]("avx512", 0, stripsAVX512.Gemm, avx2[GemmFunc](stripsAVX2.Gemm))
	syrkFloat32 = avx512[SyrkFunc]("avx512", 0, stripsAVX512.Syrk, avx2[SyrkFunc](stripsAVX2.Syrk))

	gemmBF16 = avx512BF16[GemmFunc](pairsAVX512BF16.Gemm, avx512[GemmFunc]("avx512", 0, pairsAVX512.Gemm, avx2[GemmFunc](pairsAVX2.Gemm)))
	syrkBF16 = avx512BF16[SyrkFunc](pairsAVX512BF16.Syrk, avx512[SyrkFunc]("avx512", 0, pairsAVX512.Syrk, avx2[SyrkFunc](pairsAVX2.Syrk)))

	newtonSchulzFloat32 = avx512[NewtonSchulzFunc]("avx512", 0, stripsAVX512.NewtonSchulz, avx2[NewtonSchulzFunc](stripsAVX2.NewtonSchulz))
	newtonSchulzBF16    = avx512BF16[NewtonSchulzFunc](stripsAVX512BF16.NewtonSchulz,
		avx512[NewtonSchulzFunc]("avx512", 0, stripsBF16AVX512.NewtonSchulz, avx2[NewtonSchulzFunc](stripsBF16AVX2.NewtonSchulz)))
)

// avx512BF16 puts an implementation with VDPBF16PS before others where that instruction is
// fast, and else behind the first of them.
func avx512BF16[F any](f F, others []Impl[F]) []Impl[F] {
	withIt := avx512("avx512bf16", cpufeature.BF16, f, nil)
	if cpufeature.FastBF16Dot {
		return append(withIt, others...)
	}
	return slices.Insert(others, 1, withIt...)
}

var stripsAVX2 = &strips.Kernels{
	Width:          16,
	Block:          amd64.GemmBlockAVX2,
	Packing:        amd64.GemmPackingAVX2,
	Rows:           amd64.GemmRowsAVX2,
	RowsPacking:    amd64.GemmRowsPackingAVX2,
	Corner:         amd64.GemmCornerAVX2,
	Line:           amd64.GemmLineAVX2,
	Transpose:      amd64.TransposeBlockAVX2,
	CopyRows:       amd64.CopyRowsAVX2,
	Normalize:      amd64.NormalizeBlockAVX2,
	TransposeStrip: amd64.TransposeBlockAVX2,
	Mirror:         amd64.MirrorBlockAVX2,

	Widen: amd64.WidenAVX2, Round: amd64.RoundAVX2, Absmax: amd64.AbsmaxAVX2, SumSquares: amd64.SumSquaresAVX2,
}

// stripsBF16AVX2 keeps bf16 numbers as float32.
var stripsBF16AVX2 = &strips.Kernels{
	Width:          16,
	Block:          amd64.GemmBlockBF16AVX2,
	Corner:         amd64.GemmCornerBF16AVX2,
	Line:           amd64.GemmLinePairsAVX2,
	Transpose:      amd64.TransposeBlockAVX2,
	CopyRows:       amd64.CopyRowsAVX2,
	Normalize:      amd64.NormalizeBlockBF16AVX2,
	TransposeStrip: amd64.TransposeBlockAVX2,
	Mirror:         amd64.MirrorBlockAVX2,

	Widen: amd64.WidenAVX2, Round: amd64.RoundAVX2, Absmax: amd64.AbsmaxAVX2, SumSquares: amd64.SumSquaresAVX2,
}

// pairsAVX2 multiplies bf16 matrices, which are widened on the way into strips.
var pairsAVX2 = &strips.Kernels{
	Width:          16,
	Block:          amd64.GemmBlockPairsAVX2,
	Corner:         amd64.GemmCornerPairsAVX2,
	Mirror:         amd64.MirrorBlockAVX2,
	Transpose:      amd64.TransposeBlockAVX2,
	CopyRows:       amd64.CopyRowsAVX2,
	PackRows:       amd64.WidenRowsAVX2,
	PackTransposed: amd64.TransposeWidenAVX2,
	WidenRows:      amd64.WidenRowsAVX2,
	NarrowRows:     amd64.NarrowRowsAVX2,
}

var stripsAVX512 = &strips.Kernels{
	Width:          32,
	Block:          amd64.GemmBlockAVX512,
	Packing:        amd64.GemmPackingAVX512,
	Rows:           amd64.GemmRowsAVX512,
	RowsPacking:    amd64.GemmRowsPackingAVX512,
	Crowded:        cpufeature.L1Data < 12*4096, // of 12 rows
	Corner:         amd64.GemmCornerAVX512,
	Line:           amd64.GemmLineAVX512,
	Transpose:      amd64.TransposeBlockAVX512,
	CopyRows:       amd64.CopyRowsAVX512,
	Normalize:      amd64.NormalizeBlockAVX512,
	TransposeStrip: amd64.TransposeBlockAVX512,
	Mirror:         amd64.MirrorBlockAVX512,

	Widen: widenNear, Round: roundNear, Absmax: amd64.AbsmaxAVX512, SumSquares: amd64.SumSquaresAVX512,
}

var stripsBF16AVX512 = &strips.Kernels{
	Width:          32,
	Block:          amd64.GemmBlockBF16AVX512,
	Corner:         amd64.GemmCornerBF16AVX512,
	Line:           amd64.GemmLinePairsAVX512,
	Transpose:      amd64.TransposeBlockAVX512,
	CopyRows:       amd64.CopyRowsAVX512,
	Normalize:      amd64.NormalizeBlockBF16AVX512,
	TransposeStrip: amd64.TransposeBlockAVX512,
	Mirror:         amd64.MirrorBlockAVX512,

	Widen: widenNear, Round: roundNear, Absmax: amd64.AbsmaxAVX512, SumSquares: amd64.SumSquaresAVX512,
}

var pairsAVX512 = &strips.Kernels{
	Width:          32,
	Block:          amd64.GemmBlockPairsAVX512,
	Corner:         amd64.GemmCornerPairsAVX512,
	Mirror:         amd64.MirrorBlockAVX512,
	Transpose:      amd64.TransposeBlockAVX512,
	CopyRows:       amd64.CopyRowsAVX512,
	PackRows:       amd64.WidenRowsAVX512,
	PackTransposed: amd64.TransposeWidenAVX512,
	WidenRows:      amd64.WidenRowsAVX512,
	NarrowRows:     amd64.NarrowRowsAVX512,
}

// stripsAVX512BF16 and pairsAVX512BF16 multiply by VDPBF16PS.
var stripsAVX512BF16 = &strips.Kernels{
	Width:          32,
	Paired:         true,
	Block:          amd64.GemmBlockBF16AVX512BF16,
	Corner:         amd64.GemmCornerBF16AVX512BF16,
	Line:           amd64.GemmLinePairsAVX512,
	CopyRows:       amd64.CopyRowsAVX512,
	Normalize:      amd64.NormalizeBlockBF16AVX512BF16,
	TransposeStrip: amd64.TransposePairsAVX512BF16,
	UnpackRows:     amd64.UnpairRowsAVX512BF16,

	Widen: widenNear, Round: roundNear, Absmax: amd64.AbsmaxAVX512, SumSquares: amd64.SumSquaresAVX512,
}

var pairsAVX512BF16 = &strips.Kernels{
	Width:          32,
	Paired:         true,
	Block:          amd64.GemmBlockPairsAVX512BF16,
	Corner:         amd64.GemmCornerPairsAVX512BF16,
	Mirror:         amd64.MirrorBlockAVX512,
	Transpose:      amd64.TransposeBlockAVX512,
	CopyRows:       amd64.CopyRowsAVX512,
	PackRows:       amd64.PairRowsAVX512BF16,
	PackTransposed: amd64.TransposePairAVX512BF16,
	WidenRows:      amd64.WidenRowsAVX512,
	NarrowRows:     amd64.NarrowRowsAVX512,
}

func widenNear(dst []float32, src []uint16) { amd64.WidenAVX512(dst, src, false) }

func roundNear(dst []uint16, src []float32) { amd64.RoundAVX512(dst, src, false) }
