package fuzz

import (
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
)

var factorTrials = slices.Concat(
	trials(decodeFactorRows, kernels.OpFactorRowsFloat32, kernels.OpFactorRowsBF16),
	trials(decodeFactorCols, kernels.OpFactorColsFloat32, kernels.OpFactorColsBF16))

// factorInput is a matrix of gradients, of which some columns are asked for.
type factorInput struct {
	g                 kernels.Floats
	rows, cols        int
	firstCol, lastCol int
	scale             float32
}

func (in *input) factor(inBF16 bool) factorInput {
	f := factorInput{
		rows: pick(in, []int{1, 2, 3, 5, 8, 63, 64, 65, 129, 200}),
		cols: pick(in, []int{1, 2, 7, 15, 16, 17, 31, 33, 64, 65, 100, 1000, 4097}),
	}
	if f.rows*f.cols > 20_000 {
		f.rows = 3
	}
	f.firstCol = in.below(f.cols)
	f.lastCol = f.firstCol + in.below(f.cols-f.firstCol) + 1
	if in.chance(2) {
		f.firstCol, f.lastCol = 0, f.cols
	}
	in.large(f.rows, f.cols)
	in.note("%dx%d, columns %d to %d", f.rows, f.cols, f.firstCol, f.lastCol)
	f.g = floatsOf(in.values("g", f.rows*f.cols, nil), inBF16)
	f.scale = float32(pick(in, []float64{1, 0.25, 1e-3, in.random.Float64()}))
	return f
}

type factorRowsInput struct{ factorInput }

func decodeFactorRows(op *kernels.Op[kernels.FactorRowsFunc], in *input) *factorRowsInput {
	return &factorRowsInput{in.factor(op == kernels.OpFactorRowsBF16)}
}

func (f *factorRowsInput) run(means kernels.FactorRowsFunc, mem memory) (o output) {
	dst, g := place(mem, make([]float32, f.rows)), placeFloats(mem, f.g)
	means(dst, g, f.cols, f.scale)
	o.float32s("means", dst)
	o.floats("g", g)
	return o
}

type factorColsInput struct{ factorInput }

func decodeFactorCols(op *kernels.Op[kernels.FactorColsFunc], in *input) *factorColsInput {
	return &factorColsInput{in.factor(op == kernels.OpFactorColsBF16)}
}

func (f *factorColsInput) run(means kernels.FactorColsFunc, mem memory) (o output) {
	dst, g := place(mem, make([]float32, f.lastCol-f.firstCol)), placeFloats(mem, f.g)
	means(dst, g, f.rows, f.cols, f.firstCol, f.scale)
	o.float32s("means", dst)
	o.floats("g", g)
	return o
}
