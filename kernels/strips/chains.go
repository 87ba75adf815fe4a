package strips

import "unsafe"

// chains are those of one block.
type chains struct {
	rows, layers int
	a, b         []float32 // a part of a strip each
	acc          []float32 // the unfinished chains, where there may be such
	resume       bool      // they have been begun
	diagonal     bool      // the block is one of those on the diagonal of a symmetric product
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
		a, b, acc := unsafe.SliceData(t.a[done*e.Width:]), unsafe.SliceData(t.b[done*e.Width:]), unsafe.SliceData(t.acc)
		if t.diagonal {
			e.Corner(layers, a, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near)
		} else {
			e.Block(t.rows, layers, a, b, acc, resume, to.d, to.dStride, to.c, to.cStride, to.alpha, to.beta, to.near)
		}
		if done += layers; done == t.layers {
			return
		}
	}
}
