//go:build !purego

package kernels

import (
	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/kernels/strips"
)

var stripsAVX2 = &strips.Kernels{
	Width:     16,
	Block:     amd64.GemmBlockAVX2,
	Transpose: amd64.TransposeBlockAVX2,
	CopyRows:  amd64.CopyRowsAVX2,
	Normalize: amd64.NormalizeBlockAVX2,

	Absmax: amd64.AbsmaxAVX2, SumSquares: amd64.SumSquaresAVX2,
}

// stripsBF16AVX2 keeps bf16 numbers as float32.
var stripsBF16AVX2 = &strips.Kernels{
	Width:     16,
	Block:     amd64.GemmBlockBF16AVX2,
	Transpose: amd64.TransposeBlockAVX2,
	CopyRows:  amd64.CopyRowsAVX2,
	Normalize: amd64.NormalizeBlockBF16AVX2,

	Absmax: amd64.AbsmaxAVX2, SumSquares: amd64.SumSquaresAVX2,
}
