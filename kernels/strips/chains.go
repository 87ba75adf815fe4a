package strips

import "unsafe"

// chains are those of one block.
type chains struct {
	rows, layers int
	a, b         []float32 // a part of a strip each
	aStride      int       // where it is not 0, a is rows of a matrix instead
	acc          []float32 // the unfinished chains, where there may be such
	resume       bool      // they have been begun
	from         rows      // what b is to be made of, if it is not there yet
	next         rows      // to be brought near
	diagonal     bool      // the block is one of those on the diagonal of a symmetric product
}

// rows are as wide as a strip. There may be none.
type rows struct {
	first  []float32
	stride int
}

func (r rows) at(row int) *float32 {
	if r.first == nil {
		return nil
	}
	return &r.first[row*r.stride]
}

// share is the first of the rows, of so many, that a block brings near, or -1 if those
// before it have brought all. The kernels bring one every layersARow layers.
func share(block, rows int) int {
	if block >= layersARow || rows == 0 {
		return -1
	}
	return block * rows / layersARow
}

// result is where finished chains go: D = alpha*chains + beta*C. C is not read when beta
// is 0.
type result struct {
	d           *float32
	dStride     int
	c           *float32
	cStride     int
	alpha, beta float32
	near        *float32
}

// extend computes chains, and finishes them if there is a result. One call of a kernel
// takes no more layers than a goroutine may go without being preempted.
func (e *Kernels) extend(t *chains, r *result) {
	for done, resume := 0, t.resume; ; resume = true {
		layers := min(chainLayers, t.layers-done)
		to := result{}
		if done+layers == t.layers && r != nil {
			to = *r
			if to.beta == 0 {
				to.c = nil
			}
		}
		left, b, acc := t.a[done*e.Width:], unsafe.SliceData(t.b[done*e.Width:]), unsafe.SliceData(t.acc)
		if t.aStride != 0 {
			left = t.a[done:]
		}
		a := unsafe.SliceData(left)
		next, from := t.next.at(done/layersARow), t.from.at(done)
		switch {
		case t.diagonal:
			e.Corner(t.rows, layers, a, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near)
		case t.aStride != 0 && from != nil:
			e.RowsPacking(t.rows, layers, a, t.aStride, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near, next, t.next.stride, from, t.from.stride)
		case t.aStride != 0:
			e.Rows(t.rows, layers, a, t.aStride, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near, next, t.next.stride)
		case from != nil:
			e.Packing(t.rows, layers, a, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near, next, t.next.stride, from, t.from.stride)
		default:
			e.Block(t.rows, layers, a, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near, next, t.next.stride)
		}
		if done += layers; done == t.layers {
			return
		}
	}
}
