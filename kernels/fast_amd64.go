//go:build !purego

package kernels

import (
	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

var fast = implementations{
	quantizeDynamic8:         avx512[QuantizeFunc]("avx512", 0, quantizeAVX512, avx2[QuantizeFunc](quantizeAVX2)),
	quantizeDynamic8Unsigned: avx512[QuantizeFunc]("avx512", 0, quantizeAVX512, avx2[QuantizeFunc](quantizeAVX2)),
	quantize8:                avx512[QuantizeFunc]("avx512", 0, quantizeAVX512, avx2[QuantizeFunc](quantizeAVX2)),
	quantize4:                avx512[QuantizeFunc]("avx512", 0, quantize4AVX512, avx2[QuantizeFunc](quantize4AVX2)),
	dequantize8:              avx512[DequantizeFunc]("avx512vbmi", cpufeature.VBMI, dequantizeAVX512, avx2[DequantizeFunc](dequantizeAVX2)),
	dequantize4:              avx512[DequantizeFunc]("avx512", 0, dequantize4AVX512, avx2[DequantizeFunc](dequantize4AVX2)),

	round:      avx512[RoundFunc]("avx512", 0, roundAVX512, avx2[RoundFunc](roundAVX2)),
	truncate:   avx512[RoundFunc]("avx512", 0, truncateAVX512, avx2[RoundFunc](truncateAVX2)),
	stochastic: avx512[StochasticFunc]("avx512", 0, stochasticAVX512, avx2[StochasticFunc](stochasticAVX2)),
	widen:      avx512[WidenFunc]("avx512", 0, widenAVX512, avx2[WidenFunc](widenAVX2)),

	roundFloat16: avx512[RoundFloat16Func]("avx512", 0, roundFloat16AVX512, f16c[RoundFloat16Func](roundFloat16AVX2)),
	widenFloat16: avx512[WidenFloat16Func]("avx512", 0, widenFloat16AVX512, f16c[WidenFloat16Func](widenFloat16AVX2)),

	absmax:       avx512[AbsmaxFunc]("avx512", 0, absmaxAVX512, avx2[AbsmaxFunc](absmaxAVX2)),
	normFloat32:  avx512[ChunkSumsFunc]("avx512", 0, normFloat32AVX512, avx2[ChunkSumsFunc](normFloat32AVX2)),
	normBF16:     avx512[ChunkSumsFunc]("avx512", 0, normBF16AVX512, avx2[ChunkSumsFunc](normBF16AVX2)),
	dot:          avx512[DotFunc]("avx512", 0, dotAVX512, avx2[DotFunc](dotAVX2)),
	scaleFloat32: avx512[ScaleFunc]("avx512", 0, scaleFloat32AVX512, avx2[ScaleFunc](scaleFloat32AVX2)),
	scaleBF16:    avx512[ScaleFunc]("avx512", 0, scaleBF16AVX512, avx2[ScaleFunc](scaleBF16AVX2)),

	factorMeansFloat32: factorMeansFloat32Impls,
	factorMeansBF16:    factorMeansBF16Impls,
	accumulateFloat32:  accumulateFloat32Impls,
	accumulateBF16:     accumulateBF16Impls,

	muonDirection: muonDirectionImpls(),
	muonUpdate:    muonUpdateImpls(),

	adamWFloat32: adamWFloat32,
	adamWBF16:    adamWBF16,
	adamW8bit:    adamW8bit,

	adamW4bit:     adamW4bit,
	adamWFactored: adamWFactored,

	gemmFloat32: gemmFloat32,
	syrkFloat32: syrkFloat32,
	gemmBF16:    gemmBF16,
	syrkBF16:    syrkBF16,

	newtonSchulzFloat32: newtonSchulzFloat32,
	newtonSchulzBF16:    newtonSchulzBF16,
}

// avx2 is the list of implementations of a row that has one for AVX2.
func avx2[F any](f F) []Impl[F] {
	return []Impl[F]{{Name: "amd64/avx2", Needs: cpufeature.AVX2 | cpufeature.FMA, Func: f}}
}

// f16c is avx2 of a row whose conversions are an extension of their own.
func f16c[F any](f F) []Impl[F] {
	return []Impl[F]{{Name: "amd64/avx2", Needs: cpufeature.AVX2 | cpufeature.F16C, Func: f}}
}

// avx512 puts an implementation for AVX-512 and what else it needs before others.
func avx512[F any](name string, also cpufeature.Set, f F, others []Impl[F]) []Impl[F] {
	return append([]Impl[F]{{Name: "amd64/" + name, Needs: cpufeature.AVX512 | also, Func: f}}, others...)
}
