//go:build !purego

package kernels

import (
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var fast = implementations{
	quantizeDynamic8:         avx2[QuantizeFunc](quantizeAVX2),
	quantizeDynamic8Unsigned: avx2[QuantizeFunc](quantizeAVX2),
	quantize8:                avx2[QuantizeFunc](quantizeAVX2),
	quantize4:                avx2[QuantizeFunc](quantize4AVX2),
	dequantize8:              avx2[DequantizeFunc](dequantizeAVX2),
	dequantize4:              avx2[DequantizeFunc](dequantize4AVX2),

	round:      avx2[RoundFunc](roundAVX2),
	truncate:   avx2[RoundFunc](truncateAVX2),
	stochastic: avx2[StochasticFunc](stochasticAVX2),
	widen:      avx2[WidenFunc](widenAVX2),

	absmax:       avx2[AbsmaxFunc](absmaxAVX2),
	normFloat32:  avx2[ChunkSumsFunc](normFloat32AVX2),
	normBF16:     avx2[ChunkSumsFunc](normBF16AVX2),
	scaleFloat32: avx2[ScaleFunc](scaleFloat32AVX2),
	scaleBF16:    avx2[ScaleFunc](scaleBF16AVX2),

	adamWFloat32: adamWFloat32AVX2,
	adamWBF16:    adamWBF16AVX2,
	adamW8bit:    adamW8bitAVX2,

	adamW4bit:     adamW4bitAVX2,
	adamWFactored: adamW4bitAVX2,

	gemmFloat32: avx2[GemmFunc](stripsAVX2.Gemm),
	syrkFloat32: avx2[SyrkFunc](stripsAVX2.Syrk),

	newtonSchulzFloat32: avx2[NewtonSchulzFunc](stripsAVX2.NewtonSchulz),
	newtonSchulzBF16:    avx2[NewtonSchulzFunc](stripsBF16AVX2.NewtonSchulz),
}

// avx2 is the list of implementations of a row that has one for AVX2.
func avx2[F any](f F) []Impl[F] {
	return []Impl[F]{{Name: "amd64/avx2", Needs: cpufeature.AVX2 | cpufeature.FMA, Func: f}}
}

func uint16s(x []bf16.BF16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// quantizeAVX2 searches in cells, which all tables have but those whose codes do not
// increase with their values or whose thresholds are too close.
func quantizeAVX2(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	cells := f.Codebook.Cells()
	if cells == nil {
		return reference.Quantize(codes, scales, x, f)
	}
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	return amd64.QuantizeAVX2(codes, scales, x, f.Block, f.ScaleDivisor(), cells)
}

func dequantizeAVX2(dst []float32, codes []uint8, scales []float32, f Format) {
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	amd64.DequantizeAVX2(dst, codes, scales, f.Block, f.Codebook.Table())
}

// quantize4AVX2 takes a block for zeros where all of its numbers are, not where its scale
// is, which a divisor above 1 can round to zero.
func quantize4AVX2(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	if !wholeBytes(f, len(x)) || f.ScaleDivisor() > 1 {
		return reference.Quantize(codes, scales, x, f)
	}
	race.Write(codes)
	race.Write(scales)
	race.Read(x)
	book := f.Codebook
	return amd64.Quantize4AVX2(codes, scales, x, f.Block, f.ScaleDivisor(), book.Thresholds(), book.Codes(), book.Zero(), f.Nibble == codebook.HighFirst)
}

func dequantize4AVX2(dst []float32, codes []uint8, scales []float32, f Format) {
	if !wholeBytes(f, len(dst)) {
		reference.Dequantize(dst, codes, scales, f)
		return
	}
	race.Write(dst)
	race.Read(codes)
	race.Read(scales)
	amd64.Dequantize4AVX2(dst, codes, scales, f.Block, f.Codebook.Table(), f.Nibble == codebook.HighFirst)
}

// wholeBytes tells whether every block of 4-bit codes begins with a byte.
func wholeBytes(f Format, n int) bool { return f.Block%2 == 0 || f.Block >= n }

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
