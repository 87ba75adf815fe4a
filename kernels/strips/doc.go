// Package strips computes matrix products and Newton-Schulz iterations from the block
// kernels of an instruction set.
//
// A matrix is worked on in strips: its columns, as many as a block is wide, lie together
// row after row, and zeros fill the last strip. A block of a product needs one strip of
// each operand, read from front to back, and the result of a product in strips is an
// operand of the next as it is.
//
// Every chain of the contract is computed as a whole, in the order of k, so results are
// the reference's bits whatever the instruction set, the sizes of blocks and the number
// of threads.
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
	Width     int
	Block     func(rows, k int, a, b, acc *float32, resume bool, d *float32, dStride int, c *float32, cStride int, alpha, beta float32)
	Transpose func(dst *float32, dStride int, src *float32, sStride int)
	CopyRows  func(rows int, dst *float32, dStride int, src *float32, sStride int)
	Normalize func(dst, src *float32, sStride int, first, second, divisor float32)

	Absmax     func(x []float32) float32
	SumSquares func(sums []float64, x []float32)
}

const (
	// chainDepth is how much of k a block takes at a time, so that its operands stay in
	// the first-level cache.
	chainDepth = 256
	// groupPanels and groupStrips are the panels of A, as deep as that, that stay in the
	// second-level cache, and the strips of B that they are used for.
	groupPanels = 12
	groupStrips = 16
	// threadPieces is how many pieces a thread should find.
	threadPieces = 4
	// threadWork is the number of multiply-adds, some 10 µs, that are worth a goroutine.
	threadWork = 1 << 19
	cacheLine  = 64
)

// strips is the number of strips of a number of columns, or panels of rows.
func (e *Kernels) strips(n int) int { return (n + e.Width - 1) / e.Width }

// worthwhile limits the threads of a product.
func worthwhile(threads, rows, cols, depth int) int {
	work := float64(rows) * float64(cols) * float64(depth) / threadWork
	return max(min(threads, int(min(work, 1<<20))), 1)
}

// tiling divides the blocks of a product into pieces.
type tiling struct{ panels, strips, high, wide int }

func tile(panels, strips, threads int) tiling {
	t := tiling{panels, strips, groupPanels, groupStrips}
	t.wide = max(min(t.wide, (t.groups()*strips)/(threadPieces*threads)), 1)
	return t
}

func (t tiling) groups() int { return (t.panels + t.high - 1) / t.high }

func (t tiling) pieces() int { return t.groups() * ((t.strips + t.wide - 1) / t.wide) }

// at is the half-open ranges of panels and strips of a piece.
func (t tiling) at(piece int) (panel, lastPanel, strip, lastStrip int) {
	panel = piece % t.groups() * t.high
	strip = piece / t.groups() * t.wide
	return panel, min(panel+t.high, t.panels), strip, min(strip+t.wide, t.strips)
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
	for i := range m.Rows {
		row := m.Data.Slice(i*m.Stride, i*m.Stride+m.Cols)
		f32(row.F32)
		narrow(row.BF16)
	}
}
