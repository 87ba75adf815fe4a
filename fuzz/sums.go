package fuzz

import (
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var sumTrials = slices.Concat(
	trials(decodeAbsmax, kernels.OpAbsmax),
	trials(decodeNorm, kernels.OpNormFloat32, kernels.OpNormBF16),
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
	chunks := (n.x.Len() + reference.SumChunk - 1) / reference.SumChunk
	dst, x := place(mem, make([]float64, chunks)), placeFloats(mem, n.x)
	sums(dst, x)
	o.float64s("sums", dst)
	o.floats("x", x)
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
