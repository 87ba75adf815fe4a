package strips

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// iterate takes the steps of the plan. The result is in x.
func (m *matrix) iterate() {
	a, b := m.squares[0], m.squares[1]
	for i, c := range m.plan.Steps {
		m.outer(a)
		m.square(b, c[2], a, a, c[1], a)
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
		m.square(z, c[2], r, r, c[1], r)
		if start {
			m.addIdentity(q, z, c[0])
		} else {
			m.square(t, 1, q, z, c[0], q)
			q, t = t, q
		}
		last := i+1 == len(m.plan.Steps)
		start = m.plan.GramRestart && i+1 == reference.GramRestartAfter
		if start || last {
			m.full(q, 0, !last)
			continue
		}
		m.square(t, 1, r, z, c[0], r)
		m.square(r, 1, z, t, c[0], t)
	}
}

// outer sets A to X·Xᵀ.
func (m *matrix) outer(a []float32) {
	if m.rows == 1 {
		m.outerOfLine(a)
		return
	}
	m.run(step{
		block: side{a: m.xt, d: a}, mirrored: side{a: m.xt, d: a}, cols: m.rows, depth: m.cols, pitch: m.length,
		alpha: 1, symmetric: true,
	})
}

// square sets D to alpha*A·B + beta*C, all of them symmetric.
func (m *matrix) square(d []float32, alpha float32, a, b []float32, beta float32, c []float32) {
	if m.rows == 1 {
		d[0] = m.number(alpha, a[0], b[0], beta, c[0])
		return
	}
	m.run(step{
		block: side{a: a, c: c, d: d}, mirrored: side{a: b, c: c, d: d}, cols: m.rows, depth: m.rows, pitch: m.height,
		alpha: alpha, beta: beta, symmetric: true,
	})
}

// full sets X to B·X + a*X, and its transpose if that is needed.
func (m *matrix) full(b []float32, a float32, transpose bool) {
	if m.rows == 1 {
		m.fullOfLine(b[0], a)
		return
	}
	m.run(step{
		block: side{a: b, c: m.x, d: m.y}, mirrored: side{a: m.x, c: m.xt, d: m.xt}, cols: m.cols, depth: m.rows, pitch: m.height,
		alpha: 1, beta: a, transpose: transpose,
	})
	m.x, m.y = m.y, m.x
}

// addIdentity sets Q to (Z + 0) + a*I.
func (m *matrix) addIdentity(q, z []float32, a float32) {
	switch {
	case m.rows == 1:
		q[0] = m.rounded(z[0] + 0 + a)
		return
	case m.Paired:
		m.addIdentityPaired(halves(q), halves(z), a)
		return
	}
	for i, x := range z {
		q[i] = x + 0
	}
	for i := range m.rows {
		x := &q[m.at(i/m.Width, i, m.height)+i%m.Width]
		*x = m.rounded(*x + a)
	}
}

func (m *matrix) addIdentityPaired(q, z []bf16.BF16, a float32) {
	const minusZero = 0x8000
	for i, x := range z {
		if x == minusZero {
			x = 0
		}
		q[i] = x
	}
	for i := range m.rows {
		x := &q[2*(m.at(i/m.Width, i, m.height)+i%m.Width)+i%2]
		*x = bf16.FromFloat32(x.Float32() + a)
	}
}

// step is a product D = alpha*A·B + beta*C of matrices in strips; C is not read when beta
// is 0.
type step struct {
	block, mirrored side
	cols            int
	depth, pitch    int     // of the operands, without and with padding
	layers          section // of the depth, whose chains go on in d
	alpha, beta     float32
	transpose       bool // of D is needed too
	symmetric       bool // blocks on and above the diagonal are computed and mirrored
}

// side is a product, or its mirror image: the transpose of its left operand, which is the
// right one of the other, C and D.
type side struct{ a, c, d []float32 }

func (m *matrix) run(s step) {
	panels, layers := m.strips(m.rows), m.layers(s.depth)
	most := mostSection
	if m.Paired { // whose results are too narrow for chains
		most = max(most, layers)
	}
	for s.layers = (section{}); s.layers.next(layers, most); {
		m.step = s
		m.tiling = tile(0, panels, m.group(s.layers.n), m.strips(s.cols), m.sharing())
		m.share(m.tiling.pieces(), (*stepping)(m))
	}
}

// stepping does the blocks of a piece of a step.
type stepping matrix

func (m *stepping) Do(worker, piece int) {
	strip, panel, last := m.tiling.at(piece)
	if m.step.symmetric {
		last = min(last, strip+1)
	}
	for t := panel; t < last; t++ {
		m.block(worker, t, strip, (*matrix)(m).next(strip, t-panel))
	}
}

// next is what a block brings near of the next strip.
func (m *matrix) next(strip, block int) rows {
	row, strip := share(block, m.step.layers.n), strip-m.tiling.ahead
	if row < 0 || strip < 0 {
		return rows{}
	}
	return rows{m.step.mirrored.a[m.at(strip, 0, m.step.pitch)+(m.step.layers.first+row)*m.Width:], m.Width}
}

// block does a block, or the one opposite in the mirror image if it has fewer rows.
func (m *stepping) block(worker, panel, strip int, next rows) {
	p, width := &m.step, m.Width
	length := m.height
	if !p.symmetric {
		length = m.length
	}
	first := p.layers.first * width
	a, b := p.block.a[m.at(panel, 0, p.pitch)+first:], p.mirrored.a[m.at(strip, 0, p.pitch)+first:]
	to, at := p.block, m.at(strip, panel*width, m.height)
	opposite, mirrored := p.mirrored, m.at(panel, strip*width, length)
	rows, cols := min(width, m.rows-panel*width), min(width, p.cols-strip*width)
	turn := cols < rows
	if !p.symmetric && p.layers.n < m.layers(p.depth) {
		turn = false // as C would be where unfinished chains are
	}
	if turn {
		a, b, rows = b, a, cols
		to, at, opposite, mirrored = opposite, mirrored, to, at
	}
	d := to.d[at : at+m.blockSize()]
	c := chains{
		rows: rows, layers: p.layers.n, a: a, b: b,
		acc: d, resume: first > 0, diagonal: p.symmetric && panel == strip, next: next,
	}
	if m.Paired {
		c.acc = (*matrix)(m).room(worker, 0)
	}
	if p.layers.first+p.layers.n < m.layers(p.depth) {
		m.extend(&c, nil)
		return
	}
	r := result{d: &d[0], dStride: width, cStride: width, alpha: p.alpha, beta: p.beta}
	if p.beta != 0 {
		r.c = &to.c[at]
	}
	mirror := p.symmetric || p.transpose || turn
	if mirror {
		r.near = &opposite.d[mirrored]
	}
	m.extend(&c, &r)
	switch {
	case c.diagonal && !m.Paired:
		m.Mirror(&d[0], width)
	case c.diagonal:
		room := (*matrix)(m).room(worker, 0)
		m.TransposeStrip(&room[0], width, &d[0], width)
		m.copyLower(d, room)
	case mirror:
		m.TransposeStrip(&opposite.d[mirrored], width, &d[0], width)
	}
}

// copyLower copies the elements of a block of pairs that are below its diagonal.
func (e *Kernels) copyLower(dst, src []float32) {
	for i := 0; i < e.Width; i += 2 {
		first := i / 2 * e.Width
		copy(dst[first:], src[first:][:i])
		halves(dst)[2*(first+i)+1] = halves(src)[2*(first+i)+1]
	}
}
