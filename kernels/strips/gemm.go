package strips

import (
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// Gemm is reference.Gemm on several threads, of bf16 operands with PackRows set and else of
// float32.
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

// Syrk is reference.Syrk on several threads, of the same formats as Gemm.
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
	packedA []float32 // strips of Aᵀ, of one group
	memoryB []float32
	packedB []float32 // strips of B, in it
	packed  bool      // all of B is packed, and not by those who need it
	pitch   int       // layers of a strip
	sums    []float32 // unfinished chains, strip by strip
	rooms   []float32 // three blocks a worker
	tiling  tiling
	crew    *workers.Crew
}

// operand is a matrix in which the lanes of a strip run along its rows, or its columns.
type operand struct {
	reference.Matrix
	alongRows bool
}

// section is a part of a dimension.
type section struct{ first, n int }

const (
	page         = 4096
	mostPages    = 512
	mostSection  = 1024
	sectionUnits = 64 // whole blocks
)

// next makes sections of almost one size, which is at most most.
func (s *section) next(of, most int) bool {
	s.first += s.n
	left := of - s.first
	parts := max((left+most-1)/most, 1)
	even := (left + parts - 1) / parts
	s.n = min((even+sectionUnits-1)/sectionUnits*sectionUnits, left)
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
	threads = worthwhile(threads, p.rows, p.cols, p.depth)
	j.crew = workers.Hire(threads)
	j.run(threads)
	j.crew.Dismiss()
	j.product = product{} // the pool keeps nobody's matrices alive
	idle.Put(j)
}

func (j *job) allocate(threads int) {
	width := j.Width
	rows, cols := j.strips(min(j.rows, mostSection))*width, j.strips(min(j.cols, mostSection))*width
	depth := j.padded(min(j.depth, mostSection))
	group := min(j.group(depth)*width, rows)
	rooms, sums := 3*threads*width*width, 0
	if j.depth > mostSection {
		sums = rows * cols
	}
	if need := group*depth + cols*(depth+1) + page/4 + sums + rooms + slack; len(j.memory) < need {
		j.memory = make([]float32, need)
	}
	a := arena{aligned(j.memory)}
	j.packedA, j.memoryB = a.take(group*depth), a.take(cols*(depth+1)+page/4)
	j.sums, j.rooms = a.take(sums), a.take(rooms)
}

// padded is the number of layers, as many as a block is high or a multiple of it, that
// rows are packed into.
func (e *Kernels) padded(rows int) int { return e.strips(e.layers(rows)) * e.Width }

// room is a block of memory that a worker has.
func (p *product) room(worker, number int) []float32 {
	size := p.Width * p.Width
	return p.rooms[(3*worker+number)*size:][:size]
}

func (j *job) run(threads int) {
	for j.i = (section{}); j.i.next(j.rows, mostSection); {
		for j.j = (section{}); j.j.next(j.cols, mostSection); {
			if j.symmetric && j.j.first < j.i.first {
				continue
			}
			j.k = section{}
			for again := j.k.next(j.depth, mostSection) || j.depth == 0; again; again = j.k.next(j.depth, mostSection) {
				j.section(threads)
			}
		}
	}
}

// section multiplies a section of A by one of B, a group of panels at a time. Their strips
// are packed when they are first needed, and so still near when they are used. Once those
// of B are, and if A needs no packing, groups do not wait for one another.
func (j *job) section(threads int) {
	j.pitch = j.padded(j.k.n)
	j.packedB = j.memoryB[j.phase():]
	panels, strips, group := j.strips(j.i.n), j.strips(j.j.n), j.group(j.pitch)
	j.packed = j.scattered()
	if j.packed {
		j.crew.Run(j.piecesB(), (*packingB)(&j.product))
	}
	for first := 0; first < panels; first = j.tiling.last {
		last := min(first+group, panels)
		if j.packed && (j.shared() || j.inPlaceA()) {
			last = panels
		}
		j.tiling = tile(first, last, group, strips, threads)
		if n := j.panelsToPack(); n > 0 {
			j.crew.Run(n, (*packingA)(&j.product))
		}
		if !j.packed && j.tiling.parts() > 1 {
			j.crew.Run(j.piecesB(), (*packingB)(&j.product))
			j.packed = true
		}
		j.crew.Run(j.tiling.pieces(), (*multiplication)(&j.product))
		j.packed = true
	}
}

