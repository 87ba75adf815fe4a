package bench

import (
	"slices"
	"sync"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/roofs"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var quantizeLoads = slices.Concat(
	vectorLoads(quantize, kernels.OpQuantizeDynamic8, kernels.OpQuantizeDynamic8Unsigned, kernels.OpQuantize8, kernels.OpQuantize4),
	vectorLoads(dequantize, kernels.OpDequantize8, kernels.OpDequantize4))

// books are those that rows are measured with.
var books = []*codebook.Codebook{codebook.Dynamic8(), codebook.Dynamic8Unsigned(), codebook.Linear8(), codebook.NF4()}

func quantize(op *kernels.Op[kernels.QuantizeFunc], n int) vectors[kernels.QuantizeFunc] {
	f := formatOf(books[slices.IndexFunc(books, func(book *codebook.Codebook) bool { return kernels.OpQuantize(book) == op })])
	x := normal(n)
	if op == kernels.OpQuantizeDynamic8Unsigned {
		x = squares(n)
	}
	codes, scales := quantized(x, f)
	arrays := roofs.Arrays{Read: bases{base(x)}, Write: bases{base(codes)}}
	return vectors[kernels.QuantizeFunc]{"float32", f.Codebook.Name(), f.Block, f.Block, arrays, func(quantize kernels.QuantizeFunc, lo, hi int) {
		quantize(codes[f.CodeBytes(lo):f.CodeBytes(hi)], scales[f.Scales(lo):f.Scales(hi)], x[lo:hi], f)
	}}
}

func dequantize(op *kernels.Op[kernels.DequantizeFunc], n int) vectors[kernels.DequantizeFunc] {
	f := formatOf(books[slices.IndexFunc(books, func(book *codebook.Codebook) bool { return kernels.OpDequantize(book) == op })])
	x := normal(n)
	codes, scales := quantized(x, f)
	arrays := roofs.Arrays{Read: bases{base(codes)}, Write: bases{base(x)}}
	return vectors[kernels.DequantizeFunc]{"float32", f.Codebook.Name(), f.Block, f.Block, arrays, func(dequantize kernels.DequantizeFunc, lo, hi int) {
		dequantize(x[lo:hi], codes[f.CodeBytes(lo):f.CodeBytes(hi)], scales[f.Scales(lo):f.Scales(hi)], f)
	}}
}

var conversionLoads = slices.Concat(
	vectorLoads(func(_ *kernels.Op[kernels.RoundFunc], n int) vectors[kernels.RoundFunc] {
		x, y := normal(n), narrow(n)
		arrays := roofs.Arrays{Read: bases{base(x)}, Write: bases{base(y)}}
		return vectors[kernels.RoundFunc]{dtype: "float32", arrays: arrays, each: func(round kernels.RoundFunc, lo, hi int) { round(y[lo:hi], x[lo:hi]) }}
	}, kernels.OpRound, kernels.OpTruncate),
	vectorLoads(func(_ *kernels.Op[kernels.StochasticFunc], n int) vectors[kernels.StochasticFunc] {
		x, y := normal(n), narrow(n)
		arrays := roofs.Arrays{Read: bases{base(x)}, Write: bases{base(y)}}
		return vectors[kernels.StochasticFunc]{dtype: "float32", align: 8, arrays: arrays, each: func(round kernels.StochasticFunc, lo, hi int) {
			round(y[lo:hi], x[lo:hi], kernels.Stream{Seed: 1, First: int64(lo)})
		}}
	}, kernels.OpStochastic),
	vectorLoads(func(_ *kernels.Op[kernels.WidenFunc], n int) vectors[kernels.WidenFunc] {
		x, y := normal(n), narrow(n)
		arrays := roofs.Arrays{Read: bases{base(y)}, Write: bases{base(x)}}
		return vectors[kernels.WidenFunc]{dtype: "bfloat16", arrays: arrays, each: func(widen kernels.WidenFunc, lo, hi int) { widen(x[lo:hi], y[lo:hi]) }}
	}, kernels.OpWiden),
	vectorLoads(func(_ *kernels.Op[kernels.RoundFloat16Func], n int) vectors[kernels.RoundFloat16Func] {
		x, y := normal(n), make([]uint16, n)
		arrays := roofs.Arrays{Read: bases{base(x)}, Write: bases{base(y)}}
		return vectors[kernels.RoundFloat16Func]{dtype: "float32", arrays: arrays, each: func(round kernels.RoundFloat16Func, lo, hi int) { round(y[lo:hi], x[lo:hi]) }}
	}, kernels.OpRoundFloat16),
	vectorLoads(func(_ *kernels.Op[kernels.WidenFloat16Func], n int) vectors[kernels.WidenFloat16Func] {
		x, y := normal(n), make([]uint16, n)
		reference.RoundFloat16(y, x)
		arrays := roofs.Arrays{Read: bases{base(y)}, Write: bases{base(x)}}
		return vectors[kernels.WidenFloat16Func]{dtype: "float16", arrays: arrays, each: func(widen kernels.WidenFloat16Func, lo, hi int) { widen(x[lo:hi], y[lo:hi]) }}
	}, kernels.OpWidenFloat16))

