package reference

// iterate takes the steps. The result is in x or y.
func (p *NewtonSchulzPlan) iterate(x, y Matrix, free scratch) Matrix {
	a, b := free.matrix(x.Rows, x.Rows), free.matrix(x.Rows, x.Rows)
	for _, c := range p.Steps {
		p.outer(a, x)
		p.symmetric(b, c[2], a, a, c[1], a)
		p.full(y, b, x, c[0])
		x, y = y, x
	}
	return x
}

// GramRestartAfter is the number of steps before a restart in Gram form.
const GramRestartAfter = 2

// iterateGram takes the steps in Gram form. The result is in x or y.
func (p *NewtonSchulzPlan) iterateGram(x, y Matrix, free scratch) Matrix {
	r, q := free.matrix(x.Rows, x.Rows), free.matrix(x.Rows, x.Rows)
	z, t := free.matrix(x.Rows, x.Rows), free.matrix(x.Rows, x.Rows)
	start := true
	for i, c := range p.Steps {
		if start {
			p.outer(r, x)
		}
		p.symmetric(z, c[2], r, r, c[1], r)
		if start {
			p.addIdentity(q, z, c[0])
		} else {
			p.symmetric(t, 1, q, z, c[0], q)
			q, t = t, q
		}
		start = p.GramRestart && i+1 == GramRestartAfter
		if start || i+1 == len(p.Steps) {
			p.full(y, q, x, 0)
			x, y = y, x
			continue
		}
		p.symmetric(t, 1, r, z, c[0], r)
		p.symmetric(r, 1, z, t, c[0], t)
	}
	return x
}

// outer sets A to X·Xᵀ.
func (p *NewtonSchulzPlan) outer(a, x Matrix) {
	product{x.operand(false), x.operand(true), 1, 0, a, true, p.BFloat16, p.BFloat16}.into(a)
}

// symmetric sets D to alpha*A·B + beta*C, all of them symmetric.
func (p *NewtonSchulzPlan) symmetric(d Matrix, alpha float32, a, b Matrix, beta float32, c Matrix) {
	product{a.operand(false), b.operand(false), alpha, beta, c, true, p.BFloat16, p.BFloat16}.into(d)
}

// full sets Y to B·X + a*X.
func (p *NewtonSchulzPlan) full(y, b, x Matrix, a float32) {
	product{b.operand(false), x.operand(false), 1, a, x, false, p.BFloat16, p.BFloat16}.into(y)
}

// addIdentity sets Q to (Z + 0) + a*I.
func (p *NewtonSchulzPlan) addIdentity(q, z Matrix, a float32) {
	for i := range q.Rows {
		for j := range q.Cols {
			x := z.Data.F32[i*z.Stride+j] + 0
			if i == j {
				x += a
			}
			p.set(q, i, j, x)
		}
	}
}

// scratch is the part of a workspace that is free.
type scratch struct{ free []float32 }

func (s *scratch) matrix(rows, cols int) Matrix {
	m := Matrix{Floats{F32: s.free[:rows*cols]}, rows, cols, cols}
	s.free = s.free[rows*cols:]
	return m
}
