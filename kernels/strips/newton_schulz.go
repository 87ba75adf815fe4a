package strips

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// NewtonSchulz is reference.NewtonSchulz on several threads, which take a matrix each if
// work is large enough for as many, and else share the products of one.
func (e *Kernels) NewtonSchulz(dst, src reference.Stack, plan *reference.NewtonSchulzPlan, work []float32, threads int) (poisoned int) {
	size := int(plan.WorkSize(src.Rows, src.Cols))
	atOnce := min(threads, src.Count, len(work)/size)
	if atOnce > threads/2 {
		threads = 1
	} else {
		atOnce = 1
		short := min(src.Rows, src.Cols)
		threads = worthwhile(threads, short, short, max(src.Rows, src.Cols))
	}
	crew := workers.Hire(threads)
	s := idleStacks.Get().(*stack)
	s.dst, s.src = dst, src
	s.poisoned.Store(0)
	for len(s.matrices) < atOnce {
		s.matrices = append(s.matrices, new(matrix))
	}
	for i, m := range s.matrices[:atOnce] {
		m.prepare(e, plan, src.Rows, src.Cols, work[i*size:][:size], threads)
		m.crew = crew
	}
	workers.Run(atOnce, src.Count, s)
	crew.Dismiss()
	for _, m := range s.matrices {
		m.iteration = iteration{} // the pool keeps nobody's matrices alive
	}
	s.dst, s.src = reference.Stack{}, reference.Stack{}
	poisoned = int(s.poisoned.Load())
	idleStacks.Put(s)
	return poisoned
}

// stack is a task whose pieces are matrices.
type stack struct {
	dst, src reference.Stack
	matrices []*matrix // one a worker
	poisoned atomic.Int64
}

var idleStacks = sync.Pool{New: func() any { return new(stack) }}

// Do orthogonalises one matrix.
func (s *stack) Do(worker, piece int) {
	dst, src := s.dst.Matrix(piece), s.src.Matrix(piece)
	raceRead(src)
	raceWrite(dst)
	if !s.matrices[worker].orthogonalize(dst, src) {
		fill(dst, float32(math.NaN()))
		s.poisoned.Add(1)
	}
}

// matrix is one that is being worked on, and memory for that.
type matrix struct {
	iteration
	rooms  []float32 // two blocks a worker
	sums   [16]float64
	broken atomic.Bool // an element of the result is not finite
}

// iteration has X, which has rows <= cols, and the squares of its steps in strips. Sizes
// are those without the strips' padding, height and length those with it.
type iteration struct {
	*Kernels
	plan           *reference.NewtonSchulzPlan
	threads        int
	tall           bool // X is the transpose of the matrices
	rows, cols     int
	height, length int
	x, y, xt       []float32
	squares        [4][]float32

	src, dst               reference.Matrix
	first, second, divisor float32
	step                   step
	tiling                 tiling
	crew                   *workers.Crew
}

func (m *matrix) prepare(e *Kernels, plan *reference.NewtonSchulzPlan, rows, cols int, work []float32, threads int) {
	m.iteration = iteration{Kernels: e, plan: plan, threads: threads, tall: rows > cols, rows: min(rows, cols), cols: max(rows, cols)}
	m.height, m.length = e.strips(m.rows)*e.Width, e.strips(m.cols)*e.Width
	a := arena{aligned(work)}
	for _, x := range []*[]float32{&m.x, &m.y, &m.xt} {
		*x = a.take(m.height * m.length)
	}
	squares := 2
	if plan.UsesGram(rows, cols) {
		squares = 4
	}
	for i := range m.squares[:squares] {
		m.squares[i] = a.take(m.height * m.height)
	}
	if need := 2*threads*e.Width*e.Width + slack; len(m.rooms) < need {
		m.rooms = aligned(make([]float32, need))
	}
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
	panels := m.strips(m.rows)
	m.crew.Run(panels, (*loading)(m))
	if m.plan.UsesGram(src.Rows, src.Cols) {
		m.iterateGram()
	} else {
		m.iterate()
	}
	m.broken.Store(false)
	m.crew.Run(panels, (*storing)(m))
	return !m.broken.Load()
}

// contiguous is the matrix itself or, where its elements do not lie as the norm and the
// quotient want them, a copy in y.
func (m *matrix) contiguous(src reference.Matrix) reference.Matrix {
	if src.Data.F32 != nil && src.Stride == src.Cols && !m.plan.ParityNorm {
		return src
	}
	c := reference.Matrix{Data: reference.Floats{F32: m.y}, Rows: src.Rows, Cols: src.Cols, Stride: src.Cols}
	for i := range src.Rows {
		for j := range src.Cols {
			m.y[i*c.Stride+j] = m.plan.Input(src.Data.At(i*src.Stride + j))
		}
	}
	return c
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

// room is a block of memory that a worker has.
func (m *matrix) room(worker, number int) []float32 {
	size := m.Width * m.Width
	return m.rooms[(2*worker+number)*size:][:size]
}

// at is where in strips of so many rows a block is, and blockSize how long.
func (e *Kernels) at(strip, row, rows int) int { return (strip*rows + row) / e.unit() * e.Width }

func (e *Kernels) blockSize() int { return e.Width * e.Width / e.unit() }

// loading makes a panel of X and its transpose.
type loading matrix

func (m *loading) Do(worker, piece int) {
	room := (*matrix)(m).room(worker, 0)
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
			room := (*matrix)(m).room(worker, 0)
			m.TransposeStrip(&room[0], m.Width, &block[0], m.Width)
			block = room
		}
		if m.Paired {
			room := (*matrix)(m).room(worker, 1)
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
	if m.dst.Data.BF16 != nil {
		finite = true
		for i := range rows {
			to := m.dst.Data.BF16[at+i*stride:][:cols]
			for j, x := range block[i*m.Width:][:cols] {
				to[j] = bf16.FromFloat32(x)
				x = to[j].Float32()
				finite = finite && x-x == 0
			}
		}
		return finite
	}
	to := m.dst.Data.F32[at:]
	if cols == m.Width {
		m.CopyRows(rows, &to[0], stride, &block[0], m.Width)
	} else {
		for i := range rows {
			copy(to[i*stride:][:cols], block[i*m.Width:])
		}
	}
	largest := m.Absmax(block[:rows*m.Width])
	return largest-largest == 0
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