// packingA packs the panels of a group, packingB all strips.
type (
	packingA product
	packingB product
)

func (p *packingA) Do(worker, piece int) {
	q := (*product)(p)
	panel := p.tiling.first + piece
	switch {
	case q.shared():
		q.packB(worker, panel)
		return
	case q.inPlaceA():
		panel = p.tiling.last - 1
	}
	p.pack(p.packedA[piece*p.pitch*p.Width:], p.a, p.i, panel, p.k, section{0, p.k.n}, q.room(worker, 0))
}

// inPlaceA tells that the kernels read whole panels of A where they are.
func (p *product) inPlaceA() bool {
	if p.Rows == nil || p.shared() || p.k.n == 0 || !p.a.alongRows || p.a.Data.F32 == nil {
		return false
	}
	return !p.Crowded || 4*p.a.Stride%page != 0
}

// wholePanel tells that a panel has all its rows.
func (p *product) wholePanel(panel int) bool { return (panel+1)*p.Width <= p.i.n }

// panelsToPack is the number of panels of these groups, of which there may be one, that are
// to be packed: all, those that are not strips of B too, or the one that is not whole.
func (p *product) panelsToPack() int {
	switch {
	case p.shared() && p.packed:
		return 0
	case p.inPlaceA() && p.wholePanel(p.tiling.last-1):
		return 0
	case p.inPlaceA():
		return 1
	}
	return p.tiling.last - p.tiling.first
}

// Do packs a strip of a B that is transposed, and else some layers of all strips, which
// visits each of its pages once.
func (p *packingB) Do(worker, piece int) {
	q := (*product)(p)
	if p.b.alongRows {
		if !q.isPanel(piece) {
			q.packB(worker, piece)
		}
		return
	}
	layers := section{first: piece * p.Width * p.unit(), n: p.Width * p.unit()}
	for strip := range p.strips(p.j.n) {
		p.pack(q.strip(strip), p.b, p.j, strip, p.k, layers, q.room(worker, 0))
	}
}

func (p *product) piecesB() int {
	if p.b.alongRows {
		return p.strips(p.j.n)
	}
	return p.pitch / p.Width
}

// scattered tells that the rows of B that a strip is made of lie on more pages than the
// processor knows the addresses of.
func (p *product) scattered() bool {
	rowBytes := 4 * p.b.Stride / p.unit()
	return !p.b.alongRows && p.k.n*min(rowBytes, page) > mostPages*page
}

// strip is where a strip of B is. Strips begin as far apart as their columns of C, modulo
// a page, and where C's have passed: a load whose address is that of a store in its last
// 12 bits waits for it, and the stores of a tile wait for the end of its chains.
func (p *product) strip(number int) []float32 { return p.packedB[number*(p.pitch+1)*p.Width:] }

func (p *product) phase() int {
	c := p.c.Data.F32
	if c == nil {
		return 0
	}
	from := uintptr(unsafe.Pointer(&p.memoryB[0]))
	to := uintptr(unsafe.Pointer(&c[p.j.first])) + uintptr(4*p.Width)
	return int((to-from)%page) / cacheLine * cacheLine / 4
}

// shared tells that panels of A are strips of B, isPanel that a strip has been packed as
// one of this group.
func (p *product) shared() bool { return p.symmetric && p.i.first == p.j.first }

func (p *product) isPanel(strip int) bool { return p.shared() && strip < p.tiling.last }

func (p *product) packB(worker, strip int) {
	p.pack(p.strip(strip), p.b, p.j, strip, p.k, section{0, p.k.n}, p.room(worker, 0))
}

