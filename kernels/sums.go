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
	ScaleFunc     func(x Floats, factor float32)
)

var (
	OpAbsmax = declare(Op[AbsmaxFunc]{Name: "absmax", Bytes: 4}, reference.Absmax, fast.absmax)

	OpNormFloat32 = declare(Op[ChunkSumsFunc]{Name: "norm", Variant: "float32", Bytes: 4}, reference.ChunkSums, fast.normFloat32)
	OpNormBF16    = declare(Op[ChunkSumsFunc]{Name: "norm", Variant: "bfloat16", Bytes: 2}, reference.ChunkSums, fast.normBF16)

	OpScaleFloat32 = declare(Op[ScaleFunc]{Name: "scale", Variant: "float32", Bytes: 8}, reference.Scale, fast.scaleFloat32)
	OpScaleBF16    = declare(Op[ScaleFunc]{Name: "scale", Variant: "bfloat16", Bytes: 4}, reference.Scale, fast.scaleBF16)
)

// Absmax is the largest magnitude of x: 0 for an empty slice, NaN if there is one.
func Absmax(x []float32, limit ...Threads) float32 {
	largest := absmaxResults.Get().(*atomic.Uint32)
	largest.Store(0)
	absmaxSplit.run(absmaxArgs{x, largest}, len(x), 1, limit)
	result := math.Float32frombits(largest.Load())
	absmaxResults.Put(largest)
	return result
}

// SumSquares is the sum of the squares in float64, in the contract's fixed order, which
// is the same for any number of threads.
func SumSquares(x Floats, limit ...Threads) float64 {
	run := OpNormFloat32.run
	if x.BF16 != nil {
		run = OpNormBF16.run
	}
	sums := chunkSums.Get().(*[sumBatch]float64)
	defer chunkSums.Put(sums)
	total := 0.0
	const batch = sumBatch * reference.SumChunk
	for lo := 0; lo < x.Len(); lo += batch {
		part := x.Slice(lo, lo+min(batch, x.Len()-lo))
		normSplit.run(normArgs{sums, part, run}, part.Len(), reference.SumChunk, limit)
		for _, sum := range sums[:chunks(part.Len())] {
			total += sum
		}
	}
	return total
}

// Norm is the Euclidean norm: the root of SumSquares.
func Norm(x Floats, limit ...Threads) float64 {
	return math.Sqrt(SumSquares(x, limit...))
}

// Scale multiplies x by the factor in place, each product rounded once to x's format.
func Scale(x Floats, factor float32, limit ...Threads) {
	run := OpScaleFloat32.run
	if x.BF16 != nil {
		run = OpScaleBF16.run
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

// sumBatch is the number of chunk sums that are held at a time.
const sumBatch = 1024

var chunkSums = sync.Pool{New: func() any { return new([sumBatch]float64) }}

func chunks(n int) int { return (n-1)/reference.SumChunk + 1 }

type normArgs struct {
	sums *[sumBatch]float64
	x    Floats
	run  ChunkSumsFunc
}

var normSplit = split(func(a *normArgs, lo, hi int) Counts {
	first := lo / reference.SumChunk
	a.run(a.sums[first:first+chunks(hi-lo)], a.x.Slice(lo, hi))
	return Counts{}
})

type scaleArgs struct {
	x      Floats
	factor float32
	run    ScaleFunc
}

var scaleSplit = split(func(a *scaleArgs, lo, hi int) Counts {
	a.run(a.x.Slice(lo, hi), a.factor)
	return Counts{}
})
