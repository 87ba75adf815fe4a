package fuzz

import "github.com/lowbit-go/lowbit/kernels"

var factorTrials = trials(decodeFactorMeans, kernels.OpFactorMeansFloat32, kernels.OpFactorMeansBF16)

// factorInput is a matrix of gradients.
type factorInput struct {
	g          kernels.Floats
	rows, cols int
	scale      float32
}

func (in *input) factor(inBF16 bool, rows ...int) factorInput {
	f := factorInput{rows: pick(in, rows), cols: pick(in, []int{1, 2, 7, 15, 16, 17, 31, 33, 64, 65, 100, 1000, 1024, 1025, 4097})}
	if f.rows*f.cols > 100_000 {
		f.rows = 3
	}
	in.large(f.rows, f.cols)
	in.note("%dx%d", f.rows, f.cols)
	f.g = floatsOf(in.values("g", f.rows*f.cols, nil), inBF16)
	f.scale = float32(pick(in, []float64{1, 0.25, 1e-3, in.random.Float64()}))
	return f
}

// factorMeansInput is a band of rows.
type factorMeansInput struct{ factorInput }

func decodeFactorMeans(op *kernels.Op[kernels.FactorMeansFunc], in *input) *factorMeansInput {
	return &factorMeansInput{in.factor(op == kernels.OpFactorMeansBF16, 1, 2, 3, 5, 8, 31, 63, 64)}
}

func (f *factorMeansInput) run(factorMeans kernels.FactorMeansFunc, mem memory) (o output) {
	means, squares, g := place(mem, make([]float32, f.rows)), place(mem, make([]float64, f.cols)), placeFloats(mem, f.g)
	factorMeans(means, squares, g, f.scale)
	o.float32s("row means", means)
	o.float64s("column squares", squares)
	o.floats("g", g)
	return o
}