// pack fills a part of a strip, in blocks. Its first lane is a number of strips into the
// section, and its part begins with a block of the section of k.
func (e *Kernels) pack(dst []float32, m operand, lanes section, strip int, k, part section, room []float32) {
	first := lanes.first + strip*e.Width
	n := min(e.Width, lanes.first+lanes.n-first)
	for done := part.first; done < min(part.first+part.n, k.n); done += e.Width * e.unit() {
		depth := min(e.Width*e.unit(), k.n-done)
		w := window{row: k.first + done, col: first, rows: depth, cols: n, height: e.Width * e.unit(), width: e.Width}
		if m.alongRows {
			w = window{row: w.col, col: w.row, rows: w.cols, cols: w.rows, height: w.width, width: w.height}
		}
		to := &dst[done/e.unit()*e.Width]
		if m.Data.BF16 != nil {
			from, stride := look(w, m.Data.BF16, m.Stride, halves(room))
			if m.alongRows {
				e.PackTransposed(to, e.Width, (*uint16)(from), stride)
			} else {
				e.PackRows(e.Width, to, e.Width, (*uint16)(from), stride)
			}
			continue
		}
		from, stride := look(w, m.Data.F32, m.Stride, room)
		if m.alongRows {
			e.Transpose(to, e.Width, from, stride)
		} else {
			e.CopyRows(e.Width, to, e.Width, from, stride)
		}
	}
}

// window is a part of a matrix that stands for a block of height and width.
type window struct{ row, col, rows, cols, height, width int }

// look returns the block: where it is if it is whole, and else in the room, with zeros.
func look[T any](w window, data []T, stride int, room []T) (*T, int) {
	if w.rows == w.height && w.cols == w.width {
		return &data[w.row*stride+w.col], stride
	}
	clear(room[:w.height*w.width])
	for i := range w.rows {
		copy(room[i*w.width:], data[(w.row+i)*stride+w.col:][:w.cols])
	}
	return &room[0], w.width
}

