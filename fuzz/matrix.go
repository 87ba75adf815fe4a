package fuzz

import (
	"math"
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
)

var productTrials = slices.Concat(
	trials(decodeGemm, kernels.OpGemmFloat32, kernels.OpGemmBF16),
	trials(decodeSyrk, kernels.OpSyrkFloat32, kernels.OpSyrkBF16))

var sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 97, 0}

// matrix is a view whose rows may lie apart.
func (in *input) matrix(name string, rows, cols int, inBF16 bool) kernels.Matrix {
	stride := cols + pick(in, []int{0, 0, 0, 1, 7, 32})
	in.note("%s %dx%d stride %d", name, rows, cols, stride)
	in.large(rows, cols)
	n := 0
	if rows > 0 {
		n = (rows-1)*stride + cols
	}
	return kernels.Matrix{Data: floatsOf(in.elements(name, n), inBF16), Rows: rows, Cols: cols, Stride: stride}
}

// large notes matrices with more rows or columns than tiles of products have.
func (in *input) large(rows, cols int) {
	in.feature("more_than_32_rows", rows > 32)
	in.feature("more_than_32_columns", cols > 32)
	in.feature("more_than_32_rows_and_columns", rows > 32 && cols > 32)
	in.feature("more_than_128_columns", cols > 128)
}

// elements are numbers of ordinary size half of the time.
func (in *input) elements(name string, n int) []float32 {
	if in.chance(2) {
		return in.values(name, n, nil)
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(in.random.NormFloat64())
	}
	return x
}

func placeMatrix(mem memory, m kernels.Matrix) kernels.Matrix {
	m.Data = placeFloats(mem, m.Data)
	return m
}

type gemmInput struct {
	c, a, b        kernels.Matrix
	transA, transB bool
	alpha, beta    float32
	threads        int
}

func decodeGemm(op *kernels.Op[kernels.GemmFunc], in *input) *gemmInput {
	g := &gemmInput{transA: in.chance(2), transB: in.chance(2)}
	m, n, k := pick(in, sizes), pick(in, sizes), pick(in, append([]int{130, 257}, sizes...))
	inBF16 := op == kernels.OpGemmBF16
	g.a = in.transposed("A", m, k, g.transA, inBF16)
	g.b = in.transposed("B", k, n, g.transB, inBF16)
	g.c = in.matrix("C", m, n, inBF16 && in.chance(2))
	g.alpha, g.beta, g.threads = in.factors()
	g.threads = pick(in, []int{1, 2, 3})
	return g
}

func (in *input) transposed(name string, rows, cols int, transposed, inBF16 bool) kernels.Matrix {
	if transposed {
		return in.matrix(name+" transposed", cols, rows, inBF16)
	}
	return in.matrix(name, rows, cols, inBF16)
}

func (in *input) factors() (alpha, beta float32, threads int) {
	alpha = pick(in, []float32{1, 2.0315, -4.775, 0, float32(in.random.NormFloat64())})
	beta = pick(in, []float32{0, 1, -4.775, 3.4445, float32(in.random.NormFloat64())})
	threads = 1 + in.below(3)
	in.note("alpha=%v beta=%v threads=%d", alpha, beta, threads)
	return alpha, beta, threads
}

func (g *gemmInput) run(gemm kernels.GemmFunc, mem memory) (o output) {
	c, a, b := placeMatrix(mem, g.c), placeMatrix(mem, g.a), placeMatrix(mem, g.b)
	gemm(c, a, g.transA, b, g.transB, g.alpha, g.beta, g.threads)
	o.floats("C", c.Data)
	if a.Data.BF16 != nil {
		o[0].bound = g.bounds(c)
	}
	o.floats("A", a.Data)
	o.floats("B", b.Data)
	return o
}

// bounds are the contract's for products of bf16 operands, where c is the reference's.
func (g *gemmInput) bounds(c kernels.Matrix) []float64 {
	bound := make([]float64, c.Data.Len()) // 0 between the rows
	for i := range c.Rows {
		for j := range c.Cols {
			at := i*c.Stride + j
			bound[at] = g.bound(i, j, float64(c.Data.At(at)))
		}
	}
	return bound
}

const smallestNormal = 0x1p-126

func (g *gemmInput) bound(i, j int, result float64) float64 {
	depth := g.a.Cols
	if g.transA {
		depth = g.a.Rows
	}
	sum, flushed, special := 0.0, 0.0, false
	for k := range depth {
		a, b := math.Abs(at(g.a, i, k, g.transA)), math.Abs(at(g.b, k, j, g.transB))
		p := a * b
		if p-p != 0 {
			if isSubnormal(a) || isSubnormal(b) {
				return math.Inf(1) // infinite or, with the other one as zero, NaN
			}
			special = true
			continue
		}
		sum += p
		if isSubnormal(a) || isSubnormal(b) {
			flushed += p
		}
	}
	alpha, old := math.Abs(float64(g.alpha)), 0.0
	if g.beta != 0 {
		old = math.Abs(float64(g.beta * g.c.Data.At(i*g.c.Stride+j)))
	}
	switch {
	case sum > 0x1p126 || alpha*sum+old > 0x1p126:
		return math.Inf(1) // some orders overflow
	case special:
		return 0
	}
	bound := alpha*(float64(depth)*(0x1p-22*sum+2*smallestNormal)+flushed) + 0x1p-22*(alpha*sum+old) + smallestNormal
	if g.c.Data.BF16 != nil {
		bound += 0x1p-7 * (math.Abs(result) + alpha*flushed) // what is rounded lacks the flushed
	}
	return bound
}

func at(m kernels.Matrix, i, j int, transposed bool) float64 {
	if transposed {
		i, j = j, i
	}
	return float64(m.Data.At(i*m.Stride + j))
}

func isSubnormal(x float64) bool { return x != 0 && x < smallestNormal }

type syrkInput struct {
	c, a        kernels.Matrix
	alpha, beta float32
	threads     int
}

func decodeSyrk(op *kernels.Op[kernels.SyrkFunc], in *input) *syrkInput {
	n, k := pick(in, sizes), pick(in, append([]int{130, 257}, sizes...))
	inBF16 := op == kernels.OpSyrkBF16
	s := &syrkInput{a: in.matrix("A", n, k, inBF16), c: in.matrix("C", n, n, inBF16 && in.chance(2))}
	s.alpha, s.beta, s.threads = in.factors()
	s.threads = pick(in, []int{1, 2, 3})
	return s
}

func (s *syrkInput) run(syrk kernels.SyrkFunc, mem memory) (o output) {
	c, a := placeMatrix(mem, s.c), placeMatrix(mem, s.a)
	syrk(c, a, s.alpha, s.beta, s.threads)
	o.floats("C", c.Data)
	if a.Data.BF16 != nil {
		o[0].bound = s.bounds(c)
	}
	o.floats("A", a.Data)
	return o
}

// bounds are those of the elements on and above the diagonal, mirrored.
func (s *syrkInput) bounds(c kernels.Matrix) []float64 {
	g := gemmInput{c: s.c, a: s.a, b: s.a, transB: true, alpha: s.alpha, beta: s.beta}
	bound := g.bounds(c)
	for i := range c.Rows {
		for j := range i {
			bound[i*c.Stride+j] = bound[j*c.Stride+i]
		}
	}
	return bound
}
