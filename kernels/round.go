package kernels

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of the bf16 conversions.
type (
	RoundFunc      func(dst []bf16.BF16, src []float32)
	StochasticFunc func(dst []bf16.BF16, src []float32, s Stream)
	WidenFunc      func(dst []float32, src []bf16.BF16)
)

// The signatures of the conversions of IEEE binary16.
type (
	RoundFloat16Func func(dst []uint16, src []float32)
	WidenFloat16Func func(dst []float32, src []uint16)
)

var (
	narrowing = Streams{Read: []float64{4}, Write: []float64{2}}
	widening  = Streams{Read: []float64{2}, Write: []float64{4}}

	OpRound      = declare(Op[RoundFunc]{Name: "bf16_round", Streams: narrowing}, reference.Round, fast.round)
	OpTruncate   = declare(Op[RoundFunc]{Name: "bf16_truncate", Streams: narrowing}, reference.Truncate, fast.truncate)
	OpStochastic = declare(Op[StochasticFunc]{Name: "bf16_stochastic", Streams: narrowing}, reference.Stochastic, fast.stochastic)
	OpWiden      = declare(Op[WidenFunc]{Name: "bf16_widen", Streams: widening}, reference.Widen, fast.widen)

	OpRoundFloat16 = declare(Op[RoundFloat16Func]{Name: "float16_round", Streams: narrowing}, reference.RoundFloat16, fast.roundFloat16)
	OpWidenFloat16 = declare(Op[WidenFloat16Func]{Name: "float16_widen", Streams: widening}, reference.WidenFloat16, fast.widenFloat16)
)

// Round rounds src to bf16, to nearest with ties to even. dst has the length of src. NaN
// stays NaN, and magnitudes beyond the largest finite bf16 become infinite.
func Round[B ~uint16](dst []B, src []float32, limit ...Threads) error {
	return round("bf16_round", OpRound.run, bf16Slice(dst), src, limit)
}

// Truncate rounds src to bf16 towards zero. dst has the length of src.
func Truncate[B ~uint16](dst []B, src []float32, limit ...Threads) error {
	return round("bf16_truncate", OpTruncate.run, bf16Slice(dst), src, limit)
}

// Stochastic rounds src to bf16 up or down at random, so that the mean of the result is
// src. Element i uses the random bits of element s.First+i of the stream, so that a
// parameter gets the same bits however it is split. dst has the length of src.
func Stochastic[B ~uint16](dst []B, src []float32, s Stream, limit ...Threads) error {
	narrow := bf16Slice(dst)
	if err := checkFirst("bf16_stochastic", s.First); err != nil {
		return err
	}
	if err := checkConversion("bf16_stochastic", spanOf("dst", narrow), len(narrow), spanOf("src", src), len(src)); err != nil {
		return err
	}
	if small(len(src)) {
		OpStochastic.run(narrow, src, s)
		return nil
	}
	stochasticSplit.run(stochasticArgs{narrow, src, s}, len(src), max(randomGroup, streamAlign(len(src))), limit)
	return nil
}

// Widen sets dst to the exact values of src. dst has the length of src.
func Widen[B ~uint16](dst []float32, src []B, limit ...Threads) error {
	narrow := bf16Slice(src)
	if err := checkConversion("bf16_widen", spanOf("dst", dst), len(dst), spanOf("src", narrow), len(narrow)); err != nil {
		return err
	}
	if small(len(narrow)) {
		OpWiden.run(dst, narrow)
		return nil
	}
	widenSplit.run(widenArgs{dst, narrow}, len(narrow), streamAlign(len(narrow)), limit)
	return nil
}

// RoundFloat16 rounds src to IEEE binary16, to nearest with ties to even. dst has the length
// of src. NaN stays NaN, and magnitudes from 65520 on become infinite.
func RoundFloat16[H ~uint16](dst []H, src []float32, limit ...Threads) error {
	narrow := uint16Slice(dst)
	if err := checkConversion("float16_round", spanOf("dst", narrow), len(narrow), spanOf("src", src), len(src)); err != nil {
		return err
	}
	if small(len(src)) {
		OpRoundFloat16.run(narrow, src)
		return nil
	}
	roundFloat16Split.run(float16Args{src, narrow}, len(src), streamAlign(len(src)), limit)
	return nil
}

// WidenFloat16 sets dst to the exact values of src, which are IEEE binary16. dst has the
// length of src.
func WidenFloat16[H ~uint16](dst []float32, src []H, limit ...Threads) error {
	narrow := uint16Slice(src)
	if err := checkConversion("float16_widen", spanOf("dst", dst), len(dst), spanOf("src", narrow), len(narrow)); err != nil {
		return err
	}
	if small(len(narrow)) {
		OpWidenFloat16.run(dst, narrow)
		return nil
	}
	widenFloat16Split.run(float16Args{dst, narrow}, len(narrow), streamAlign(len(narrow)), limit)
	return nil
}

func round(op string, run RoundFunc, dst []bf16.BF16, src []float32, limit []Threads) error {
	if err := checkConversion(op, spanOf("dst", dst), len(dst), spanOf("src", src), len(src)); err != nil {
		return err
	}
	if small(len(src)) {
		run(dst, src)
		return nil
	}
	roundSplit.run(roundArgs{dst, src, run}, len(src), streamAlign(len(src)), limit)
	return nil
}

func checkConversion(op string, dst span, dstLen int, src span, srcLen int) error {
	if dstLen != srcLen {
		return lengthError(op, dst.name, dstLen, srcLen, "as "+src.name)
	}
	return disjoint(op, dst, src)
}

type roundArgs struct {
	dst []bf16.BF16
	src []float32
	run RoundFunc
}

var roundSplit = split(func(a *roundArgs, lo, hi int) Counts {
	a.run(a.dst[lo:hi], a.src[lo:hi])
	return Counts{}
})

type stochasticArgs struct {
	dst    []bf16.BF16
	src    []float32
	stream Stream
}

var stochasticSplit = split(func(a *stochasticArgs, lo, hi int) Counts {
	s := a.stream
	s.First += int64(lo)
	OpStochastic.run(a.dst[lo:hi], a.src[lo:hi], s)
	return Counts{}
})

type widenArgs struct {
	dst []float32
	src []bf16.BF16
}

var widenSplit = split(func(a *widenArgs, lo, hi int) Counts {
	OpWiden.run(a.dst[lo:hi], a.src[lo:hi])
	return Counts{}
})

type float16Args struct {
	wide   []float32
	narrow []uint16
}

var (
	roundFloat16Split = split(func(a *float16Args, lo, hi int) Counts {
		OpRoundFloat16.run(a.narrow[lo:hi], a.wide[lo:hi])
		return Counts{}
	})
	widenFloat16Split = split(func(a *float16Args, lo, hi int) Counts {
		OpWidenFloat16.run(a.wide[lo:hi], a.narrow[lo:hi])
		return Counts{}
	})
)
