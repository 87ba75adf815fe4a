package strips

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// matrix is one that is being worked on, with memory for that. Its worker is not the same
// for all of them.
type matrix struct {
	iteration
	sums   [16]float64
	broken atomic.Bool // an element of the result is not finite
}

// iteration has X, which has rows <= cols, and the squares of its steps in strips. Sizes
// are those without the strips' padding, height and length those with it.
type iteration struct {
	*call
	tall           bool // X is the transpose of the matrices
	rows, cols     int
	height, length int
	x, y, xt       []float32
	squares        [4][]float32

	src, dst               reference.Matrix
	first, second, divisor float32
	step                   step
	tiling                 tiling
	worker                 int
	threads                int // that are worth sharing a product
}

func (m *matrix) prepare(c *call, worker, rows, cols int, work []float32) {
	m.iteration = iteration{call: c, worker: worker, tall: rows > cols, rows: min(rows, cols), cols: max(rows, cols)}
	m.height, m.length = c.strips(m.rows)*c.Width, c.strips(m.cols)*c.Width
	m.threads = 1
	if c.largestProduct(rows, cols) >= splitWork {
		m.threads = worthwhile(c.threads, m.rows, m.rows, m.cols)
	}
	a := arena{aligned(work)}
	for _, x := range []*[]float32{&m.x, &m.y, &m.xt} {
		*x = a.take(m.height * m.length)
	}
	squares := 2
	if c.plan.UsesGram(rows, cols) {
		squares = 4
	}
	for i := range m.squares[:squares] {
		m.squares[i] = a.take(m.height * m.height)
	}
}

// share does the pieces of a task, with the help of others if there are some who have none.
func (m *matrix) share(pieces int, task workers.Task) {
	if m.sharing() > 1 {
		m.crew.Share(m.worker, pieces, task)
		return
	}
	for piece := range pieces {
		task.Do(m.worker, piece)
	}
}

// sharing is how many threads products are divided for.
func (m *matrix) sharing() int {
	if m.threads == 1 || !m.helped() {
		return 1
	}
	return m.threads
}

// orthogonalize reports whether the matrix, its norm and the result are finite.
func (m *matrix) orthogonalize(dst, src reference.Matrix) bool {
	m.dst, m.src = dst, m.contiguous(src)
	norm := m.plan.Norm(m.sumOfSquares(m.src.Data.F32[:src.Rows*src.Cols]))
	if math.IsInf(norm, 0) || math.IsNaN(norm) {
		return false
	}
	if norm == 0 {
		fill(dst, 0)
		return true
	}
	m.first, m.second, m.divisor = m.plan.Scaling(norm)
	if m.rows == 1 {
		return m.orthogonalizeLine()
	}
	panels := m.strips(m.rows)
	m.share(panels, (*loading)(m))
	for _, x := range [][]float32{m.y, m.squares[0], m.squares[1], m.squares[2], m.squares[3]} {
		m.clearPadding(x)
	}
	m.steps()
	m.broken.Store(false)
	m.share(panels, (*storing)(m))
	return !m.broken.Load()
}

func (m *matrix) steps() {
	if m.plan.UsesGram(m.src.Rows, m.src.Cols) {
		m.iterateGram()
	} else {
		m.iterate()
	}
}

// callElements is how many elements a call of a kernel takes, which bounds its time.
const callElements = 1 << 15

// contiguous is the matrix itself or, where its elements do not lie as the norm and the
// quotient want them, a copy in y.
func (m *matrix) contiguous(src reference.Matrix) reference.Matrix {
	if src.Data.F32 != nil && src.Stride == src.Cols && !m.plan.ParityNorm {
		return src
	}
	rows, cols := src.Rows, src.Cols
	if src.Stride == cols {
		rows, cols = 1, rows*cols
	}
	for i := range rows {
		for j := 0; j < cols; j += callElements {
			at, n := i*src.Stride+j, min(callElements, cols-j)
			m.input(m.y[i*cols+j:][:n], src.Data.Slice(at, at+n))
		}
	}
	return reference.Matrix{Data: reference.Floats{F32: m.y}, Rows: src.Rows, Cols: src.Cols, Stride: src.Cols}
}

