package fuzz

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
)

var newtonSchulzTrials = slices.Concat(
	trials(decodeNewtonSchulz, kernels.OpNewtonSchulzFloat32),
	trials(decodeNewtonSchulzBF16, kernels.OpNewtonSchulzBF16))

// newtonSchulzInput is some stacks of any shapes, mostly one.
type newtonSchulzInput struct {
	groups   []stacksInput
	plan     kernels.NewtonSchulzPlan
	threads  int
	matrices int // that the workspace is for
}

type stacksInput struct {
	dst, src kernels.Stack
	inPlace  bool
	singular []singular // of the matrices, if they are known
}

func decodeNewtonSchulz(_ *kernels.Op[kernels.NewtonSchulzFunc], in *input) *newtonSchulzInput {
	n := &newtonSchulzInput{plan: in.plan(kernels.PolynomialNames(), false)}
	n.decode(in, func() (g stacksInput) {
		rows, cols, count := in.shape()
		g.src = in.stack("src", rows, cols, count, in.chance(4))
		return g
	})
	return n
}

func (in *input) shape() (rows, cols, count int) {
	some := sizes[:24] // not 0, and few operations
	return pick(in, some), pick(in, some), pick(in, []int{1, 1, 1, 2, 3})
}

// decode makes groups of sources, with destinations.
func (n *newtonSchulzInput) decode(in *input, source func() stacksInput) {
	n.add(in, source())
	n.threads, n.matrices = pick(in, []int{1, 2, 3}), pick(in, []int{1, 2, 3})
	in.note("%+v, %d threads, work for %d", n.plan, n.threads, n.matrices)
	for range pick(in, []int{0, 0, 0, 1, 2, 4}) {
		n.add(in, source())
	}
	in.feature("several_groups", len(n.groups) > 1)
}

func (n *newtonSchulzInput) add(in *input, g stacksInput) {
	g.inPlace = in.chance(4)
	g.dst = g.src
	if !g.inPlace {
		g.dst = in.stack("dst", g.src.Rows, g.src.Cols, g.src.Count, in.chance(4))
	}
	in.note("in place %v", g.inPlace)
	n.groups = append(n.groups, g)
}

// stack has rows and matrices that may lie apart.
func (in *input) stack(name string, rows, cols, count int, inBF16 bool) kernels.Stack {
	s := kernels.Stack{Count: count, Rows: rows, Cols: cols, Stride: cols + pick(in, []int{0, 0, 1, 32})}
	s.Step = rows*s.Stride + pick(in, []int{0, 0, 5})
	in.large(rows, cols)
	in.note("%s %d of %dx%d stride %d step %d", name, count, rows, cols, s.Stride, s.Step)
	s.Data = floatsOf(in.elements(name, (count-1)*s.Step+(rows-1)*s.Stride+cols), inBF16)
	return s
}

func (in *input) plan(names []string, bfloat16 bool) kernels.NewtonSchulzPlan {
	triples, safety, err := kernels.Polynomials(pick(in, names), nil, bfloat16)
	if err != nil {
		panic(err) // the names are those of the presets, each with its own number of steps
	}
	parityNorm := in.chance(4)
	if in.chance(2) {
		triples = triples[:in.below(len(triples)+1)]
	}
	p := *kernels.PlanNewtonSchulz(triples, safety)
	p.BFloat16, p.ParityNorm = bfloat16, parityNorm
	if in.chance(3) {
		p.Eps, p.EpsFloor = 1e-7, in.chance(2)
	}
	p.Gram = in.chance(3)
	p.GramRestart = p.Gram && (bfloat16 || in.chance(2))
	return p
}

func (n *newtonSchulzInput) call(f kernels.NewtonSchulzFunc, mem memory) (dst, src []kernels.Stack, poisoned int64) {
	size := int64(0)
	for _, g := range n.groups {
		d, s := g.dst, g.src
		s.Data = placeFloats(mem, s.Data)
		if g.inPlace {
			d = s
		} else {
			d.Data = placeFloats(mem, d.Data)
		}
		dst, src = append(dst, d), append(src, s)
		size = max(size, n.plan.WorkSize(s.Rows, s.Cols))
	}
	work := make([]float32, int64(n.matrices)*size)
	for i := range work {
		work[i] = float32(math.NaN()) // what it holds does not matter
	}
	plan := n.plan
	return dst, src, int64(f(dst, src, &plan, place(mem, work), n.threads))
}

func (n *newtonSchulzInput) run(f kernels.NewtonSchulzFunc, mem memory) (o output) {
	dst, src, poisoned := n.call(f, mem)
	for i := range dst {
		o.floats("dst", dst[i].Data)
		o.floats("src", src[i].Data)
	}
	o.count("poisoned matrices", poisoned)
	return o
}

// newtonSchulzBF16Input has sources whose singular vectors are known, since results may
// differ in all but the directions of large singular values.
type newtonSchulzBF16Input struct{ newtonSchulzInput }

// singular are singular vectors of a matrix and its values, none for one that is zero or
// has a NaN.
type singular struct {
	u, v   [][]float64
	values []float64
}

