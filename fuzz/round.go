package fuzz

import (
	"slices"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

var conversionTrials = slices.Concat(
	trials(decodeRound, kernels.OpRound, kernels.OpTruncate),
	trials(decodeStochastic, kernels.OpStochastic),
	trials(decodeWiden, kernels.OpWiden),
	trials(decodeRoundFloat16, kernels.OpRoundFloat16),
	trials(decodeWidenFloat16, kernels.OpWidenFloat16))

type roundInput struct{ x []float32 }

func decodeRound(_ *kernels.Op[kernels.RoundFunc], in *input) *roundInput {
	return &roundInput{in.values("x", in.length(16), nil)}
}

func (r *roundInput) run(round kernels.RoundFunc, mem memory) (o output) {
	dst, x := place(mem, make([]bf16.BF16, len(r.x))), place(mem, r.x)
	round(dst, x)
	o.bf16Bits("dst", dst)
	o.float32Bits("x", x)
	return o
}

type stochasticInput struct {
	x      []float32
	stream kernels.Stream
}

func decodeStochastic(_ *kernels.Op[kernels.StochasticFunc], in *input) *stochasticInput {
	return &stochasticInput{in.values("x", in.length(16), nil), in.stream()}
}

func (s *stochasticInput) run(round kernels.StochasticFunc, mem memory) (o output) {
	dst, x := place(mem, make([]bf16.BF16, len(s.x))), place(mem, s.x)
	round(dst, x, s.stream)
	o.bf16Bits("dst", dst)
	o.float32Bits("x", x)
	return o
}

func (in *input) stream() kernels.Stream {
	s := kernels.Stream{Seed: in.random.Uint64(), Step: in.random.Uint64() >> in.random.IntN(64), First: in.first()}
	in.note("stream %+v", s)
	return s
}

// first is the position of a piece in its parameter.
func (in *input) first() int64 {
	return pick(in, []int64{0, 8, 1, 3, 7, 64, 4095, 1<<32 - 5, 1 << 34, 1<<40 + 3})
}

type widenInput struct{ x []bf16.BF16 }

func decodeWiden(_ *kernels.Op[kernels.WidenFunc], in *input) *widenInput {
	return &widenInput{bf16sOf(in.values("x", in.length(16), nil))}
}

func (w *widenInput) run(widen kernels.WidenFunc, mem memory) (o output) {
	dst, x := place(mem, make([]float32, len(w.x))), place(mem, w.x)
	widen(dst, x)
	o.float32s("dst", dst)
	o.bf16Bits("x", x)
	return o
}

type roundFloat16Input struct{ x []float32 }

func decodeRoundFloat16(_ *kernels.Op[kernels.RoundFloat16Func], in *input) *roundFloat16Input {
	return &roundFloat16Input{in.values("x", in.length(16), nil)}
}

func (r *roundFloat16Input) run(round kernels.RoundFloat16Func, mem memory) (o output) {
	dst, x := place(mem, make([]uint16, len(r.x))), place(mem, r.x)
	round(dst, x)
	o.float16Bits("dst", dst)
	o.float32Bits("x", x)
	return o
}

type widenFloat16Input struct{ x []uint16 }

func decodeWidenFloat16(_ *kernels.Op[kernels.WidenFloat16Func], in *input) *widenFloat16Input {
	x := make([]uint16, in.length(16))
	for i := range x {
		x[i] = uint16(in.random.Uint32())
	}
	return &widenFloat16Input{x}
}

func (w *widenFloat16Input) run(widen kernels.WidenFloat16Func, mem memory) (o output) {
	dst, x := place(mem, make([]float32, len(w.x))), place(mem, w.x)
	widen(dst, x)
	o.float32Bits("dst", dst)
	o.float16Bits("x", x)
	return o
}
