package bench

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// load is the work of one row: a number of elements, or of rows and columns.
type load struct {
	row   kernels.Row
	sizes []int
	flops func(n float64) float64 // of a call; nil where bytes count
	// call prepares a call of an implementation: nil where this processor has none.
	call func(implementation string, n int) func()
}

var (
	elements = []int{128, 64 << 10, 4 << 20} // a block, in cache, in memory
	squares  = []int{64, 256, 512}
)

// Each function below prepares arrays of a size for the rows of one signature and returns
// what calls an implementation on them.

var loads = slices.Concat(
	elementwise(quantize, kernels.OpQuantizeDynamic8, kernels.OpQuantizeDynamic8Unsigned, kernels.OpQuantize8, kernels.OpQuantize4),
	elementwise(dequantize, kernels.OpDequantize8, kernels.OpDequantize4),
	elementwise(round, kernels.OpRound, kernels.OpTruncate),
	elementwise(stochastic, kernels.OpStochastic),
	elementwise(widen, kernels.OpWiden),
	elementwise(absmax, kernels.OpAbsmax),
	elementwise(norm, kernels.OpNormFloat32, kernels.OpNormBF16),
	elementwise(dot, kernels.OpDot),
	elementwise(scale, kernels.OpScaleFloat32, kernels.OpScaleBF16),
	elementwise(accumulate, kernels.OpAccumulateFloat32, kernels.OpAccumulateBF16),
	elementwise(factorRows, kernels.OpFactorRowsFloat32, kernels.OpFactorRowsBF16),
	elementwise(factorCols, kernels.OpFactorColsFloat32, kernels.OpFactorColsBF16),
	adamW(kernels.OpAdamWFloat32, plain(false), plain(false)),
	adamW(kernels.OpAdamWBF16, plain(true), plain(true)),
	adamW(kernels.OpAdamW8bit, coded(codebook.Dynamic8()), coded(codebook.Dynamic8Unsigned())),
	adamW(kernels.OpAdamW4bit, coded(codebook.DE4()), coded(codebook.Linear4())),
	adamW(kernels.OpAdamWFactored, coded(codebook.DE4()), factored),
	muon(0, plain(false)), muon(1, plain(true)), muon(2, coded(codebook.Dynamic8())),
	products(gemm, func(n float64) float64 { return 2 * n * n * n }, kernels.OpGemmFloat32, kernels.OpGemmBF16),
	products(syrk, func(n float64) float64 { return n * n * (n + 1) }, kernels.OpSyrkFloat32, kernels.OpSyrkBF16),
	products(newtonSchulz, func(n float64) float64 { return 5 * (2*n*n*(n+1) + 2*n*n*n) },
		kernels.OpNewtonSchulzFloat32, kernels.OpNewtonSchulzBF16))

func elementwise[F any](prepare func(op *kernels.Op[F], n int) func(F), ops ...*kernels.Op[F]) []load {
	return loadsOf(prepare, elements, nil, ops)
}

func products[F any](prepare func(op *kernels.Op[F], n int) func(F), flops func(float64) float64, ops ...*kernels.Op[F]) []load {
	return loadsOf(prepare, squares, flops, ops)
}

func loadsOf[F any](prepare func(op *kernels.Op[F], n int) func(F), sizes []int, flops func(float64) float64, ops []*kernels.Op[F]) []load {
	list := make([]load, len(ops))
	for i, op := range ops {
		list[i] = load{op.Row(), sizes, flops, func(implementation string, n int) func() {
			for _, impl := range op.Impls {
				if impl.Name == implementation && impl.Available() {
					call := prepare(op, n)
					return func() { call(impl.Func) }
				}
			}
			return nil
		}}
	}
	return list
}

// noise is shared: drawing it takes longer than most calls.
var noise = sync.OnceValue(func() []float32 {
	random := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 4<<20)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	return x
})

func normal(n int) []float32 { return slices.Clone(noise()[:n]) }

func floats(n int, inBF16 bool) kernels.Floats {
	if !inBF16 {
		return kernels.Float32s(normal(n))
	}
	narrow := make([]bf16.BF16, n)
	reference.Round(narrow, noise()[:n])
	return kernels.BF16s(narrow)
}

const block = 256

