// Package strips computes matrix products and Newton-Schulz iterations from the block
// kernels of an instruction set.
//
// A matrix is worked on in strips: its columns, as many as a block is wide, lie together
// row after row, and zeros fill the last strip. A block of a product needs one strip of
// each operand, read from front to back, and the result of a product in strips is an
// operand of the next as it is. A strip's rows are float32, or pairs of rows of bf16
// numbers, the first in the low half of a 32-bit word: each row of words is a layer.
//
// Every chain of the contract is computed as a whole, in the order of k, so results do not
// depend on the sizes of blocks and the number of threads. Those of float32 are the
// reference's bits; those of bf16 numbers are the same for all instruction sets.
package strips

import (
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// Kernels are the functions of one instruction set. Blocks have Width rows and columns;
// package amd64 says what each function does.
type Kernels struct {
	Width  int
	Paired bool // strips hold pairs of bf16 numbers

	// Block and Corner multiply. Those for Gemm and Syrk store float32, those for
	// NewtonSchulz what strips hold.
	Block  func(rows, layers int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int)
	Corner func(rows, layers int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near *float32)

	// Packing is Block that makes the strip of B from rows of float32, Rows is Block that
	// finds A in rows of float32, and RowsPacking both. They may be missing.
	Packing     func(rows, layers int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int, from *float32, fromStride int)
	Rows        func(rows, layers int, a *float32, aStride int, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int)
	RowsPacking func(rows, layers int, a *float32, aStride int, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32, near, next *float32, nextStride int, from *float32, fromStride int)

	// Crowded tells that the first-level cache has fewer ways than a tile of Rows has rows,
	// which therefore may not be a multiple of a page apart.
	Crowded bool

	// Transpose and CopyRows move float32.
	Transpose func(dst *float32, dStride int, src *float32, sStride int)
	CopyRows  func(rows int, dst *float32, dStride int, src *float32, sStride int)

	// PackRows and PackTransposed make strips of bf16 matrices, as many layers as a block is
	// wide. WidenRows and NarrowRows move results that are bf16.
	PackRows       func(layers int, dst *float32, dStride int, src *uint16, sStride int)
	PackTransposed func(dst *float32, dStride int, src *uint16, sStride int)
	WidenRows      func(rows int, dst *float32, dStride int, src *uint16, sStride int)
	NarrowRows     func(rows int, dst *uint16, dStride int, src *float32, sStride int)

	// Normalize makes a block in a strip, TransposeStrip transposes it, and UnpackRows, of
	// paired strips only, takes it out.
	Normalize      func(dst, src *float32, sStride int, first, second, divisor float32)
	TransposeStrip func(dst *float32, dStride int, src *float32, sStride int)
	Mirror         func(d *float32, dStride int) // of float32
	UnpackRows     func(layers int, dst *float32, dStride int, src *float32, sStride int)

	// Line continues the chain of the product of a row of float32 with itself, in the order
	// of Block.
	Line func(x []float32, sum float32) float32

	// Widen, Round, Absmax and SumSquares take any number of elements.
	Widen      func(dst []float32, src []uint16)
	Round      func(dst []uint16, src []float32)
	Absmax     func(x []float32) float32
	SumSquares func(sums []float64, x []float32)
}

const (
	// chainLayers is how much of a chain a call computes, which bounds its time.
	chainLayers = 2048
	// layersARow is how many layers go with a row of the next strip.
	layersARow = 4
	// groupBytes is the size of the panels of A that are multiplied by one strip of B after
	// the other, from the second-level cache.
	groupBytes = 1 << 19
	// threadPieces is how many pieces a thread should find.
	threadPieces = 4
	// threadWork is the number of multiply-adds, some 20 µs, that are worth a goroutine.
	threadWork = 1 << 21
	cacheLine  = 64
)

// strips is the number of strips of a number of columns, or panels of rows.
func (e *Kernels) strips(n int) int { return (n + e.Width - 1) / e.Width }

// unit is the number of rows of a matrix in a layer.
func (e *Kernels) unit() int {
	if e.Paired {
		return 2
	}
	return 1
}

// layers is the number of layers of a number of rows.
func (e *Kernels) layers(rows int) int { return (rows + e.unit() - 1) / e.unit() }

// worthwhile limits the threads of a product.
func worthwhile(threads, rows, cols, depth int) int {
	work := float64(rows) * float64(cols) * float64(depth) / threadWork
	return max(min(threads, int(min(work, 1<<20))), 1)
}

// tiling divides panels and the strips that they are multiplied by into pieces: a strip and
// the panels of a group, or some of them. A group is done before the next.
type tiling struct {
	first, last int // panels
	group, high int // panels of a group, and of a piece
	strips      int
	ahead       int // strips from one to the next of a worker
}

// group is the number of panels of so many layers in a group.
func (e *Kernels) group(layers int) int {
	return max(groupBytes/(4*e.Width*max(layers, 1)), 1)
}

func tile(first, last, group, strips, threads int) tiling {
	group = min(group, last-first)
	t := tiling{first, last, group, group, strips, 1}
	if threads > 1 {
		whole := t.pieces()
		parts := (threadPieces*threads + whole - 1) / whole
		t.high = (group + parts - 1) / parts
		t.ahead = max(threads/t.parts(), 1)
	}
	return t
}

// parts is the number of pieces of a strip and a group.
func (t tiling) parts() int { return (t.group + t.high - 1) / t.high }

func (t tiling) pieces() int {
	groups := (t.last - t.first + t.group - 1) / t.group
	return groups * t.strips * t.parts()
}

// at is the strip of a piece and the half-open range of its panels. The last strips come
// first: those of symmetric products have more panels.
func (t tiling) at(piece int) (strip, panel, last int) {
	parts := t.parts()
	begin := t.first + piece/(t.strips*parts)*t.group
	panel = begin + piece%parts*t.high
	return t.strips - 1 - piece/parts%t.strips, panel, min(panel+t.high, begin+t.group, t.last)
}

// aligned drops elements up to the first cache line's beginning.
func aligned(x []float32) []float32 {
	past := uintptr(unsafe.Pointer(unsafe.SliceData(x))) % cacheLine
	return x[(cacheLine-past)%cacheLine/unsafe.Sizeof(x[0]):]
}

// slack is what aligned may drop.
const slack = cacheLine/4 - 1

// arena hands out parts of a slice.
type arena struct{ free []float32 }

func (a *arena) take(n int) []float32 {
	taken := a.free[:n:n]
	a.free = a.free[n:]
	return taken
}

// raceRead and raceWrite tell the race detector what kernels do to a matrix.
func raceRead(m reference.Matrix) { eachRow(m, race.Read[float32], race.Read[bf16.BF16]) }

func raceWrite(m reference.Matrix) { eachRow(m, race.Write[float32], race.Write[bf16.BF16]) }

func eachRow(m reference.Matrix, f32 func([]float32), narrow func([]bf16.BF16)) {
	if !race.Enabled {
		return
	}
	for i := range m.Rows {
		row := m.Data.Slice(i*m.Stride, i*m.Stride+m.Cols)
		f32(row.F32)
		narrow(row.BF16)
	}
}