// halves is memory as bf16 numbers.
func halves(x []float32) []bf16.BF16 {
	return unsafe.Slice((*bf16.BF16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}

// multiplication does the blocks of a piece.
type multiplication product

func (p *multiplication) Do(worker, piece int) {
	strip, panel, last := p.tiling.at(piece)
	if p.symmetric {
		last = min(last, (p.j.first-p.i.first)/p.Width+strip+1)
	}
	from := rows{}
	if !p.packed && !(*product)(p).isPanel(strip) {
		if from = (*product)(p).inPlace(strip); from.first == nil {
			(*product)(p).packB(worker, strip)
		}
	}
	for t := panel; t < last; t++ {
		(*product)(p).block(worker, t, strip, from, (*product)(p).next(strip, t-panel))
		from = rows{}
	}
}

// inPlace are the rows of B that the first block packs, if it can.
func (p *product) inPlace(strip int) rows {
	col := strip * p.Width
	if p.Packing == nil || p.b.alongRows || p.b.Data.F32 == nil || p.j.n-col < p.Width || p.k.n == 0 {
		return rows{}
	}
	return rows{p.b.Data.F32[p.k.first*p.b.Stride+p.j.first+col:], p.b.Stride}
}

// next is what a block brings near of the next strip.
func (p *product) next(strip, block int) rows {
	row, strip := share(block, p.layers(p.k.n)), strip-p.tiling.ahead
	switch {
	case row < 0 || strip < 0:
	case p.packed:
		return rows{p.strip(strip)[row*p.Width:], p.Width}
	case !p.b.alongRows && p.b.Data.F32 != nil:
		return rows{p.b.Data.F32[(p.k.first+row)*p.b.Stride+p.j.first+strip*p.Width:], p.b.Stride}
	}
	return rows{}
}

// block is what there is of a block of C, and its chains in this section. One of fewer
// columns than rows whose operands are both in strips is turned: what is computed is its
// transpose.
type block struct {
	i, j, rows, cols int
	turned           bool
	chains
}

func (p *product) block(worker, panel, strip int, from, next rows) {
	i, j := p.i.first+panel*p.Width, p.j.first+strip*p.Width
	b := block{i, j, min(p.Width, p.rows-i), min(p.Width, p.cols-j), false, chains{
		b:      p.strip(strip),
		layers: p.layers(p.k.n), resume: p.k.first > 0, diagonal: p.symmetric && i == j, from: from, next: next,
	}}
	b.chains.rows = b.rows
	switch {
	case p.shared():
		b.a = p.strip(panel)
	case !p.inPlaceA():
		b.a = p.packedA[(panel-p.tiling.first)*p.pitch*p.Width:]
	case p.wholePanel(panel):
		b.a, b.aStride = p.a.Data.F32[i*p.a.Stride+p.k.first:], p.a.Stride
	default:
		b.a = p.packedA
	}
	if b.aStride == 0 && b.cols < b.rows {
		b.turned, b.a, b.b, b.chains.rows = true, b.b, b.a, b.cols
	}
	if p.depth > mostSection {
		b.acc = p.sums[(strip*p.strips(p.i.n)+panel)*p.Width*p.Width:]
	}
	if p.k.first+p.k.n < p.depth {
		p.extend(&b.chains, nil)
	} else {
		p.finish(&b, worker)
	}
}

// finish stores the block in C, and its mirror image.
func (p *product) finish(b *block, worker int) {
	width, stride := p.Width, p.c.Stride
	if c := p.c.Data.F32; c != nil && b.rows == width && b.cols == width {
		d := &c[b.i*stride+b.j]
		p.extend(&b.chains, &result{d, stride, d, stride, p.alpha, p.beta, nil})
		switch {
		case b.diagonal:
			p.Mirror(d, stride)
		case p.symmetric:
			p.Transpose(&c[b.j*stride+b.i], stride, d, stride)
		}
		return
	}
	d, mirrored, room := p.room(worker, 0), p.room(worker, 1), p.room(worker, 2)
	if p.beta != 0 {
		p.load(d, b, room)
		if b.turned {
			p.Transpose(&mirrored[0], width, &d[0], width)
			d, mirrored = mirrored, d
		}
	}
	p.extend(&b.chains, &result{&d[0], width, &d[0], width, p.alpha, p.beta, nil})
	switch {
	case b.diagonal:
		p.Mirror(&d[0], width)
	case p.symmetric || b.turned:
		p.Transpose(&mirrored[0], width, &d[0], width)
	}
	if b.turned {
		d, mirrored = mirrored, d
	}
	p.store(d, b.i, b.j, b.rows, b.cols, room)
	if p.symmetric && !b.diagonal {
		p.store(mirrored, b.j, b.i, b.cols, b.rows, room)
	}
}

// load puts a block of C into d.
func (p *product) load(d []float32, b *block, room []float32) {
	w := window{row: b.i, col: b.j, rows: b.rows, cols: b.cols, height: p.Width, width: p.Width}
	if p.c.Data.BF16 != nil {
		from, stride := look(w, p.c.Data.BF16, p.c.Stride, halves(room))
		p.WidenRows(p.Width, &d[0], p.Width, (*uint16)(from), stride)
		return
	}
	from, stride := look(w, p.c.Data.F32, p.c.Stride, room)
	p.CopyRows(p.Width, &d[0], p.Width, from, stride)
}

// store puts a block, or what there is of it, into C.
func (p *product) store(d []float32, i, j, rows, cols int, room []float32) {
	at, stride := i*p.c.Stride+j, p.c.Stride
	if p.c.Data.BF16 == nil {
		for row := range rows {
			copy(p.c.Data.F32[at+row*stride:][:cols], d[row*p.Width:])
		}
		return
	}
	c := p.c.Data.BF16[at:]
	if cols == p.Width {
		p.NarrowRows(rows, (*uint16)(&c[0]), stride, &d[0], p.Width)
		return
	}
	narrow := halves(room)
	p.NarrowRows(rows, (*uint16)(&narrow[0]), p.Width, &d[0], p.Width)
	for row := range rows {
		copy(c[row*stride:][:cols], narrow[row*p.Width:])
	}
}