// quantized is n numbers in a format.
func quantized(n int, book *codebook.Codebook) (codes []uint8, scales []float32, f kernels.Format) {
	f = kernels.Format{Codebook: book, Block: block}
	codes, scales = make([]uint8, f.CodeBytes(n)), make([]float32, f.Scales(n))
	if _, err := kernels.Quantize(codes, scales, noise()[:n], f); err != nil {
		panic(err) // the sizes are the format's
	}
	return codes, scales, f
}

func bookOf(takes func(*codebook.Codebook) bool) *codebook.Codebook {
	return codebook.All()[slices.IndexFunc(codebook.All(), takes)]
}

func quantize(op *kernels.Op[kernels.QuantizeFunc], n int) func(kernels.QuantizeFunc) {
	x := normal(n)
	codes, scales, f := quantized(n, bookOf(func(book *codebook.Codebook) bool { return kernels.OpQuantize(book) == op }))
	return func(quantize kernels.QuantizeFunc) { quantize(codes, scales, x, f) }
}

func dequantize(op *kernels.Op[kernels.DequantizeFunc], n int) func(kernels.DequantizeFunc) {
	dst := make([]float32, n)
	codes, scales, f := quantized(n, bookOf(func(book *codebook.Codebook) bool { return kernels.OpDequantize(book) == op }))
	return func(dequantize kernels.DequantizeFunc) { dequantize(dst, codes, scales, f) }
}

func round(_ *kernels.Op[kernels.RoundFunc], n int) func(kernels.RoundFunc) {
	dst, x := make([]bf16.BF16, n), normal(n)
	return func(round kernels.RoundFunc) { round(dst, x) }
}

func stochastic(_ *kernels.Op[kernels.StochasticFunc], n int) func(kernels.StochasticFunc) {
	dst, x := make([]bf16.BF16, n), normal(n)
	return func(round kernels.StochasticFunc) { round(dst, x, kernels.Stream{Seed: 1}) }
}

func widen(_ *kernels.Op[kernels.WidenFunc], n int) func(kernels.WidenFunc) {
	dst, x := make([]float32, n), floats(n, true).BF16
	return func(widen kernels.WidenFunc) { widen(dst, x) }
}

func absmax(_ *kernels.Op[kernels.AbsmaxFunc], n int) func(kernels.AbsmaxFunc) {
	x := normal(n)
	return func(absmax kernels.AbsmaxFunc) { absmax(x) }
}

func chunkSums(n int) []float64 { return make([]float64, (n-1)/reference.SumChunk+1) }

func norm(op *kernels.Op[kernels.ChunkSumsFunc], n int) func(kernels.ChunkSumsFunc) {
	sums, x := chunkSums(n), floats(n, op == kernels.OpNormBF16)
	return func(squares kernels.ChunkSumsFunc) { squares(sums, x) }
}

func dot(_ *kernels.Op[kernels.DotFunc], n int) func(kernels.DotFunc) {
	sums, x, y := chunkSums(n), normal(n), normal(n)
	return func(products kernels.DotFunc) { products(sums, x, y) }
}

func scale(op *kernels.Op[kernels.ScaleFunc], n int) func(kernels.ScaleFunc) {
	x := floats(n, op == kernels.OpScaleBF16)
	return func(scale kernels.ScaleFunc) { scale(x, -1) }
}

func accumulate(op *kernels.Op[kernels.AccumulateFunc], n int) func(kernels.AccumulateFunc) {
	sums, gradients := floats(n, true), floats(n, op == kernels.OpAccumulateBF16)
	return func(accumulate kernels.AccumulateFunc) { accumulate(sums, gradients) }
}

const columns = 64

func factorRows(op *kernels.Op[kernels.FactorRowsFunc], n int) func(kernels.FactorRowsFunc) {
	means, g := make([]float32, n/columns), floats(n, op == kernels.OpFactorRowsBF16)
	return func(rows kernels.FactorRowsFunc) { rows(means, g, columns, 1) }
}

func factorCols(op *kernels.Op[kernels.FactorColsFunc], n int) func(kernels.FactorColsFunc) {
	means, g := make([]float32, columns), floats(n, op == kernels.OpFactorColsBF16)
	return func(cols kernels.FactorColsFunc) { cols(means, g, n/columns, columns, 0, 1) }
}

// storage makes a moment of n elements.
type storage func(n int) kernels.Moment

func plain(inBF16 bool) storage {
	return func(n int) kernels.Moment {
		m := kernels.Moment{Floats: floats(n, inBF16)}
		kernels.Scale(m.Floats, 0)
		return m
	}
}

