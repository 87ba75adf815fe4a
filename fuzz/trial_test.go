package fuzz

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

func TestEveryRowHasATrial(t *testing.T) {
	rows := []kernels.Row{}
	for _, trial := range Trials() {
		rows = append(rows, trial.Row())
	}
	require.Equal(t, kernels.Table(), rows)
	require.Len(t, all, len(rows), "trials of no row")
}

// first are the first n inputs.
func first(n int, inputs iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		left := n
		for data := range inputs {
			if left == 0 || !yield(data) {
				return
			}
			left--
		}
	}
}

// eachImplementation runs a test for every implementation of every row.
func eachImplementation(t *testing.T, test func(t *testing.T, trial Trial, implementation string)) {
	for _, trial := range Trials() {
		row := trial.Row()
		for _, implementation := range row.Implementations {
			t.Run(strings.Join([]string{row.Name, row.Variant, implementation.Name}, "/"), func(t *testing.T) {
				needs, err := cpufeature.Parse(strings.Join(implementation.Needs, ","))
				require.NoError(t, err)
				cputest.Need(t, needs)
				test(t, trial, implementation.Name)
			})
		}
	}
}

func TestFunctionsOfAnotherType(t *testing.T) {
	for _, trial := range Trials() {
		for _, f := range []any{nil, 1, func() {}, (func())(nil), kernels.RoundFunc(nil)} {
			result := trial.CheckFunc(f, nil)
			require.EqualValues(t, 1, result.Mismatches)
			require.Contains(t, result.First, trial.name()+" the caller's: it is ")
			require.Contains(t, result.First, ", want kernels.")
		}
	}
}

func TestImplementationsGiveTheReferencesBits(t *testing.T) {
	eachImplementation(t, func(t *testing.T, trial Trial, implementation string) {
		for data := range first(60, Cases(1)) {
			result := trial.Check(implementation, data)
			require.Empty(t, result.First)
			require.Zero(t, result.Mismatches)
		}
	})
}

// TestImplementationsStayInTheirArrays puts arrays against pages that may not be
// touched, and at every offset.
func TestImplementationsStayInTheirArrays(t *testing.T) {
	const longest = 700
	eachImplementation(t, func(t *testing.T, trial Trial, implementation string) {
		mem := &guarded{t: t}
		random := rand.New(rand.NewPCG(1, 3))
		check := func(length int, place func(b *testmem.Buffer[uint8], n, element int) []byte) {
			data := append(binary.LittleEndian.AppendUint64(nil, random.Uint64()), 0, uint8(length))
			mem.used, mem.place = 0, place
			require.Empty(t, trial.checkNamed(implementation, newInput(data), mem).First)
		}
		for length, n := range lengths {
			if n <= longest {
				check(length, func(b *testmem.Buffer[uint8], n, _ int) []byte { return b.AtEnd(n) })
			}
		}
		for offset := range 64 {
			length := random.IntN(41) // as many are short
			check(length, func(b *testmem.Buffer[uint8], n, element int) []byte {
				return b.AtOffset(n, offset/element*element)
			})
			if offset%4 == 0 {
				check(length, func(b *testmem.Buffer[uint8], n, _ int) []byte { return b.AtStart(n) })
			}
		}
	})
}

// guarded is memory of testmem. An array's buffer is used again by the next run.
type guarded struct {
	t       *testing.T
	place   func(b *testmem.Buffer[uint8], n, element int) []byte
	buffers []buffer
	used    int
}

type buffer struct {
	*testmem.Buffer[uint8]
	capacity int
}

func (g *guarded) bytes(n, element int) []byte {
	if g.used == len(g.buffers) {
		g.buffers = append(g.buffers, buffer{})
	}
	b := &g.buffers[g.used]
	g.used++
	if b.Buffer == nil || n > b.capacity {
		b.capacity = max(n, 2*b.capacity)
		b.Buffer = testmem.New[uint8](g.t, b.capacity)
	}
	return g.place(b.Buffer, n, element)
}

func (g *guarded) damage() string {
	for _, b := range g.buffers[:g.used] {
		b.Check()
	}
	return ""
}

func TestChecksSeeWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want string
		f    kernels.RoundFunc
	}{
		{"", reference.Round},
		{"dst[48] is", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst[:48], src[:48])
		}},
		{"byte 98 of an array of 98 was written", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst, src)
			*(*uint16)(unsafe.Add(unsafe.Pointer(&dst[0]), 98)) = 0
		}},
		{"byte -2 of an array of 98 was written", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst, src)
			*(*uint16)(unsafe.Add(unsafe.Pointer(&dst[0]), -2)) = 0
		}},
		{"x[0] is", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst, src)
			src[0] = -src[0]
		}},
	} {
		data := append([]byte("8 bytes "), 2, uint8(slices.Index(lengths, 49)), 0, 1, 0, 0, 1, 1)
		result := trial(decodeRound, kernels.OpRound, c.f).Check("tried", data)
		require.Contains(t, result.First, c.want)
		require.Equal(t, c.want != "", result.Mismatches == 1)
		if c.want != "" {
			require.Contains(t, result.First, fmt.Sprintf("from []byte(%q)", data))
		}
	}
}

func TestUnknownImplementation(t *testing.T) {
	result := Trials()[0].Check("abacus", nil)
	require.EqualValues(t, 1, result.Mismatches)
	require.Contains(t, result.First, "abacus: no such implementation")
}

func TestBounds(t *testing.T) {
	outputOf := func(x ...float32) (o output) {
		o.float32s("x", x)
		return o
	}
	want := outputOf(1, 2, 4)
	require.Zero(t, outputOf(1, 2, 4).compare(want).Mismatches)
	off := outputOf(1, 2.5, 4).compare(want)
	require.EqualValues(t, 1, off.Mismatches)
	require.Equal(t, 0.5, off.MaxError)
	require.Equal(t, "x[1] is 2.5 (0x40200000), want 2 (0x40000000)", off.First)
	want[0].bound = []float64{1, 1, 1}
	require.Equal(t, Result{Elements: 3, MaxError: 0.5}, outputOf(1, 2.5, 4).compare(want))
	want[0].bound[1] = 0.25
	require.EqualValues(t, 1, outputOf(1, 2.5, 4).compare(want).Mismatches)
	nan := float32(math.NaN())
	require.Zero(t, outputOf(1, nan, 4).compare(outputOf(1, -nan, 4)).Mismatches)
	require.EqualValues(t, 1, outputOf(1, nan, 4).compare(want).Mismatches)
}

// TestTolerances tries an implementation of the bf16 rows that rounds in other places
// than the reference, and one that is wrong.
func TestTolerances(t *testing.T) {
	gemm := func(lastFactor float64) kernels.GemmFunc {
		return func(c, a kernels.Matrix, transA bool, b kernels.Matrix, transB bool, alpha, beta float32, _ int) {
			depth := a.Cols
			if transA {
				depth = a.Rows
			}
			for i := range c.Rows {
				for j := range c.Cols {
					sum := 0.0
					for k := range depth {
						p := at(a, i, k, transA) * at(b, k, j, transB)
						if k == depth-1 {
							p *= lastFactor
						}
						sum += p
					}
					x := float32(alpha * float32(sum))
					if beta != 0 {
						x += float32(beta * float32(at(c, i, j, false)))
					}
					if c.Data.BF16 != nil {
						c.Data.BF16[i*c.Stride+j] = bf16.FromFloat32(x)
					} else {
						c.Data.F32[i*c.Stride+j] = x
					}
				}
			}
		}
	}
	for name, c := range map[string]struct {
		trial Trial
		wrong bool
	}{
		"gemm in float64":                {trial(decodeGemm, kernels.OpGemmBF16, gemm(1)), false},
		"gemm, last product halved":      {trial(decodeGemm, kernels.OpGemmBF16, gemm(0.5)), true},
		"newton-schulz, sums in float64": {trial(decodeNewtonSchulzBF16, kernels.OpNewtonSchulzBF16, plainNewtonSchulz(0)), false},
		"newton-schulz, a step short":    {trial(decodeNewtonSchulzBF16, kernels.OpNewtonSchulzBF16, plainNewtonSchulz(1)), true},
	} {
		worst, mismatches := 0.0, int64(0)
		for data := range first(60, Cases(2)) {
			r := c.trial.Check("tried", data)
			if !c.wrong {
				require.Empty(t, r.First, name)
			}
			worst, mismatches = max(worst, r.MaxError), mismatches+r.Mismatches
		}
		t.Logf("%s: %.3g of the bound, %d beyond", name, worst, mismatches)
		require.Equal(t, c.wrong, mismatches > 0, name)
		require.NotZero(t, worst, name)
	}
}

// trial compares a function with the reference of a row.
func trial[F any, E experiment[F]](decode func(op *kernels.Op[F], in *input) E, row *kernels.Op[F], f F) Trial {
	op := *row
	op.Impls = []kernels.Impl[F]{{Name: "tried", Func: f}, row.Impls[len(row.Impls)-1]}
	return trials(func(_ *kernels.Op[F], in *input) E { return decode(row, in) }, &op)[0]
}