var sumLoads = slices.Concat(
	vectorLoads(func(_ *kernels.Op[kernels.AbsmaxFunc], n int) vectors[kernels.AbsmaxFunc] {
		x := normal(n)
		arrays := roofs.Arrays{Read: bases{base(x)}}
		return vectors[kernels.AbsmaxFunc]{dtype: "float32", arrays: arrays, each: func(absmax kernels.AbsmaxFunc, lo, hi int) { absmax(x[lo:hi]) }}
	}, kernels.OpAbsmax),
	vectorLoads(func(op *kernels.Op[kernels.ChunkSumsFunc], n int) vectors[kernels.ChunkSumsFunc] {
		inBF16 := op == kernels.OpNormBF16
		sums, x := chunkSums(n), floats(n, inBF16)
		arrays := roofs.Arrays{Read: bases{floatsBase(x)}}
		return vectors[kernels.ChunkSumsFunc]{dtype: dtype(inBF16), align: reference.SumChunk, arrays: arrays, each: func(squares kernels.ChunkSumsFunc, lo, hi int) {
			squares(chunksOf(sums, lo, hi), x.Slice(lo, hi))
		}}
	}, kernels.OpNormFloat32, kernels.OpNormBF16),
	vectorLoads(func(_ *kernels.Op[kernels.DotFunc], n int) vectors[kernels.DotFunc] {
		sums, x, y := chunkSums(n), normal(n), normal(n)
		arrays := roofs.Arrays{Read: bases{base(x), base(y)}}
		return vectors[kernels.DotFunc]{dtype: "float32", align: reference.SumChunk, arrays: arrays, each: func(products kernels.DotFunc, lo, hi int) {
			products(chunksOf(sums, lo, hi), x[lo:hi], y[lo:hi])
		}}
	}, kernels.OpDot),
	vectorLoads(func(op *kernels.Op[kernels.ScaleFunc], n int) vectors[kernels.ScaleFunc] {
		inBF16 := op == kernels.OpScaleBF16
		x := floats(n, inBF16)
		arrays := roofs.Arrays{InPlace: bases{floatsBase(x)}}
		return vectors[kernels.ScaleFunc]{dtype: dtype(inBF16), arrays: arrays, each: func(scale kernels.ScaleFunc, lo, hi int) { scale(x.Slice(lo, hi), -1) }}
	}, kernels.OpScaleFloat32, kernels.OpScaleBF16),
	vectorLoads(func(op *kernels.Op[kernels.AccumulateFunc], n int) vectors[kernels.AccumulateFunc] {
		inBF16 := op == kernels.OpAccumulateBF16
		sums, gradients := floats(n, true), floats(n, inBF16)
		arrays := roofs.Arrays{Read: bases{floatsBase(gradients)}, InPlace: bases{floatsBase(sums)}}
		return vectors[kernels.AccumulateFunc]{dtype: dtype(inBF16), arrays: arrays, each: func(accumulate kernels.AccumulateFunc, lo, hi int) {
			accumulate(sums.Slice(lo, hi), gradients.Slice(lo, hi))
		}}
	}, kernels.OpAccumulateFloat32, kernels.OpAccumulateBF16))

func chunks(n int) int { return (n + reference.SumChunk - 1) / reference.SumChunk }

func chunkSums(n int) []float64 { return make([]float64, chunks(n)) }

func chunksOf(sums []float64, lo, hi int) []float64 { return sums[chunks(lo):chunks(hi)] }

var factorLoads = vectorLoads(func(op *kernels.Op[kernels.FactorMeansFunc], n int) vectors[kernels.FactorMeansFunc] {
	const band = reference.FactorBand // rows of a call
	inBF16, cols := op == kernels.OpFactorMeansBF16, columns(n)
	rows := n / cols
	means, squares, g := make([]float32, rows), make([]float64, ((rows-1)/band+1)*cols), floats(n, inBF16)
	arrays := roofs.Arrays{Read: bases{floatsBase(g)}}
	return vectors[kernels.FactorMeansFunc]{dtype: dtype(inBF16), align: min(band, rows) * cols, arrays: arrays, each: func(factorMeans kernels.FactorMeansFunc, lo, hi int) {
		for first := lo / cols; first < hi/cols; first += band {
			last, at := min(first+band, hi/cols), first/band*cols
			factorMeans(means[first:last], squares[at:at+cols], g.Slice(first*cols, last*cols), 1)
		}
	}}
}, kernels.OpFactorMeansFloat32, kernels.OpFactorMeansBF16)

