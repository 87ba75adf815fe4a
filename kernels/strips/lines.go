package strips

import (
	"math"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// A matrix of one row or one column, a line, has no strips: X is a row of float32, its
// squares are numbers, and only the chain of X·Xᵀ, which one element after the other
// extends, takes long.

func (m *matrix) orthogonalizeLine() (finite bool) {
	m.x = m.x[:m.cols]
	for i, x := range m.src.Data.F32[:m.cols] {
		m.x[i] = float32(float32(x*m.first)*m.second) / m.divisor
	}
	m.roundLine()
	m.steps()
	largest := float32(0)
	for x := m.x; len(x) > 0; {
		n := min(callElements, len(x))
		largest = max(largest, m.Absmax(x[:n]))
		x = x[n:]
	}
	m.storeLine()
	return m.storesFinite(largest)
}

func (m *matrix) outerOfLine(a []float32) {
	sum := float32(0)
	for x := m.x; len(x) > 0; {
		n := min(callElements, len(x))
		sum = m.Line(x[:n], sum)
		x = x[n:]
	}
	a[0] = m.rounded(sum + 0)
}

// number is alpha*a·b + beta*c.
func (m *matrix) number(alpha, a, b, beta, c float32) float32 {
	x := float32(alpha * (m.operand(float32(m.operand(a)*m.operand(b))) + 0))
	if beta != 0 {
		x += float32(beta * c)
	}
	return m.rounded(x)
}

// fullOfLine multiplies X by a even if that is 0: where X is not finite, B·X is not either.
func (m *matrix) fullOfLine(b, a float32) {
	if !m.plan.BFloat16 {
		for i, x := range m.x {
			m.x[i] = float32(float32(b*x)+0) + float32(a*x)
		}
		return
	}
	b = m.operand(b)
	for i, x := range m.x {
		m.x[i] = float32(m.operand(float32(b*m.operand(x)))+0) + float32(a*x)
	}
	m.roundLine()
}

// operand is a number in a product, or the product of two alone, whose subnormals are zero
// in bf16.
func (m *matrix) operand(x float32) float32 {
	const exponent = 0x7f800000
	if m.plan.BFloat16 && math.Float32bits(x)&exponent == 0 {
		return 0
	}
	return x
}

// rounded is a number as matrices store it.
func (m *matrix) rounded(x float32) float32 {
	if m.plan.BFloat16 {
		return bf16.FromFloat32(x).Float32()
	}
	return x
}

func (m *matrix) roundLine() {
	if !m.plan.BFloat16 {
		return
	}
	for x := m.x; len(x) > 0; {
		n := min(callElements, len(x))
		narrow := words(halves(m.xt)[:n])
		m.Round(narrow, x[:n])
		m.Widen(x[:n], narrow)
		x = x[n:]
	}
}

func (m *matrix) storeLine() {
	rows, cols := m.dst.Rows, m.dst.Cols
	if m.dst.Stride == cols {
		rows, cols = 1, rows*cols
	}
	for i := range rows {
		for j := 0; j < cols; j += callElements {
			at, n := i*m.dst.Stride+j, min(callElements, cols-j)
			m.output(m.dst.Data.Slice(at, at+n), m.x[i*cols+j:][:n])
		}
	}
}

// storesFinite tells whether the largest magnitude of what is stored is finite there.
func (m *matrix) storesFinite(largest float32) bool {
	if m.dst.Data.BF16 != nil {
		largest = bf16.FromFloat32(largest).Float32()
	}
	return largest-largest == 0
}

func (m *matrix) output(dst reference.Floats, src []float32) {
	if dst.F32 != nil {
		copy(dst.F32, src)
	} else {
		m.Round(words(dst.BF16), src)
	}
}
