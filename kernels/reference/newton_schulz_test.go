package reference

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"

	"github.com/lowbit-go/lowbit/internal/golden"
)

// schedule is the polynomials of some steps, the safety beside the norm, and how far
// results may be from the polynomial: the steeper it is near 0, the more it magnifies the
// rounding of X.
type schedule struct {
	triples    [][3]float32
	safety     float64
	fp32, bf16 float64
}

var jordan = schedule{slices.Repeat([][3]float32{jordanStep}, 5), 1, 3e-6, 5e-2}

var jordanStep = [3]float32{3.4445, -4.7750, 2.0315}

var schedules = map[string]schedule{
	"jordan": jordan,
	"polar-express-1.02": {[][3]float32{
		{8.156554524902461, -22.48329292557795, 15.878769915207462},
		{4.042929935166739, -2.808917465908714, 0.5000178451051316},
		{3.8916678022926607, -2.772484153217685, 0.5060648178503393},
		{3.285753657755655, -2.3681294933425376, 0.46449024233003106},
		{2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
	}, 1.02, 1e-5, 1e-1},
	"cubic5": {[][3]float32{
		{3.3656576, -3.3420992, 0},
		{2.5744352, -1.4957376, 0},
		{2.5368962, -1.4312570, 0},
		{2.4418906, -1.2764040, 0},
		{2.2230472, -0.9630650, 0},
	}, 1, 3e-6, 1e-1},
}

func (s schedule) plan() NewtonSchulzPlan {
	return NewtonSchulzPlan{Steps: s.triples, Safety: s.safety}
}

// at is the schedule's polynomial of a singular value.
func (s schedule) at(x float64) float64 {
	for _, t := range s.triples {
		a, b, c := float64(t[0]), float64(t[1]), float64(t[2])
		x *= a + x*x*(b+x*x*c)
	}
	return x
}

// variants are the ways to take the same steps.
func (s schedule) variants() map[string]NewtonSchulzPlan {
	fp32, gram, gramRestart := s.plan(), s.plan(), s.plan()
	gram.Gram = true
	gramRestart.Gram, gramRestart.GramRestart = true, true
	bf16, bf16Gram := fp32, gramRestart
	bf16.BFloat16, bf16Gram.BFloat16 = true, true
	return map[string]NewtonSchulzPlan{"fp32": fp32, "fp32 gram": gram, "fp32 gram restart": gramRestart, "bf16": bf16, "bf16 gram restart": bf16Gram}
}

func stack(matrices ...Matrix) Stack {
	m := matrices[0]
	s := Stack{newFloats(0, m.Data.BF16 != nil), len(matrices), m.Rows, m.Cols, m.Stride, m.Rows * m.Stride}
	for _, m := range matrices {
		s.Data.F32 = append(s.Data.F32, m.Data.F32...)
		s.Data.BF16 = append(s.Data.BF16, m.Data.BF16...)
	}
	return s
}

// run returns the results in a new stack like src, and how many matrices were not finite.
func run(src Stack, plan NewtonSchulzPlan) (Stack, int) {
	dst := src
	dst.Data = newFloats(src.Data.Len(), src.Data.BF16 != nil)
	for i := range dst.Data.Len() {
		dst.Data.set(i, notANumber, nil)
	}
	work := make([]float32, plan.WorkSize(src.Rows, src.Cols))
	for i := range work {
		work[i] = notANumber
	}
	poisoned := NewtonSchulz(dst, src, &plan, work)
	return dst, poisoned
}

func orthogonalize(t *testing.T, m Matrix, plan NewtonSchulzPlan) Matrix {
	t.Helper()
	dst, poisoned := run(stack(m), plan)
	require.Zero(t, poisoned)
	return dst.Matrix(0)
}

// plainNewtonSchulz is the contract's paragraph on a dense fp32 matrix, without tiles, in
// fp32 or bf16.
func plainNewtonSchulz(m Matrix, plan NewtonSchulzPlan) Matrix {
	if m.Rows > m.Cols {
		return plainNewtonSchulz(m.transpose(), plan).transpose()
	}
	round := func(m Matrix) Matrix {
		for i, x := range m.Data.F32 {
			if plan.BFloat16 {
				m.Data.F32[i] = roundBF16(x)
			}
		}
		return m
	}
	full := func(alpha float32, a, b Matrix, beta float32, c Matrix) Matrix {
		d := Matrix{newFloats(a.Rows*b.Cols, false), a.Rows, b.Cols, b.Cols}
		if beta != 0 {
			d = c.clone()
		}
		plainGemm(d, a, b, alpha, beta, plan.BFloat16)
		return round(d)
	}
	symmetric := func(alpha float32, a, b Matrix, beta float32, c Matrix) Matrix {
		d := full(alpha, a, b, beta, c)
		for i := range d.Rows {
			for j := range i {
				d.Data.F32[i*d.Stride+j] = d.at(j, i)
			}
		}
		return d
	}
	norm := math.Sqrt(SumSquares(m.Data))
	e := int(math.Floor(math.Log2(norm)))
	x := m.clone()
	for i, v := range m.Data.F32 {
		x.Data.F32[i] = float32(math.Ldexp(float64(v), -e)) / float32(math.Ldexp(plan.Safety*norm, -e))
	}
	round(x)
	none := Matrix{}
	if !plan.Gram || m.Rows == m.Cols {
		for _, c := range plan.Steps {
			a := symmetric(1, x, x.transpose(), 0, none)
			b := symmetric(c[2], a, a, c[1], a)
			x = full(1, b, x, c[0], x)
		}
		return x
	}
	var r, q Matrix
	identity := Matrix{newFloats(m.Rows*m.Rows, false), m.Rows, m.Rows, m.Rows}
	for i := range m.Rows {
		identity.Data.F32[i*m.Rows+i] = 1
	}
	for i, c := range plan.Steps {
		if i == 0 || plan.GramRestart && i == 2 {
			if i == 2 {
				x = full(1, q, x, 0, none)
			}
			r, q = symmetric(1, x, x.transpose(), 0, none), identity
		}
		z := symmetric(c[2], r, r, c[1], r)
		q = symmetric(1, q, z, c[0], q)
		rz := symmetric(1, r, z, c[0], r)
		r = symmetric(1, z, rz, c[0], rz)
	}
	return full(1, q, x, 0, none)
}

func TestNewtonSchulzIsThePlainLoop(t *testing.T) {
	var shapes [][2]int
	for n := 1; n <= 33; n++ {
		shapes = append(shapes, [2]int{n, 34 - n}, [2]int{n, n})
	}
	shapes = append(shapes, [2]int{4, 8}, [2]int{8, 4}, [2]int{40, 70}, [2]int{65, 33})
	for name, plan := range jordan.variants() {
		for _, s := range shapes {
			m := gaussian(s[0], s[1], 0, false, uint64(100*s[0]+s[1]))
			if plan.Gram && s[0] > s[1] {
				continue // the sum of squares of the transpose may differ in its last bit
			}
			requireSame(t, plainNewtonSchulz(m, plan), orthogonalize(t, m, plan), name, s)
		}
	}
}

// svdError is the largest |uᵀYv - p(sigma)| over the directions whose singular value is
// above 1e-2 after the division.
func svdError(t *testing.T, x, y Matrix, s schedule) float64 {
	t.Helper()
	dense := func(m Matrix) *mat.Dense {
		d := mat.NewDense(m.Rows, m.Cols, nil)
		for i := range m.Rows {
			for j := range m.Cols {
				d.Set(i, j, float64(m.at(i, j)))
			}
		}
		return d
	}
	var svd mat.SVD
	var u, v mat.Dense
	require.True(t, svd.Factorize(dense(x), mat.SVDThin))
	svd.UTo(&u)
	svd.VTo(&v)
	values := svd.Values(nil)
	norm := 0.0
	for _, sigma := range values {
		norm = math.Hypot(norm, sigma)
	}
	worst, result := 0.0, dense(y)
	for i, sigma := range values {
		if sigma /= norm * s.safety; sigma > 1e-2 {
			worst = max(worst, math.Abs(mat.Inner(u.ColView(i), result, v.ColView(i))-s.at(sigma)))
		}
	}
	return worst
}

func goldenMatrix(t *testing.T, name string) Matrix {
	set := golden.Open(t, "polar_float64")
	shape := set.Shape("x." + name)
	return Matrix{Floats{F32: set.F32("x." + name)}, int(shape[0]), int(shape[1]), int(shape[1])}
}

var goldenMatrices = []string{"diag", "gauss_sq", "gauss_tall", "gauss_wide", "logspace", "orth", "rank3", "tiny"}

func TestNewtonSchulzAgainstSVD(t *testing.T) {
	for name, s := range schedules {
		for _, matrix := range goldenMatrices {
			m := goldenMatrix(t, matrix)
			plan := s.plan()
			require.LessOrEqual(t, svdError(t, m, orthogonalize(t, m, plan), s), s.fp32, "%s %s", name, matrix)
			plan.BFloat16 = true
			require.LessOrEqual(t, svdError(t, m, orthogonalize(t, m, plan), s), s.bf16, "%s %s in bf16", name, matrix)
		}
	}
}

// Steps that converge to 1 give the float64 polar factor itself.
func TestNewtonSchulzConvergesToThePolarFactor(t *testing.T) {
	deepseek := NewtonSchulzPlan{Safety: 1, Steps: append(slices.Repeat([][3]float32{jordanStep}, 8), [3]float32{2, -1.5, 0.5}, [3]float32{2, -1.5, 0.5})}
	set := golden.Open(t, "polar_float64")
	for _, name := range []string{"diag", "gauss_sq", "gauss_tall", "gauss_wide", "orth", "tiny"} {
		y := orthogonalize(t, goldenMatrix(t, name), deepseek)
		for i, want := range set.F64("polar." + name) {
			require.InDelta(t, want, float64(y.Data.F32[i]), 1.5e-3, name)
		}
	}
}

func maxDifference(a, b Matrix) float64 {
	worst := 0.0
	for i := range a.Rows {
		for j := range a.Cols {
			worst = max(worst, math.Abs(float64(a.at(i, j)-b.at(i, j))))
		}
	}
	return worst
}

func TestGramFormAgainstStandard(t *testing.T) {
	v := jordan.variants()
	condition := gaussian(24, 96, 0, false, 5)
	for i := range 24 {
		for j := range 96 {
			condition.Data.F32[i*96+j] *= float32(math.Pow(1e-4, float64(i)/23))
		}
	}
	for _, c := range []struct {
		name         string
		m            Matrix
		gram, std    string
		worstAllowed float64
	}{
		{"wide", gaussian(24, 96, 0, false, 5), "fp32 gram", "fp32", 1e-6},
		{"tall", goldenMatrix(t, "gauss_tall"), "fp32 gram", "fp32", 1e-6},
		{"condition 1e4", condition, "fp32 gram", "fp32", 2e-3},
		{"rank 3", goldenMatrix(t, "rank3"), "fp32 gram", "fp32", 2e-3},
		{"wide", gaussian(24, 96, 0, false, 5), "fp32 gram restart", "fp32", 1e-6},
		{"condition 1e4", condition, "fp32 gram restart", "fp32", 2e-5},
		{"rank 3", goldenMatrix(t, "rank3"), "fp32 gram restart", "fp32", 2e-5},
		{"wide", gaussian(24, 96, 0, false, 5), "bf16 gram restart", "bf16", 2e-2},
		{"tall", goldenMatrix(t, "gauss_tall"), "bf16 gram restart", "bf16", 2e-2},
		{"condition 1e4", condition, "bf16 gram restart", "bf16", 0.5},
		{"rank 3", goldenMatrix(t, "rank3"), "bf16 gram restart", "bf16", 0.5},
	} {
		got, want := orthogonalize(t, c.m, v[c.gram]), orthogonalize(t, c.m, v[c.std])
		require.LessOrEqual(t, maxDifference(got, want), c.worstAllowed, c.name+" "+c.gram)
	}
	square := gaussian(20, 20, 0, false, 6)
	requireSame(t, orthogonalize(t, square, v["fp32"]), orthogonalize(t, square, v["fp32 gram"]))
}

// Why bf16 is always restarted.
func TestGramFormInBF16ExplodesWithoutRestart(t *testing.T) {
	plan := jordan.variants()["bf16 gram restart"]
	plan.GramRestart = false
	m := goldenMatrix(t, "rank3")
	y, _ := run(stack(m), plan)
	require.Greater(t, maxDifference(y.Matrix(0), orthogonalize(t, m, jordan.plan())), 10.0)
}

func scaled(m Matrix, factor float32) Matrix {
	m = m.clone()
	for i := range m.Data.Len() {
		m.Data.set(i, m.Data.At(i)*factor, nil)
	}
	return m
}

func TestNewtonSchulzIgnoresPowersOfTwo(t *testing.T) {
	m := gaussian(12, 20, 0, false, 8)
	for i := range m.Data.F32 { // magnitudes in [1, 2), so that all scales are exact
		bits := math.Float32bits(m.Data.F32[i])
		m.Data.F32[i] = math.Float32frombits(bits&0x807fffff | 0x3f800000)
	}
	for name, plan := range jordan.variants() {
		want := orthogonalize(t, m, plan)
		for e := -126; e <= 127; e++ {
			requireSame(t, want, orthogonalize(t, scaled(m, float32(math.Ldexp(1, e))), plan), name, e)
		}
	}
}

// An eps that is added or a floor would shrink the small ones.
func TestNewtonSchulzScales(t *testing.T) {
	m := gaussian(64, 64, 0, false, 9)
	want := orthogonalize(t, m, jordan.plan())
	for _, factor := range []float32{1e-6, 1e-8, 1e-10, 1e-30, 1e37, 7e37} {
		require.LessOrEqual(t, maxDifference(want, orthogonalize(t, scaled(m, factor), jordan.plan())), 1e-4, factor)
	}
	m.Data.F32[0] = 1 // the rest is subnormal or near it
	require.LessOrEqual(t, svdError(t, scaled(m, 1e-38), orthogonalize(t, scaled(m, 1e-38), jordan.plan()), jordan), 3e-6)
	require.LessOrEqual(t, svdError(t, scaled(m, 1e-40), orthogonalize(t, scaled(m, 1e-40), jordan.plan()), jordan), 3e-6)
}

func TestNewtonSchulzOfKnownMatrices(t *testing.T) {
	identity := func(n int, diagonal func(i int) float32) Matrix {
		m := Matrix{newFloats(n*n, false), n, n, n}
		for i := range n {
			m.Data.F32[i*n+i] = diagonal(i)
		}
		return m
	}
	outer := func(rows, cols int) Matrix {
		m := Matrix{newFloats(rows*cols, false), rows, cols, cols}
		for i := range rows {
			for j := range cols {
				m.Data.F32[i*cols+j] = float32(i%3-1) * float32(j%5-2)
			}
		}
		return m
	}
	repeated := gaussian(6, 9, 0, false, 1)
	for i := 1; i < 6; i += 2 {
		copy(repeated.Data.F32[i*9:(i+1)*9], repeated.Data.F32[:9])
	}
	for name, m := range map[string]Matrix{
		"1x1":           fromRows([]float32{-3}),
		"one row":       gaussian(1, 7, 0, false, 1),
		"one column":    gaussian(7, 1, 0, false, 1),
		"4x4":           gaussian(4, 4, 0, false, 1),
		"4x8":           gaussian(4, 8, 0, false, 1),
		"8x4":           gaussian(8, 4, 0, false, 1),
		"orthogonal":    goldenMatrix(t, "orth"),
		"identity":      identity(9, func(i int) float32 { return 1 }),
		"signs":         identity(9, func(i int) float32 { return float32(1 - i%2*2) }),
		"diagonal":      identity(9, func(i int) float32 { return float32(i) - 4.5 }),
		"rank 1":        outer(7, 11),
		"rank 3":        goldenMatrix(t, "rank3"),
		"repeated rows": repeated,
	} {
		for variant, plan := range jordan.variants() {
			bound := map[[2]bool]float64{ // the Gram form's are those of a low rank
				{false, false}: jordan.fp32, {false, true}: 2e-4, {true, false}: jordan.bf16, {true, true}: 0.5,
			}[[2]bool{plan.BFloat16, plan.Gram}]
			require.LessOrEqual(t, svdError(t, m, orthogonalize(t, m, plan), jordan), bound, "%s %s", name, variant)
		}
	}
	// The polar factor of a diagonal is its signs, never their opposite.
	y := orthogonalize(t, identity(9, func(i int) float32 { return float32(i) - 4.5 }), jordan.plan())
	for i := range 9 {
		require.InDelta(t, math.Copysign(0.9, float64(i)-4.5), float64(y.at(i, i)), 0.4)
	}
}

func TestNewtonSchulzTallIsWideTransposed(t *testing.T) {
	for name, plan := range jordan.variants() {
		for _, s := range [][2]int{{1, 7}, {4, 8}, {17, 40}, {33, 34}} {
			m := gaussian(s[0], s[1], 0, false, 11)
			requireSame(t, orthogonalize(t, m, plan), orthogonalize(t, m.transpose(), plan).transpose(), name, s)
		}
	}
}

func TestNewtonSchulzOnStridedViews(t *testing.T) {
	for name, plan := range jordan.variants() {
		for _, s := range [][2]int{{5, 9}, {9, 5}, {35, 33}} {
			for _, bfloat16 := range []bool{false, true} {
				view := gaussian(s[0], s[1], 3, bfloat16, 12)
				dense := view.transpose().transpose()
				requireSame(t, orthogonalize(t, dense, plan), orthogonalize(t, view, plan), name, s)
			}
		}
	}
}

func TestNewtonSchulzInPlace(t *testing.T) {
	for name, plan := range jordan.variants() {
		for _, bfloat16 := range []bool{false, true} {
			src := stack(gaussian(9, 14, 0, bfloat16, 1), gaussian(9, 14, 0, bfloat16, 2))
			before := src.Matrix(0).clone()
			want, _ := run(src, plan)
			requireSame(t, before.clone(), Matrix{src.Data, 9, 14, 14}, "the input is untouched")
			require.Zero(t, NewtonSchulz(src, src, &plan, make([]float32, plan.WorkSize(9, 14))))
			for k := range 2 {
				requireSame(t, want.Matrix(k), src.Matrix(k), name, k)
			}
		}
	}
}

// A batch is its matrices one by one, whatever stands beside them.
func TestNewtonSchulzBatches(t *testing.T) {
	poison := func(x float32) Matrix {
		m := gaussian(6, 10, 0, false, 3)
		m.Data.F32[17] = x
		return m
	}
	zero := scaled(gaussian(6, 10, 0, false, 4), 0)
	good := []Matrix{gaussian(6, 10, 0, false, 1), gaussian(6, 10, 0, false, 2)}
	for name, plan := range jordan.variants() {
		for _, odd := range []struct {
			m        Matrix
			poisoned int
			want     float32
		}{
			{zero, 0, 0},
			{scaled(zero, -1), 0, 0},
			{poison(notANumber), 1, notANumber},
			{poison(float32(math.Inf(1))), 1, notANumber},
			{poison(float32(math.Inf(-1))), 1, notANumber},
		} {
			got, poisoned := run(stack(good[0], odd.m, good[1]), plan)
			require.Equal(t, odd.poisoned, poisoned)
			requireSame(t, orthogonalize(t, good[0], plan), Matrix{got.Data.Slice(0, 60), 6, 10, 10}, name)
			requireSame(t, orthogonalize(t, good[1], plan), Matrix{got.Data.Slice(120, 180), 6, 10, 10}, name)
			for _, x := range got.Data.F32[60:120] {
				require.Equal(t, bits(odd.want), bits(x), name)
			}
		}
	}
}

func TestNewtonSchulzPoisonsAResultThatOverflows(t *testing.T) {
	plan := NewtonSchulzPlan{Safety: 1, Steps: [][3]float32{{1e30, 0, 0}, {1e30, 0, 0}}}
	got, poisoned := run(stack(gaussian(3, 4, 0, false, 1)), plan)
	require.Equal(t, 1, poisoned)
	for _, x := range got.Data.F32 {
		require.Equal(t, bits(notANumber), bits(x))
	}
}

func TestNewtonSchulzOfNothing(t *testing.T) {
	plan := jordan.plan()
	for _, s := range []Stack{{}, {Count: 3, Cols: 4, Stride: 4}, {Count: 2, Rows: 4}} {
		require.Zero(t, NewtonSchulz(s, s, &plan, nil))
	}
}

// No step leaves the input, divided by its norm as each published system does it.
func TestNewtonSchulzNormalization(t *testing.T) {
	bf := func(x float64) float64 { return float64(roundBF16(float32(x))) }
	m := fromRows([]float32{3.1, 0, 0}, []float32{0, -4.2, 0.015})
	small := scaled(m, 1e-7)
	norm := func(m Matrix) float64 { return math.Sqrt(SumSquares(m.Data)) }
	for _, c := range []struct {
		name    string
		m       Matrix
		plan    NewtonSchulzPlan
		divisor float64
		bf16    bool // input and result
	}{
		{"contract", m, NewtonSchulzPlan{Safety: 1}, norm(m), false},
		{"contract, tiny", small, NewtonSchulzPlan{Safety: 1.01}, 1.01 * norm(small), false},
		{"optax", small, NewtonSchulzPlan{Safety: 1, Eps: 1e-8}, norm(small) + 1e-8, false},
		{"dion", small, NewtonSchulzPlan{Safety: 1.02, Eps: 1e-6}, 1.02*norm(small) + 1e-6, false},
		{"floor", small, NewtonSchulzPlan{Safety: 1, Eps: 1e-6, EpsFloor: true}, 1e-6, false},
		{"floor not reached", m, NewtonSchulzPlan{Safety: 1, Eps: 1e-6, EpsFloor: true}, norm(m), false},
		{"jordan", small, NewtonSchulzPlan{Safety: 1, Eps: 1e-7, ParityNorm: true, BFloat16: true}, bf(bf(norm(small)) + 1e-7), true},
		{"torch", m, NewtonSchulzPlan{Safety: 1, Eps: 1e-7, EpsFloor: true, ParityNorm: true, BFloat16: true}, bf(norm(m)), true},
		{"torch, tiny", scaled(m, 1e-9), NewtonSchulzPlan{Safety: 1, Eps: 1e-7, EpsFloor: true, ParityNorm: true, BFloat16: true}, bf(1e-7), true},
	} {
		y := orthogonalize(t, c.m, c.plan)
		for i, x := range c.m.Data.F32 {
			if c.bf16 {
				require.Equal(t, roundBF16(roundBF16(x)/float32(c.divisor)), y.Data.F32[i], c.name)
				continue
			}
			require.InDelta(t, float64(x)/c.divisor, float64(y.Data.F32[i]), 1e-7, c.name)
		}
	}
}

// A step of torch.optim.Muon with lr 0.02, weight decay 0.1 and nesterov momentum 0.95:
// p*(1 - lr*wd) - lr*scale*O(u). It ran on VDPBF16PS, so the order of GemmPairs gives its
// bits; what is left is the rounding of the weights.
func TestNewtonSchulzAgainstTorch(t *testing.T) {
	const lr, decay, momentum = 0.02, 0.1, 0.95
	plan := jordan.plan()
	plan.Eps, plan.EpsFloor, plan.ParityNorm, plan.BFloat16 = 1e-7, true, true, true
	contract := jordan.plan()
	set := golden.Open(t, "torch_muon_original")
	for _, name := range []string{"w", "tall"} {
		shape := set.Shape("p0." + name)
		rows, cols := int(shape[0]), int(shape[1])
		scale := math.Sqrt(max(1, float64(rows)/float64(cols)))
		for step := 1; set.Has(fmt.Sprintf("p%d.%s", step, name)); step++ {
			tensor := func(kind string, step int) []float32 { return set.F32(fmt.Sprintf("%s%d.%s", kind, step, name)) }
			before, after, gradient, buffer := tensor("p", step-1), tensor("p", step), tensor("g", step), tensor("buf", step)
			u := Matrix{newFloats(rows*cols, false), rows, cols, cols}
			for i := range u.Data.F32 {
				u.Data.F32[i] = buffer[i] - (buffer[i]-gradient[i])*(1-momentum)
			}
			for bound, plan := range map[float64]NewtonSchulzPlan{1e-4: plan, 0.1: contract} {
				worst, largest := 0.0, 0.0
				for i, o := range orthogonalize(t, u, plan).Data.F32 {
					got := float64(before[i])*(1-lr*decay) - lr*scale*float64(o)
					worst = max(worst, math.Abs(got-float64(after[i])))
					largest = max(largest, math.Abs(float64(after[i]-before[i])))
				}
				require.LessOrEqual(t, worst, bound*largest, "%s step %d", name, step)
			}
		}
	}
}

// The bf16 norm of jordan, moonlight and torch overflows where the contract's does not.
func TestNewtonSchulzParityNormOverflows(t *testing.T) {
	m := fromRows([]float32{3e38, 3e38})
	orthogonalize(t, m, NewtonSchulzPlan{Safety: 1})
	_, poisoned := run(stack(m), NewtonSchulzPlan{Safety: 1, ParityNorm: true})
	require.Equal(t, 1, poisoned)
}

func TestNewtonSchulzAllocatesNothing(t *testing.T) {
	for name, plan := range jordan.variants() {
		src := stack(gaussian(9, 14, 0, false, 1))
		work := make([]float32, plan.WorkSize(9, 14))
		require.Zero(t, testing.AllocsPerRun(10, func() { NewtonSchulz(src, src, &plan, work) }), name)
	}
}

func BenchmarkNewtonSchulz(b *testing.B) {
	const n = 128
	for name, plan := range jordan.variants() {
		b.Run(name, func(b *testing.B) {
			src := stack(gaussian(n, 2*n, 0, false, 1))
			dst := stack(gaussian(n, 2*n, 0, false, 2))
			work := make([]float32, plan.WorkSize(n, 2*n))
			for b.Loop() {
				NewtonSchulz(dst, src, &plan, work)
			}
		})
	}
}
