package fuzz

import (
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var sumTrials = slices.Concat(
	trials(decodeAbsmax, kernels.OpAbsmax),
	trials(decodeNorm, kernels.OpNormFloat32, kernels.OpNormBF16),
	trials(decodeDot, kernels.OpDot),
	trials(decodeAccumulate, kernels.OpAccumulateFloat32, kernels.OpAccumulateBF16),
	trials(decodeScale, kernels.OpScaleFloat32, kernels.OpScaleBF16))

type absmaxInput struct{ x []float32 }

func decodeAbsmax(_ *kernels.Op[kernels.AbsmaxFunc], in *input) *absmaxInput {
	return &absmaxInput{in.values("x", in.length(16), nil)}
}

func (a *absmaxInput) run(absmax kernels.AbsmaxFunc, mem memory) (o output) {
	x := place(mem, a.x)
	o.float32s("absmax", []float32{absmax(x)})
	o.float32Bits("x", x)
	return o
}

type normInput struct{ x kernels.Floats }

func decodeNorm(op *kernels.Op[kernels.ChunkSumsFunc], in *input) *normInput {
	return &normInput{floatsOf(in.values("x", in.length(reference.SumChunk), nil), op == kernels.OpNormBF16)}
}

func (n *normInput) run(sums kernels.ChunkSumsFunc, mem memory) (o output) {
	dst, x := place(mem, chunkSums(n.x.Len())), placeFloats(mem, n.x)
	sums(dst, x)
	o.float64s("sums", dst)
	o.floats("x", x)
	return o
}

func chunkSums(n int) []float64 {
	return make([]float64, (n+reference.SumChunk-1)/reference.SumChunk)
}

type dotInput struct{ x, y []float32 }

func decodeDot(_ *kernels.Op[kernels.DotFunc], in *input) *dotInput {
	n := in.length(reference.SumChunk)
	return &dotInput{in.values("x", n, nil), in.values("y", n, nil)}
}

func (d *dotInput) run(dots kernels.DotFunc, mem memory) (o output) {
	dst, x, y := place(mem, chunkSums(len(d.x))), place(mem, d.x), place(mem, d.y)
	dots(dst, x, y)
	o.float64s("sums", dst)
	o.float32Bits("x", x)
	o.float32Bits("y", y)
	return o
}

type accumulateInput struct{ sums, gradients kernels.Floats }

func decodeAccumulate(op *kernels.Op[kernels.AccumulateFunc], in *input) *accumulateInput {
	n := in.length(16)
	sums := floatsOf(in.values("sums", n, nil), in.chance(2))
	return &accumulateInput{sums, floatsOf(in.values("gradients", n, nil), op == kernels.OpAccumulateBF16)}
}

func (a *accumulateInput) run(accumulate kernels.AccumulateFunc, mem memory) (o output) {
	sums, gradients := placeFloats(mem, a.sums), placeFloats(mem, a.gradients)
	accumulate(sums, gradients)
	o.floats("sums", sums)
	o.floats("gradients", gradients)
	return o
}

type scaleInput struct {
	x      kernels.Floats
	factor float32
}

func decodeScale(op *kernels.Op[kernels.ScaleFunc], in *input) *scaleInput {
	x := floatsOf(in.values("x", in.length(16), nil), op == kernels.OpScaleBF16)
	return &scaleInput{x, in.values("factor", 1, nil)[0]}
}

func (s *scaleInput) run(scale kernels.ScaleFunc, mem memory) (o output) {
	x := placeFloats(mem, s.x)
	scale(x, s.factor)
	o.floats("x", x)
	return o
}
