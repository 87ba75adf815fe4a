package strips

import (
	"sync"

	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// Gemm is reference.Gemm of float32 matrices on several threads.
func (e *Kernels) Gemm(c, a reference.Matrix, transA bool, b reference.Matrix, transB bool, alpha, beta float32, threads int) {
	rows, depth, cols := a.Rows, a.Cols, b.Cols
	if transA {
		rows, depth = depth, rows
	}
	if transB {
		cols = b.Rows
	}
	e.multiply(product{
		c: c, a: operand{a, !transA}, b: operand{b, transB},
		rows: rows, cols: cols, depth: depth, alpha: alpha, beta: beta,
	}, threads)
}

// Syrk is reference.Syrk of float32 matrices on several threads.
func (e *Kernels) Syrk(c, a reference.Matrix, alpha, beta float32, threads int) {
	e.multiply(product{
		c: c, a: operand{a, true}, b: operand{a, true}, symmetric: true,
		rows: a.Rows, cols: a.Rows, depth: a.Cols, alpha: alpha, beta: beta,
	}, threads)
}

// product is alpha*A·B + beta*C. It is computed in sections of C, and those in sections
// of k, for which parts of A and B are packed into strips.
type product struct {
	*Kernels
	c                 reference.Matrix
	a, b              operand
	symmetric         bool
	rows, cols, depth int
	alpha, beta       float32

	i, j, k section
	packedA []float32 // strips of Aᵀ
	packedB []float32
	sums    []float32 // unfinished chains, strip by strip
	edges   []float32 // a block a worker
	tiling  tiling
}

// operand is a matrix in which the lanes of a strip run along its rows, or its columns.
type operand struct {
	reference.Matrix
	alongRows bool
}

// section is a part of a dimension.
type section struct{ first, n int }

const mostSection = 1024

func (s *section) next(of int) bool {
	s.first += s.n
	s.n = min(mostSection, of-s.first)
	return s.n > 0
}

// job is a product with its memory.
type job struct {
	product
	memory []float32
}

var idle = sync.Pool{New: func() any { return new(job) }}

func (e *Kernels) multiply(p product, threads int) {
	if p.rows == 0 || p.cols == 0 {
		return
	}
	raceRead(p.a.Matrix)
	raceRead(p.b.Matrix)
	raceWrite(p.c)
	j := idle.Get().(*job)
	j.product = p
	j.Kernels = e
	j.allocate(threads)
	j.run(threads)
	j.product = product{} // the pool keeps nobody's matrices alive
	idle.Put(j)
}

func (j *job) allocate(threads int) {
	width := j.Width
	rows, cols := j.strips(min(j.rows, mostSection))*width, j.strips(min(j.cols, mostSection))*width
	depth := max(min(j.depth, mostSection), 1)
	block := width * width
	sums := block
	if j.depth > chainDepth {
		sums = rows * cols
	}
	if need := (rows+cols)*depth + sums + threads*block + slack; len(j.memory) < need {
		j.memory = make([]float32, need)
	}
	a := arena{aligned(j.memory)}
	j.packedA, j.packedB = a.take(rows*depth), a.take(cols*depth)
	j.sums, j.edges = a.take(sums), a.take(threads*block)
}

func (j *job) run(threads int) {
	for j.i = (section{}); j.i.next(j.rows); {
		for j.j = (section{}); j.j.next(j.cols); {
			if j.symmetric && j.j.first < j.i.first {
				continue
			}
			j.k = section{}
			for again := j.k.next(j.depth) || j.depth == 0; again; again = j.k.next(j.depth) {
				threads := worthwhile(threads, j.i.n, j.j.n, j.k.n)
				panels, strips := j.strips(j.i.n), j.strips(j.j.n)
				workers.Run(threads, panels+strips, (*packing)(&j.product))
				j.tiling = tile(panels, strips, threads)
				workers.Run(threads, j.tiling.pieces(), (*multiplication)(&j.product))
			}
		}
	}
}

// packing packs the panels of A, then the strips of B.
type packing product

func (p *packing) Do(_, piece int) {
	size := p.Width * p.k.n
	if panels := p.strips(p.i.n); piece >= panels {
		strip := piece - panels
		p.pack(p.packedB[strip*size:], p.b, p.j, strip, p.k)
	} else {
		p.pack(p.packedA[piece*size:], p.a, p.i, piece, p.k)
	}
}

// pack fills one strip. Its first lane is a number of strips into the section.
func (e *Kernels) pack(dst []float32, m operand, lanes section, strip int, k section) {
	width := e.Width
	first := lanes.first + strip*width
	n := min(width, lanes.first+lanes.n-first)
	data, stride := m.Data.F32, m.Stride
	if !m.alongRows {
		if k.n > 0 && n == width {
			e.CopyRows(k.n, &dst[0], width, &data[k.first*stride+first], stride)
			return
		}
		for i := range k.n {
			row := dst[i*width : (i+1)*width]
			clear(row[copy(row, data[(k.first+i)*stride+first:][:n]):])
		}
		return
	}
	whole := 0
	if n == width {
		whole = k.n / width * width
	} else {
		clear(dst[:k.n*width])
	}
	for i := 0; i < whole; i += width {
		e.Transpose(&dst[i*width], width, &data[first*stride+k.first+i], stride)
	}
	for lane := range n {
		row := data[(first+lane)*stride+k.first:][:k.n]
		for i := whole; i < len(row); i++ {
			dst[i*width+lane] = row[i]
		}
	}
}

// multiplication does the blocks of a piece.
type multiplication product

func (p *multiplication) Do(worker, piece int) {
	panel, lastPanel, strip, lastStrip := p.tiling.at(piece)
	for k := 0; k == 0 || k < p.k.n; k += chainDepth {
		for s := strip; s < lastStrip; s++ {
			last := lastPanel
			if p.symmetric {
				last = min(last, (p.j.first-p.i.first)/p.Width+s+1)
			}
			for t := panel; t < last; t++ {
				(*product)(p).block(worker, t, s, k)
			}
		}
	}
}

// block continues the chains of a block from depth k of the section.
func (p *product) block(worker, panel, strip, k int) {
	width, size := p.Width, p.Width*p.Width
	b := block{
		i: p.i.first + panel*width, j: p.j.first + strip*width, k: min(chainDepth, p.k.n-k),
		a: p.packedA[(panel*p.k.n+k)*width:], b: p.packedB[(strip*p.k.n+k)*width:],
		acc: p.sums, resume: p.k.first+k > 0,
	}
	if p.depth > chainDepth {
		b.acc = p.sums[(strip*p.tiling.panels+panel)*size:]
	}
	if p.k.first+k+b.k < p.depth {
		p.Block(width, b.k, &b.a[0], &b.b[0], &b.acc[0], b.resume, nil, 0, nil, 0, 0, 0)
	} else {
		p.finish(&b, p.edges[worker*size:][:size])
	}
}

// block is a part of the chains of one block.
type block struct {
	i, j, k   int
	a, b, acc []float32
	resume    bool
}

// finish stores the block in C.
func (p *product) finish(t *block, edge []float32) {
	width, c, stride := p.Width, p.c.Data.F32, p.c.Stride
	rows, cols := min(width, p.rows-t.i), min(width, p.cols-t.j)
	if rows == width && cols == width && !(p.symmetric && t.i == t.j) {
		d := &c[t.i*stride+t.j]
		p.blockInto(t, width, d, stride, d)
		if p.symmetric {
			p.Transpose(&c[t.j*stride+t.i], stride, d, stride)
		}
		return
	}
	from := func(i int) int { // the first column that is computed
		if p.symmetric && t.i == t.j {
			return i
		}
		return 0
	}
	if p.beta != 0 {
		for i := range rows {
			copy(edge[i*width+from(i):(i+1)*width], c[(t.i+i)*stride+t.j+from(i):(t.i+i)*stride+t.j+cols])
		}
	}
	p.blockInto(t, rows, &edge[0], width, &edge[0])
	for i := range rows {
		row := edge[i*width:][:cols]
		copy(c[(t.i+i)*stride+t.j+from(i):], row[from(i):])
		if p.symmetric {
			for j := from(i); j < cols; j++ {
				c[(t.j+j)*stride+t.i+i] = row[j]
			}
		}
	}
}

func (p *product) blockInto(t *block, rows int, d *float32, stride int, c *float32) {
	if p.beta == 0 {
		c = nil
	}
	p.Block(rows, t.k, &t.a[0], &t.b[0], &t.acc[0], t.resume, d, stride, c, stride, p.alpha, p.beta)
}
