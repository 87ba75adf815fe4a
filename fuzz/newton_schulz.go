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

type newtonSchulzInput struct {
	dst, src kernels.Stack
	inPlace  bool
	plan     kernels.NewtonSchulzPlan
	threads  int
	matrices int // that the workspace is for
}

func decodeNewtonSchulz(_ *kernels.Op[kernels.NewtonSchulzFunc], in *input) *newtonSchulzInput {
	n := &newtonSchulzInput{plan: in.plan(kernels.PolynomialNames(), false)}
	rows, cols, count := in.shape()
	n.src = in.stack("src", rows, cols, count, in.chance(4))
	n.stacks(in)
	return n
}

func (in *input) shape() (rows, cols, count int) {
	some := sizes[:24] // not 0, and few operations
	return pick(in, some), pick(in, some), pick(in, []int{1, 1, 1, 2, 3})
}

// stacks makes a destination for the source.
func (n *newtonSchulzInput) stacks(in *input) {
	n.inPlace = in.chance(4)
	n.dst = n.src
	if !n.inPlace {
		n.dst = in.stack("dst", n.src.Rows, n.src.Cols, n.src.Count, in.chance(4))
	}
	n.threads, n.matrices = pick(in, []int{1, 2, 3}), pick(in, []int{1, 2, 3})
	in.note("in place %v, %+v, %d threads, work for %d", n.inPlace, n.plan, n.threads, n.matrices)
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

func (n *newtonSchulzInput) call(f kernels.NewtonSchulzFunc, mem memory) (dst, src kernels.Stack, poisoned int64) {
	dst, src = n.dst, n.src
	src.Data = placeFloats(mem, src.Data)
	if n.inPlace {
		dst = src
	} else {
		dst.Data = placeFloats(mem, dst.Data)
	}
	work := make([]float32, int64(n.matrices)*n.plan.WorkSize(src.Rows, src.Cols))
	for i := range work {
		work[i] = float32(math.NaN()) // what it holds does not matter
	}
	plan := n.plan
	return dst, src, int64(f(dst, src, &plan, place(mem, work), n.threads))
}

func (n *newtonSchulzInput) run(f kernels.NewtonSchulzFunc, mem memory) (o output) {
	dst, src, poisoned := n.call(f, mem)
	o.floats("dst", dst.Data)
	o.floats("src", src.Data)
	o.count("poisoned matrices", poisoned)
	return o
}

// newtonSchulzBF16Input has sources whose singular vectors are known, since results may
// differ in all but the directions of large singular values.
type newtonSchulzBF16Input struct {
	newtonSchulzInput
	matrices []singular
}

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
	rows, cols, count := in.shape()
	n.src = in.stack("src", rows, cols, count, in.chance(4))
	scale := in.scale()
	if n.plan.ParityNorm || n.plan.Eps != 0 || math.Abs(math.Log2(scale)) > 100 {
		scale = 1
	}
	for k := range count {
		n.matrices = append(n.matrices, in.fillMatrix(n.src.Matrix(k), scale))
	}
	n.stacks(in)
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
	for k, s := range n.matrices {
		name := fmt.Sprintf("matrix %d", k)
		if s.values == nil {
			o.floats(name, matrixOf(dst, k))
			continue
		}
		norm := math.Sqrt(dot(s.values, s.values))
		m, projections, bound := dst.Matrix(k), []float64{}, []float64{}
		for i, sigma := range s.values {
			if sigma > 1e-2*norm {
				projections = append(projections, project(m, s.u[i], s.v[i]))
				bound = append(bound, allowed)
			}
		}
		o.float64s(name, projections)
		o[len(o)-1].bound = bound
	}
	o.floats("dst between matrices", gaps(dst))
	if !n.inPlace {
		o.floats("src", src.Data)
	}
	o.count("poisoned matrices", poisoned)
	return o
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

// matrixOf copies the elements of matrix k.
func matrixOf(s kernels.Stack, k int) kernels.Floats {
	m, x := s.Matrix(k), []float32{}
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
