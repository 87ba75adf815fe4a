package bench

import (
	"slices"

	"github.com/lowbit-go/lowbit/internal/roofs"
	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels"
)

// Load is the work of one row of the table.
type Load struct {
	Row    kernels.Row
	Method string // of orthogonalising: standard or gram
	// Shapes are those of the matrices that are worth measuring. Vectors have none: they
	// have any length.
	Shapes []Shape
	// Prepare makes arrays of a shape, or of that many elements.
	Prepare func(shape ...int) Work
}

// Shape is rows and columns, or a number of matrices before them.
type Shape []int

// Elements is how many there are.
func (s Shape) Elements() int {
	n := 1
	for _, size := range s {
		n *= size
	}
	return n
}

// Work is a load of some shape.
type Work struct {
	DType  string // of the weights, or the input
	Format string // of what is quantised, with its block; empty where nothing is
	Block  int
	Flops  float64 // floating-point operations of a call; 0 where bytes are what counts
	// Arrays are those of the row's streams.
	Arrays roofs.Arrays
	// Calls are the implementations that this processor can run.
	Calls map[string]Call
}

// Call lets an implementation work on the first elements of vectors, or on all of the
// matrices. It allocates nothing.
type Call func(elements, threads int)

// Loads are the work of the whole table, some rows in more than one way.
func Loads() []Load { return loads }

var loads = slices.Concat(quantizeLoads, conversionLoads, sumLoads, factorLoads, adamWLoads, muonLoads, matrixLoads)

// vectors is work of a signature: each does elements lo to hi-1, of which lo is a multiple
// of align.
type vectors[F any] struct {
	dtype, format string
	block         int
	align         int // 1 where it is 0
	arrays        roofs.Arrays
	each          func(f F, lo, hi int)
}

// vectorLoads are loads from what prepares arrays of n elements for a row.
func vectorLoads[F any](prepare func(op *kernels.Op[F], n int) vectors[F], ops ...*kernels.Op[F]) []Load {
	list := make([]Load, len(ops))
	for i, op := range ops {
		list[i] = Load{Row: op.Row(), Prepare: func(shape ...int) Work {
			v := prepare(op, Shape(shape).Elements())
			return Work{DType: v.dtype, Format: v.format, Block: v.block, Arrays: v.arrays, Calls: calls(op, v.call)}
		}}
	}
	return list
}

func calls[F any](op *kernels.Op[F], call func(F) Call) map[string]Call {
	list := map[string]Call{}
	for _, impl := range op.Impls {
		if impl.Available() {
			list[impl.Name] = call(impl.Func)
		}
	}
	return list
}

func (v vectors[F]) call(f F) Call {
	p := &pieces[F]{vectors: v, f: f}
	return p.run
}

// pieceElements are what a goroutine takes at a time, as in package kernels, and twice as
// many of large work.
const (
	pieceElements = 32 << 10
	largeElements = 8 << 20
)

// pieces are a call in progress.
type pieces[F any] struct {
	vectors[F]
	f       F
	n, size int
}

func (p *pieces[F]) run(elements, threads int) {
	align, size := max(p.align, 1), pieceElements
	if elements >= largeElements {
		size *= 2
	}
	p.n, p.size = elements, max(size/align, 1)*align
	workers.Run(threads, (elements-1)/p.size+1, p)
}

// Do does one piece.
func (p *pieces[F]) Do(_, piece int) {
	lo := piece * p.size
	p.each(p.f, lo, min(lo+p.size, p.n))
}