func decodeNewtonSchulzBF16(_ *kernels.Op[kernels.NewtonSchulzFunc], in *input) *newtonSchulzBF16Input {
	n := &newtonSchulzBF16Input{}
	// A value that bf16 rounds up beyond 1.003 changes its sign in cubic5.
	names := slices.DeleteFunc(kernels.PolynomialNames(), func(name string) bool { return name == "cubic5" })
	n.plan = in.plan(names, true)
	if n.plan.Safety > 1 { // such tables diverge just above 1, where Gram's roundings lead
		n.plan.Gram, n.plan.GramRestart = false, false
	}
	n.decode(in, func() (g stacksInput) {
		rows, cols, count := in.shape()
		g.src = in.stack("src", rows, cols, count, in.chance(4))
		scale := in.scale()
		if n.plan.ParityNorm || n.plan.Eps != 0 || math.Abs(math.Log2(scale)) > 100 {
			scale = 1
		}
		for k := range count {
			g.singular = append(g.singular, in.fillMatrix(g.src.Matrix(k), scale))
		}
		return g
	})
	return n
}

func (in *input) fillMatrix(m kernels.Matrix, scale float64) (s singular) {
	value := func(int, int) float64 { return 0 }
	switch kind := in.below(8); kind {
	case 0:
		in.note("zeros")
	case 1:
		in.note("a NaN")
		value = func(i, j int) float64 { return math.NaN() }
	default:
		rank := min(m.Rows, m.Cols)
		s = singular{in.orthonormal(rank, m.Rows), in.orthonormal(rank, m.Cols), make([]float64, rank)}
		for i := range s.values {
			s.values[i] = math.Pow(20, -in.random.Float64())
		}
		value = func(i, j int) (sum float64) {
			for k, sigma := range s.values {
				sum += s.u[k][i] * sigma * s.v[k][j]
			}
			return sum * scale
		}
	}
	for i := range m.Rows {
		for j := range m.Cols {
			x := floatsOf([]float32{float32(value(i, j))}, m.Data.BF16 != nil)
			if at := i*m.Stride + j; m.Data.BF16 != nil {
				m.Data.BF16[at] = x.BF16[0]
			} else {
				m.Data.F32[at] = x.F32[0]
			}
		}
	}
	return s
}

// orthonormal are count vectors of length n.
func (in *input) orthonormal(count, n int) [][]float64 {
	vectors := make([][]float64, count)
	for i := range vectors {
		v := make([]float64, n)
		for j := range v {
			v[j] = in.random.NormFloat64()
		}
		for range 2 { // once loses what the vectors had in common
			for _, u := range vectors[:i] {
				d := dot(u, v)
				for j := range v {
					v[j] -= d * u[j]
				}
			}
		}
		norm := math.Sqrt(dot(v, v))
		for j := range v {
			v[j] /= norm
		}
		vectors[i] = v
	}
	return vectors
}

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// How far apart implementations may be in the direction of a singular value above 1e-2
// of the norm. Each is within half of it from the polynomials' value, in Gram form
// within all of it at worst.
const (
	standardBF16Bound = 0.1
	gramBF16Bound     = 0.5
)

func (n *newtonSchulzBF16Input) run(f kernels.NewtonSchulzFunc, mem memory) (o output) {
	dst, src, poisoned := n.call(f, mem)
	allowed := standardBF16Bound
	if n.plan.Gram {
		allowed = gramBF16Bound
	}
	for i, g := range n.groups {
		for k, s := range g.singular {
			o.directions(fmt.Sprintf("group %d, matrix %d", i, k), dst[i].Matrix(k), s, allowed)
		}
		o.floats("dst between matrices", gaps(dst[i]))
		if !g.inPlace {
			o.floats("src", src[i].Data)
		}
	}
	o.count("poisoned matrices", poisoned)
	return o
}

// directions are what a matrix does to the singular vectors of large singular values.
func (o *output) directions(name string, m kernels.Matrix, s singular, allowed float64) {
	if s.values == nil {
		o.floats(name, elementsOf(m))
		return
	}
	norm := math.Sqrt(dot(s.values, s.values))
	projections, bound := []float64{}, []float64{}
	for i, sigma := range s.values {
		if sigma > 1e-2*norm {
			projections = append(projections, project(m, s.u[i], s.v[i]))
			bound = append(bound, allowed)
		}
	}
	o.float64s(name, projections)
	(*o)[len(*o)-1].bound = bound
}

// project is uᵀ·M·v.
func project(m kernels.Matrix, u, v []float64) (sum float64) {
	for i, x := range u {
		for j, y := range v {
			sum += x * at(m, i, j, false) * y
		}
	}
	return sum
}

// elementsOf copies the elements of a matrix.
func elementsOf(m kernels.Matrix) kernels.Floats {
	x := []float32{}
	for i := range m.Rows {
		for j := range m.Cols {
			x = append(x, m.Data.At(i*m.Stride+j))
		}
	}
	return kernels.Float32s(x)
}

// gaps copies what belongs to no matrix.
func gaps(s kernels.Stack) kernels.Floats {
	x := []float32{}
	for i := range s.Data.Len() {
		row, col := i%s.Step/s.Stride, i%s.Step%s.Stride
		if row >= s.Rows || col >= s.Cols {
			x = append(x, s.Data.At(i))
		}
	}
	return kernels.Float32s(x)
}