// input makes the plan's Input of elements.
func (m *matrix) input(dst []float32, src reference.Floats) {
	switch {
	case src.F32 == nil:
		m.Widen(dst, words(src.BF16))
	case m.plan.ParityNorm:
		rounded := words(halves(m.x)[:len(dst)])
		m.Round(rounded, src.F32)
		m.Widen(dst, rounded)
	default:
		copy(dst, src.F32)
	}
}

func words(x []bf16.BF16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func (m *matrix) sumOfSquares(x []float32) (total float64) {
	for len(x) > 0 {
		n := min(len(m.sums)*reference.SumChunk, len(x))
		sums := m.sums[:(n+reference.SumChunk-1)/reference.SumChunk]
		m.SumSquares(sums, x[:n])
		for _, sum := range sums {
			total += sum
		}
		x = x[n:]
	}
	return total
}

// at is where in strips of so many rows a block is, and blockSize how long.
func (e *Kernels) at(strip, row, rows int) int { return (strip*rows + row) / e.unit() * e.Width }

func (e *Kernels) blockSize() int { return e.Width * e.Width / e.unit() }

// clearPadding makes zeros of the rows of strips that products may leave as they are.
func (m *matrix) clearPadding(x []float32) {
	strip, rows := m.at(1, 0, m.height), m.layers(m.rows)*m.Width
	for ; len(x) > 0; x = x[strip:] {
		clear(x[rows:strip])
	}
}

// loading makes a panel of X and its transpose.
type loading matrix

func (m *loading) Do(worker, piece int) {
	room := m.room(worker, 0)
	for strip := range m.strips(m.cols) {
		row, col := piece*m.Width, strip*m.Width
		to, transposed := &m.x[m.at(strip, row, m.height)], &m.xt[m.at(piece, col, m.length)]
		if m.tall {
			row, col = col, row
			to, transposed = transposed, to
		}
		w := window{row: row, col: col, rows: min(m.Width, m.src.Rows-row), cols: min(m.Width, m.src.Cols-col), height: m.Width, width: m.Width}
		from, stride := look(w, m.src.Data.F32, m.src.Stride, room)
		m.Normalize(to, from, stride, m.first, m.second, m.divisor)
		m.TransposeStrip(transposed, m.Width, to, m.Width)
	}
}

// storing stores a panel of X, or its transpose, in the result.
type storing matrix

func (m *storing) Do(worker, piece int) {
	for strip := range m.strips(m.cols) {
		row, col := piece*m.Width, strip*m.Width
		block := m.x[m.at(strip, row, m.height):][:m.blockSize()]
		if m.tall {
			row, col = col, row
			room := m.room(worker, 0)
			m.TransposeStrip(&room[0], m.Width, &block[0], m.Width)
			block = room
		}
		if m.Paired {
			room := m.room(worker, 1)
			m.UnpackRows(m.layers(m.Width), &room[0], m.Width, &block[0], m.Width)
			block = room
		}
		if !m.store(block, row, col) {
			m.broken.Store(true)
		}
	}
}

// store stores what there is of a block, and reports whether it is finite.
func (m *storing) store(block []float32, row, col int) (finite bool) {
	rows, cols := min(m.Width, m.dst.Rows-row), min(m.Width, m.dst.Cols-col)
	at, stride := row*m.dst.Stride+col, m.dst.Stride
	if m.dst.Data.F32 != nil && cols == m.Width {
		m.CopyRows(rows, &m.dst.Data.F32[at], stride, &block[0], m.Width)
	} else {
		for i := range rows {
			from := at + i*stride
			(*matrix)(m).output(m.dst.Data.Slice(from, from+cols), block[i*m.Width:][:cols])
		}
	}
	return (*matrix)(m).storesFinite(m.Absmax(block[:rows*m.Width]))
}

func fill(m reference.Matrix, x float32) {
	for i := range m.Rows {
		for j := range m.Cols {
			if at := i*m.Stride + j; m.Data.F32 != nil {
				m.Data.F32[at] = x
			} else {
				m.Data.BF16[at] = bf16.FromFloat32(x)
			}
		}
	}
}