func coded(book *codebook.Codebook) storage {
	return func(n int) (m kernels.Moment) {
		m.Codes, m.Scales, m.Format = quantized(n, book)
		return m
	}
}

func factored(n int) kernels.Moment {
	row, col := normal(n/columns), normal(columns)
	for _, factors := range [][]float32{row, col} {
		for i, x := range factors {
			factors[i] = x * x
		}
	}
	return kernels.Moment{Row: row, Col: col}
}

// pairs are the formats of weights and gradients.
var pairs = []struct{ weights, gradients bool }{{false, false}, {true, true}, {true, false}, {false, true}}

func adamW(ops kernels.AdamWOps, m, v storage) (list []load) {
	for i, op := range ops {
		list = append(list, elementwise(func(_ *kernels.Op[kernels.AdamWFunc], n int) func(kernels.AdamWFunc) {
			t := kernels.AdamWTensors{
				Weights: floats(n, pairs[i].weights), Gradients: floats(n, pairs[i].gradients), M: m(n), V: v(n),
			}
			s := kernels.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, Step: 10, GradScale: 1}.Scalars()
			return func(step kernels.AdamWFunc) { step(t, &s) }
		}, op)...)
	}
	return list
}

// muon has the rows of the momentum storage of that index.
func muon(index int, momentum storage) (list []load) {
	tensors := func(n int, weights, gradients bool) kernels.MuonTensors {
		return kernels.MuonTensors{
			Weights: floats(n, weights), Gradients: floats(n, gradients), Momentum: momentum(n), Update: normal(n),
		}
	}
	s := &kernels.MuonScalars{
		GradScale: 1, OldMomentum: 0.95, NewGradient: 0.05, DirectionM: 0.95, DirectionG: 0.05, Divisor: 1,
		Decay: 1, Scale: 0.2, StepSize: 1e-3,
	}
	for i, op := range kernels.OpMuonDirection[index] {
		list = append(list, elementwise(func(_ *kernels.Op[kernels.MuonDirectionFunc], n int) func(kernels.MuonDirectionFunc) {
			dst, t := make([]float32, n), tensors(n, false, i == 1)
			return func(direction kernels.MuonDirectionFunc) { direction(dst, t, s) }
		}, op)...)
	}
	for i, op := range kernels.OpMuonUpdate[index] {
		list = append(list, elementwise(func(_ *kernels.Op[kernels.MuonUpdateFunc], n int) func(kernels.MuonUpdateFunc) {
			t := tensors(n, pairs[i].weights, pairs[i].gradients)
			return func(update kernels.MuonUpdateFunc) { update(t, s) }
		}, op)...)
	}
	return list
}

func square(n int, inBF16 bool) kernels.Matrix {
	return kernels.Matrix{Data: floats(n*n, inBF16), Rows: n, Cols: n, Stride: n}
}

func gemm(op *kernels.Op[kernels.GemmFunc], n int) func(kernels.GemmFunc) {
	inBF16 := op == kernels.OpGemmBF16
	a, b, c := square(n, inBF16), square(n, inBF16), square(n, inBF16)
	return func(gemm kernels.GemmFunc) { gemm(c, a, false, b, false, 1, 0, 1) }
}

func syrk(op *kernels.Op[kernels.SyrkFunc], n int) func(kernels.SyrkFunc) {
	inBF16 := op == kernels.OpSyrkBF16
	a, c := square(n, inBF16), square(n, inBF16)
	return func(syrk kernels.SyrkFunc) { syrk(c, a, 1, 0, 1) }
}

func newtonSchulz(op *kernels.Op[kernels.NewtonSchulzFunc], n int) func(kernels.NewtonSchulzFunc) {
	jordan := [3]float32{3.4445, -4.7750, 2.0315}
	plan := &kernels.NewtonSchulzPlan{
		Steps: slices.Repeat([][3]float32{jordan}, 5), Safety: 1, BFloat16: op == kernels.OpNewtonSchulzBF16,
	}
	stack := func() kernels.Stack {
		return kernels.Stack{Data: floats(n*n, false), Count: 1, Rows: n, Cols: n, Stride: n, Step: n * n}
	}
	dst, src, work := stack(), stack(), make([]float32, plan.WorkSize(n, n))
	return func(orthogonalize kernels.NewtonSchulzFunc) { orthogonalize(dst, src, plan, work, 1) }
}
