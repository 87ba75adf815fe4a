package kernels

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of the sums.
type (
	AbsmaxFunc    func(x []float32) float32
	ChunkSumsFunc func(sums []float64, x Floats)
	DotFunc       func(sums []float64, x, y []float32)
	ScaleFunc     func(x Floats, factor float32)
)

var (
	OpAbsmax = declare(Op[AbsmaxFunc]{Name: "absmax", Streams: reads(4)}, reference.Absmax, fast.absmax)

	OpNormFloat32 = declare(Op[ChunkSumsFunc]{Name: "norm", Variant: "float32", Streams: reads(4)}, reference.ChunkSums, fast.normFloat32)
	OpNormBF16    = declare(Op[ChunkSumsFunc]{Name: "norm", Variant: "bfloat16", Streams: reads(2)}, reference.ChunkSums, fast.normBF16)

	OpDot = declare(Op[DotFunc]{Name: "dot", Streams: reads(4, 4)}, reference.ChunkDots, fast.dot)

	OpScaleFloat32 = declare(Op[ScaleFunc]{Name: "scale", Variant: "float32", Streams: Streams{InPlace: []float64{4}}}, reference.Scale, fast.scaleFloat32)
	OpScaleBF16    = declare(Op[ScaleFunc]{Name: "scale", Variant: "bfloat16", Streams: Streams{InPlace: []float64{2}}}, reference.Scale, fast.scaleBF16)
)

func reads(bytes ...float64) Streams { return Streams{Read: bytes} }

// Absmax is the largest magnitude of x: 0 for an empty slice, NaN if there is one.
func Absmax(x []float32, limit ...Threads) float32 {
	if small(len(x)) {
		return OpAbsmax.run(x)
	}
	largest := absmaxResults.Get().(*atomic.Uint32)
	largest.Store(0)
	absmaxSplit.run(absmaxArgs{x, largest}, len(x), 1, limit)
	result := math.Float32frombits(largest.Load())
	absmaxResults.Put(largest)
	return result
}

// SumSquares is the sum of the squares in float64, in the contract's fixed order, which
// is the same for any number of threads: 0 for an empty x, not finite where an element is
// not.
func SumSquares(x Floats, limit ...Threads) float64 {
	run := OpNormFloat32.run
	if x.BF16 != nil {
		run = OpNormBF16.run
	}
	return sumChunks(sumArgs{x: x, squares: run}, limit)
}

// Norm is the Euclidean norm: the root of SumSquares.
func Norm(x Floats, limit ...Threads) float64 {
	return math.Sqrt(SumSquares(x, limit...))
}

// Scale multiplies x by the factor in place, each product rounded to float32 and, where x is
// bf16, to nearest bf16.
func Scale(x Floats, factor float32, limit ...Threads) {
	run := OpScaleFloat32.run
	if x.BF16 != nil {
		run = OpScaleBF16.run
	}
	if small(x.Len()) {
		run(x, factor)
		return
	}
	scaleSplit.run(scaleArgs{x, factor, run}, x.Len(), 1, limit)
}

type absmaxArgs struct {
	x       []float32
	largest *atomic.Uint32 // bits of a magnitude, which order as the numbers do, NaN last
}

var absmaxResults = sync.Pool{New: func() any { return new(atomic.Uint32) }}

var absmaxSplit = split(func(a *absmaxArgs, lo, hi int) Counts {
	found := math.Float32bits(OpAbsmax.run(a.x[lo:hi])) &^ (1 << 31)
	for old := a.largest.Load(); old < found; old = a.largest.Load() {
		a.largest.CompareAndSwap(old, found)
	}
	return Counts{}
})

// Dot is the sum of the products of x and y, each exact in float64, in the order of
// SumSquares. Their lengths must be equal; they may overlap.
func Dot(x, y []float32, limit ...Threads) (float64, error) {
	if len(x) != len(y) {
		return 0, lengthError("dot", "y", len(y), len(x), "as x")
	}
	return sumChunks(sumArgs{x: Float32s(x), y: y, products: OpDot.run}, limit), nil
}

// sumBatch is the number of chunk sums that are held at a time.
const sumBatch = 1024

var chunkSums = sync.Pool{New: func() any { return new([sumBatch]float64) }}

func chunks(n int) int { return (n-1)/reference.SumChunk + 1 }

type sumArgs struct {
	x        Floats
	y        []float32 // with products
	squares  ChunkSumsFunc
	products DotFunc
	first    int // of the batch
	sums     *[sumBatch]float64
}

// sumChunks adds the chunks' sums in order, a batch at a time.
func sumChunks(args sumArgs, limit []Threads) float64 {
	args.sums = chunkSums.Get().(*[sumBatch]float64)
	total := 0.0
	const batch = sumBatch * reference.SumChunk
	for ; args.first < args.x.Len(); args.first += batch {
		n := min(batch, args.x.Len()-args.first)
		if small(n) {
			sumPiece(&args, 0, n)
		} else {
			sumSplit.run(args, n, reference.SumChunk, limit)
		}
		for _, sum := range args.sums[:chunks(n)] {
			total += sum
		}
	}
	chunkSums.Put(args.sums)
	return total
}

var sumSplit = split(sumPiece)

func sumPiece(a *sumArgs, lo, hi int) Counts {
	chunk := lo / reference.SumChunk
	sums := a.sums[chunk : chunk+chunks(hi-lo)]
	lo, hi = a.first+lo, a.first+hi
	if a.products != nil {
		a.products(sums, a.x.F32[lo:hi], a.y[lo:hi])
	} else {
		a.squares(sums, a.x.Slice(lo, hi))
	}
	return Counts{}
}

type scaleArgs struct {
	x      Floats
	factor float32
	run    ScaleFunc
}

var scaleSplit = split(func(a *scaleArgs, lo, hi int) Counts {
	a.run(a.x.Slice(lo, hi), a.factor)
	return Counts{}
})
