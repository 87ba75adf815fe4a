package strips

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// iterate takes the steps of the plan. The result is in x.
func (m *matrix) iterate() {
	a, b := m.squares[0], m.squares[1]
	for i, c := range m.plan.Steps {
		m.outer(a)
		m.square(b, c[2], a, a, c[1], a, false)
		m.full(b, c[0], i+1 < len(m.plan.Steps))
	}
}

// iterateGram takes the steps in Gram form. The result is in x.
func (m *matrix) iterateGram() {
	r, q, z, t := m.squares[0], m.squares[1], m.squares[2], m.squares[3]
	start := true
	for i, c := range m.plan.Steps {
		if start {
			m.outer(r)
		}
		m.square(z, c[2], r, r, c[1], r, false)
		if start {
			m.addIdentity(q, z, c[0])
		} else {
			m.square(t, 1, q, z, c[0], q, true)
			q, t = t, q
		}
		last := i+1 == len(m.plan.Steps)
		start = m.plan.GramRestart && i+1 == reference.GramRestartAfter
		if start || last {
			m.full(q, 0, !last)
			continue
		}
		m.square(t, 1, r, z, c[0], r, true)
		m.square(r, 1, z, t, c[0], t, true)
	}
}

// outer sets A to X·Xᵀ.
func (m *matrix) outer(a []float32) {
	m.run(step{d: a, a: m.xt, b: m.xt, depth: m.cols, pitch: m.length, alpha: 1, symmetric: true}, m.rows)
}

// square sets D to alpha*A·B + beta*C, all of them symmetric. With mirror, rounding makes
// the elements below the diagonal differ from those above.
func (m *matrix) square(d []float32, alpha float32, a, b []float32, beta float32, c []float32, mirror bool) {
	m.run(step{
		d: d, a: a, b: b, c: c, depth: m.rows, pitch: m.height, alpha: alpha, beta: beta,
		symmetric: true, mirror: mirror,
	}, m.rows)
}

// full sets X to B·X + a*X, and its transpose if that is needed.
func (m *matrix) full(b []float32, a float32, transpose bool) {
	s := step{d: m.y, a: b, b: m.x, c: m.x, depth: m.rows, pitch: m.height, alpha: 1, beta: a}
	if transpose {
		s.transposed = m.xt
	}
	m.run(s, m.cols)
	m.x, m.y = m.y, m.x
}

// addIdentity sets Q to (Z + 0) + a*I.
func (m *matrix) addIdentity(q, z []float32, a float32) {
	for i, x := range z {
		q[i] = x + 0
	}
	for i := range m.rows {
		x := &q[(i/m.Width*m.height+i)*m.Width+i%m.Width]
		*x += a
		if m.plan.BFloat16 {
			*x = bf16.FromFloat32(*x).Float32()
		}
	}
}

// step is a product D = alpha*A·B + beta*C of matrices in strips; c is not read when beta
// is 0. A is the transpose of a.
type step struct {
	d, a, b, c   []float32
	transposed   []float32 // of D, or nil
	depth, pitch int       // of a and b, without and with padding
	alpha, beta  float32
	symmetric    bool // blocks on and above the diagonal are computed and mirrored
	mirror       bool // within the blocks on the diagonal too
}

func (m *matrix) run(s step, cols int) {
	threads := worthwhile(m.threads, m.rows, cols, s.depth)
	m.step = s
	m.tiling = tile(m.strips(m.rows), m.strips(cols), threads)
	workers.Run(threads, m.tiling.pieces(), (*stepping)(m))
}

// stepping does the blocks of a piece of a step.
type stepping matrix

func (m *stepping) Do(_, piece int) {
	panel, lastPanel, strip, lastStrip := m.tiling.at(piece)
	for k := 0; k < m.step.depth; k += chainDepth {
		for s := strip; s < lastStrip; s++ {
			last := lastPanel
			if m.step.symmetric {
				last = min(last, s+1)
			}
			for t := panel; t < last; t++ {
				m.block(t, s, k)
			}
		}
	}
}

// block continues the chains of a block from depth k.
func (m *stepping) block(panel, strip, k int) {
	p, width := &m.step, m.Width
	depth := min(chainDepth, p.depth-k)
	a, b := &p.a[(panel*p.pitch+k)*width], &p.b[(strip*p.pitch+k)*width]
	at := (strip*m.height + panel*width) * width
	d := p.d[at : at+width*width]
	if k+depth < p.depth {
		m.Block(width, depth, a, b, &d[0], k > 0, nil, 0, nil, 0, 0, 0)
		return
	}
	c := (*float32)(nil)
	if p.beta != 0 {
		c = &p.c[at]
	}
	m.Block(width, depth, a, b, &d[0], k > 0, &d[0], width, c, width, p.alpha, p.beta)
	switch {
	case p.symmetric && panel < strip:
		m.Transpose(&p.d[(panel*m.height+strip*width)*width], width, &d[0], width)
	case p.mirror:
		for i := range width {
			for j := range i {
				d[i*width+j] = d[j*width+i]
			}
		}
	case p.transposed != nil:
		m.Transpose(&p.transposed[(panel*m.length+strip*width)*width], width, &d[0], width)
	}
}