// plainNewtonSchulz is Newton-Schulz on bf16 matrices whose products are summed in
// float64, without the last steps.
func plainNewtonSchulz(left int) kernels.NewtonSchulzFunc {
	one := func(dst, src kernels.Stack, plan *kernels.NewtonSchulzPlan) (poisoned int) {
		for k := range src.Count {
			d, x := dst.Matrix(k), dense(src.Matrix(k), plan.ParityNorm)
			norm := math.Sqrt(dot(x.x, x.x))
			if plan.ParityNorm {
				norm = rounded(norm)
			}
			divisor := plan.Safety*norm + plan.Eps
			if plan.EpsFloor {
				divisor = max(plan.Safety*norm, plan.Eps)
			}
			if plan.ParityNorm {
				divisor = rounded(divisor)
			}
			if norm != norm {
				poisoned++
			}
			for i := range x.x {
				if norm != 0 {
					x.x[i] = rounded(x.x[i] / divisor)
				}
			}
			if x.rows > x.cols {
				x = x.transposed()
			}
			x = x.iterate(plan, max(len(plan.Steps)-left, 0))
			if d.Rows > d.Cols {
				x = x.transposed()
			}
			for i, v := range x.x {
				at := i/d.Cols*d.Stride + i%d.Cols
				if d.Data.BF16 != nil {
					d.Data.BF16[at] = bf16.FromFloat32(float32(v))
				} else {
					d.Data.F32[at] = float32(v)
				}
			}
		}
		return poisoned
	}
	return func(dst, src []kernels.Stack, plan *kernels.NewtonSchulzPlan, _ []float32, _ int) (poisoned int) {
		for i := range src {
			poisoned += one(dst[i], src[i], plan)
		}
		return poisoned
	}
}

type matrix struct {
	x          []float64
	rows, cols int
}

func dense(m kernels.Matrix, round bool) matrix {
	d := matrix{make([]float64, m.Rows*m.Cols), m.Rows, m.Cols}
	for i := range d.x {
		d.x[i] = at(m, i/m.Cols, i%m.Cols, false)
		if round {
			d.x[i] = rounded(d.x[i])
		}
	}
	return d
}

func rounded(x float64) float64 { return float64(bf16.FromFloat32(float32(x)).Float32()) }

func (m matrix) transposed() matrix {
	t := matrix{make([]float64, len(m.x)), m.cols, m.rows}
	for i := range m.x {
		t.x[i%m.cols*m.rows+i/m.cols] = m.x[i]
	}
	return t
}

// times is scale*m·o + factor*c, rounded to bf16.
func (m matrix) times(o matrix, scale float64, factor float32, c matrix) matrix {
	d := matrix{make([]float64, m.rows*o.cols), m.rows, o.cols}
	o = o.transposed()
	for i := range m.rows {
		for j := range d.cols {
			at := i*d.cols + j
			d.x[at] = scale * dot(m.x[i*m.cols:][:m.cols], o.x[j*o.cols:][:o.cols])
			if factor != 0 {
				d.x[at] += float64(factor) * c.x[at]
			}
			d.x[at] = rounded(d.x[at])
		}
	}
	return d
}

func (x matrix) iterate(plan *kernels.NewtonSchulzPlan, steps int) matrix {
	if !plan.Gram || x.rows == x.cols {
		for _, s := range plan.Steps[:steps] {
			a := x.times(x.transposed(), 1, 0, x)
			b := a.times(a, float64(s[2]), s[1], a)
			x = b.times(x, 1, s[0], x)
		}
		return x
	}
	var r, q matrix
	for i, s := range plan.Steps[:steps] {
		fresh := i == 0 || i == 2
		if fresh {
			r = x.times(x.transposed(), 1, 0, x)
		}
		z := r.times(r, float64(s[2]), s[1], r)
		if fresh {
			q = z
			q.x = slices.Clone(z.x)
			for j := range q.rows {
				q.x[j*q.cols+j] = rounded(q.x[j*q.cols+j] + float64(s[0]))
			}
		} else {
			q = q.times(z, 1, s[0], q)
		}
		if i == 1 || i == steps-1 {
			x = q.times(x, 1, 0, x)
			continue
		}
		t := r.times(z, 1, s[0], r)
		r = z.times(t, 1, s[0], t)
	}
	return x
}
