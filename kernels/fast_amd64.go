//go:build !purego

package kernels

import (
	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

var fast = implementations{
	quantizeDynamic8:         avx512[QuantizeFunc]("avx512", 0, dynamicQuantize(amd64.QuantizeDynamic8AVX512).run, avx2[QuantizeFunc](quantizeAVX2)),
	quantizeDynamic8Unsigned: avx512[QuantizeFunc]("avx512", 0, dynamicQuantize(amd64.QuantizeDynamic8UnsignedAVX512).run, avx2[QuantizeFunc](quantizeAVX2)),
	quantize8:                avx2[QuantizeFunc](quantizeAVX2),
	quantize4:                avx512[QuantizeFunc]("avx512", 0, quantize4AVX512, avx2[QuantizeFunc](quantize4AVX2)),
	dequantize8:              avx512[DequantizeFunc]("avx512vbmi", cpufeature.VBMI, dequantizeAVX512, avx2[DequantizeFunc](dequantizeAVX2)),
	dequantize4:              avx512[DequantizeFunc]("avx512", 0, dequantize4AVX512, avx2[DequantizeFunc](dequantize4AVX2)),

	round:      avx512[RoundFunc]("avx512", 0, roundAVX512, avx2[RoundFunc](roundAVX2)),
	truncate:   avx512[RoundFunc]("avx512", 0, truncateAVX512, avx2[RoundFunc](truncateAVX2)),
	stochastic: avx512[StochasticFunc]("avx512", 0, stochasticAVX512, avx2[StochasticFunc](stochasticAVX2)),
	widen:      avx512[WidenFunc]("avx512", 0, widenAVX512, avx2[WidenFunc](widenAVX2)),

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

// avx512 puts an implementation for AVX-512 and what else it needs before others.
func avx512[F any](name string, also cpufeature.Set, f F, others []Impl[F]) []Impl[F] {
	return append([]Impl[F]{{Name: "amd64/" + name, Needs: cpufeature.AVX512 | also, Func: f}}, others...)
}
