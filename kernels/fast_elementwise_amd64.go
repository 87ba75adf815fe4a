//go:build !purego

package kernels

import (
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/race"
)

func uint16s(x []bf16.BF16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func roundAVX2(dst []bf16.BF16, src []float32) {
	race.Write(dst)
	race.Read(src)
	amd64.RoundAVX2(uint16s(dst), src)
}

func truncateAVX2(dst []bf16.BF16, src []float32) {
	race.Write(dst)
	race.Read(src)
	amd64.TruncateAVX2(uint16s(dst), src)
}

func stochasticAVX2(dst []bf16.BF16, src []float32, s Stream) {
	race.Write(dst)
	race.Read(src)
	amd64.StochasticAVX2(uint16s(dst), src, s.Seed, s.Step, uint64(s.First))
}

func widenAVX2(dst []float32, src []bf16.BF16) {
	race.Write(dst)
	race.Read(src)
	amd64.WidenAVX2(dst, uint16s(src))
}

func roundFloat16AVX2(dst []uint16, src []float32) {
	race.Write(dst)
	race.Read(src)
	amd64.RoundFloat16AVX2(dst, src)
}

func widenFloat16AVX2(dst []float32, src []uint16) {
	race.Write(dst)
	race.Read(src)
	amd64.WidenFloat16AVX2(dst, src)
}

func roundFloat16AVX512(dst []uint16, src []float32) {
	race.Write(dst)
	race.Read(src)
	amd64.RoundFloat16AVX512(dst, src, streams(len(dst)))
}

func widenFloat16AVX512(dst []float32, src []uint16) {
	race.Write(dst)
	race.Read(src)
	amd64.WidenFloat16AVX512(dst, src, streams(len(dst)))
}

func absmaxAVX2(x []float32) float32 {
	race.Read(x)
	return amd64.AbsmaxAVX2(x)
}

func normFloat32AVX2(sums []float64, x Floats) {
	race.Write(sums)
	race.Read(x.F32)
	amd64.SumSquaresAVX2(sums, x.F32)
}

func normBF16AVX2(sums []float64, x Floats) {
	race.Write(sums)
	race.Read(x.BF16)
	amd64.SumSquaresBF16AVX2(sums, uint16s(x.BF16))
}

func scaleFloat32AVX2(x Floats, factor float32) {
	race.Write(x.F32)
	amd64.ScaleAVX2(x.F32, factor)
}

func scaleBF16AVX2(x Floats, factor float32) {
	race.Write(x.BF16)
	amd64.ScaleBF16AVX2(uint16s(x.BF16), factor)
}

// streams tells whether this many elements are a piece of work whose results no cache
// holds: the door of such work gives larger pieces than others.
func streams(elements int) bool { return elements > pieceElements }

func roundAVX512(dst []bf16.BF16, src []float32) {
	race.Write(dst)
	race.Read(src)
	amd64.RoundAVX512(uint16s(dst), src, streams(len(dst)))
}

func truncateAVX512(dst []bf16.BF16, src []float32) {
	race.Write(dst)
	race.Read(src)
	amd64.TruncateAVX512(uint16s(dst), src, streams(len(dst)))
}

func stochasticAVX512(dst []bf16.BF16, src []float32, s Stream) {
	race.Write(dst)
	race.Read(src)
	amd64.StochasticAVX512(uint16s(dst), src, s.Seed, s.Step, uint64(s.First), streams(len(dst)))
}

func widenAVX512(dst []float32, src []bf16.BF16) {
	race.Write(dst)
	race.Read(src)
	amd64.WidenAVX512(dst, uint16s(src), streams(len(dst)))
}

func absmaxAVX512(x []float32) float32 {
	race.Read(x)
	return amd64.AbsmaxAVX512(x)
}

func normFloat32AVX512(sums []float64, x Floats) {
	race.Write(sums)
	race.Read(x.F32)
	amd64.SumSquaresAVX512(sums, x.F32)
}

func normBF16AVX512(sums []float64, x Floats) {
	race.Write(sums)
	race.Read(x.BF16)
	amd64.SumSquaresBF16AVX512(sums, uint16s(x.BF16))
}

func dotAVX2(sums []float64, x, y []float32) {
	race.Write(sums)
	race.Read(x)
	race.Read(y)
	amd64.SumProductsAVX2(sums, x, y)
}

func dotAVX512(sums []float64, x, y []float32) {
	race.Write(sums)
	race.Read(x)
	race.Read(y)
	amd64.SumProductsAVX512(sums, x, y)
}

func scaleFloat32AVX512(x Floats, factor float32) {
	race.Write(x.F32)
	amd64.ScaleAVX512(x.F32, factor)
}

func scaleBF16AVX512(x Floats, factor float32) {
	race.Write(x.BF16)
	amd64.ScaleBF16AVX512(uint16s(x.BF16), factor)
}