var adamWLoads = slices.Concat(
	adamW(kernels.OpAdamWFloat32, plain(false), plain(false)),
	adamW(kernels.OpAdamWBF16, plain(true), plain(true)),
	adamW(kernels.OpAdamW8bit, coded(codebook.Dynamic8()), coded(codebook.Dynamic8Unsigned())),
	adamW(kernels.OpAdamW4bit, coded(codebook.DE4()), coded(codebook.Linear4())),
	adamW(kernels.OpAdamWFactored, coded(codebook.DE4()), factored))

var adamWPieces = sync.Pool{New: func() any { return new(kernels.AdamWTensors) }}

func adamW(ops kernels.AdamWOps, m, v storage) (list []Load) {
	for i, op := range ops {
		list = append(list, vectorLoads(func(_ *kernels.Op[kernels.AdamWFunc], n int) vectors[kernels.AdamWFunc] {
			t := kernels.AdamWTensors{
				Weights: floats(n, pairs[i].weights), Gradients: floats(n, pairs[i].gradients), M: m(n), V: v(n),
			}
			s := kernels.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, Step: 10, GradScale: 1}.Scalars()
			arrays := roofs.Arrays{Read: bases{floatsBase(t.Gradients)}, InPlace: append(bases{floatsBase(t.Weights)}, momentBases(t.M, t.V)...)}
			return momentVectors(pairs[i].weights, t.M, t.V, arrays, func(step kernels.AdamWFunc, lo, hi int) {
				piece := adamWPieces.Get().(*kernels.AdamWTensors)
				*piece = t.Slice(lo, hi)
				step(piece, &s)
				adamWPieces.Put(piece)
			})
		}, op)...)
	}
	return list
}

// momentVectors is work on tensors with moments.
func momentVectors[F any](inBF16 bool, m, v kernels.Moment, arrays roofs.Arrays, each func(f F, lo, hi int)) vectors[F] {
	work := vectors[F]{dtype: dtype(inBF16), align: 8, arrays: arrays, each: each}
	if m.Quantized() {
		work.format, work.block = m.Format.Codebook.Name(), m.Format.Block
		work.align = work.block
	}
	if v.Quantized() {
		work.format += "+" + v.Format.Codebook.Name()
	}
	return work
}

var muonLoads = slices.Concat(muon(0, plain(false)), muon(1, plain(true)), muon(2, coded(codebook.Dynamic8())))

// muon has the rows of the momentum storage of that index.
func muon(index int, momentum storage) (list []Load) {
	s := &kernels.MuonScalars{
		GradScale: 1, OldMomentum: 0.95, NewGradient: 0.05, DirectionM: 0.95, DirectionG: 0.05, Divisor: 1,
		Decay: 1, Scale: 0.2, StepSize: 1e-3,
	}
	for i, op := range kernels.OpMuonDirection[index] {
		list = append(list, vectorLoads(func(_ *kernels.Op[kernels.MuonDirectionFunc], n int) vectors[kernels.MuonDirectionFunc] {
			inBF16 := i == 1
			dst, t := room[float32](n), kernels.MuonTensors{Gradients: floats(n, inBF16), Momentum: momentum(n)}
			arrays := roofs.Arrays{Read: append(momentBases(t.Momentum), floatsBase(t.Gradients)), Write: bases{base(dst)}}
			return momentVectors(inBF16, t.Momentum, kernels.Moment{}, arrays, func(direction kernels.MuonDirectionFunc, lo, hi int) {
				direction(dst[lo:hi], t.Slice(lo, hi), s)
			})
		}, op)...)
	}
	for i, op := range kernels.OpMuonUpdate[index] {
		list = append(list, vectorLoads(func(_ *kernels.Op[kernels.MuonUpdateFunc], n int) vectors[kernels.MuonUpdateFunc] {
			t := kernels.MuonTensors{
				Weights: floats(n, pairs[i].weights), Gradients: floats(n, pairs[i].gradients), Momentum: momentum(n), Update: normal(n),
			}
			arrays := roofs.Arrays{
				Read:    bases{floatsBase(t.Gradients), base(t.Update)},
				InPlace: append(bases{floatsBase(t.Weights)}, momentBases(t.Momentum)...),
			}
			return momentVectors(pairs[i].weights, t.Momentum, kernels.Moment{}, arrays, func(update kernels.MuonUpdateFunc, lo, hi int) {
				update(t.Slice(lo, hi), s)
			})
		}, op)...)
	}
	return list
}
