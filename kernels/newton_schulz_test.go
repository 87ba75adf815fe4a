package kernels_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels"
)

var jordan = [3]float32{3.4445, -4.7750, 2.0315}

var newtonSchulzPlans = map[string]kernels.NewtonSchulzPlan{
	"standard":     {Safety: 1, Steps: [][3]float32{jordan, jordan, jordan}},
	"cubic":        {Safety: 1.01, Steps: [][3]float32{{1.5, -0.5, 0}, {1.5, 0, 0.25}}, Eps: 1e-7},
	"no steps":     {Safety: 1},
	"parity":       {Safety: 1, Steps: [][3]float32{jordan}, ParityNorm: true, Eps: 1e-7, EpsFloor: true},
	"Gram":         {Safety: 1, Steps: [][3]float32{jordan, jordan, jordan, jordan}, Gram: true},
	"Gram restart": {Safety: 1, Steps: [][3]float32{jordan, jordan, jordan}, Gram: true, GramRestart: true},
	"diverging":    {Safety: 1, Steps: [][3]float32{{1e20, 1e20, 1e20}, jordan}},
}

// requireSameStacks compares an implementation with the reference: out of place with gaps
// that stay as they were, and in place.
func requireSameStacks(t *testing.T, impl kernels.NewtonSchulzFunc, plan *kernels.NewtonSchulzPlan, src kernels.Stack, threads int) {
	t.Helper()
	references := newtonSchulzOp(plan.BFloat16).Impls
	work := testmem.New[float32](t, int(plan.WorkSize(src.Rows, src.Cols))*3)
	run := func(f kernels.NewtonSchulzFunc, dst, src kernels.Stack, matrices int) int {
		w := work.AtEnd(int(plan.WorkSize(src.Rows, src.Cols)) * matrices)
		poisoned := f([]kernels.Stack{dst}, []kernels.Stack{src}, plan, w, threads)
		work.Check()
		return poisoned
	}
	want, got, inPlace := src, src, src
	want.Data.F32 = normal(len(src.Data.F32), 5)
	got.Data.F32, inPlace.Data.F32 = slices.Clone(want.Data.F32), slices.Clone(src.Data.F32)
	poisoned := run(references[len(references)-1].Func, want, src, 1)
	require.Equal(t, poisoned, run(impl, got, src, 3))
	requireSameFloats(t, want.Data.F32, got.Data.F32, "%d of %dx%d, %d threads", src.Count, src.Rows, src.Cols, threads)
	require.Equal(t, poisoned, run(impl, inPlace, inPlace, 1))
	for k := range src.Count {
		for i := range src.Rows {
			at := k*src.Step + i*src.Stride
			requireSameFloats(t, want.Data.F32[at:at+src.Cols], inPlace.Data.F32[at:at+src.Cols], "in place, row %d of %d of %dx%d", i, k, src.Rows, src.Cols)
		}
	}
}

func stackOf(count, rows, cols, pad int) kernels.Stack {
	s := kernels.Stack{Count: count, Rows: rows, Cols: cols, Stride: cols + pad}
	s.Step = rows*s.Stride + pad
	s.Data = kernels.Float32s(normal(count*s.Step, uint64(rows*cols)))
	return s
}

func newtonSchulzOp(bfloat16 bool) *kernels.Op[kernels.NewtonSchulzFunc] {
	if bfloat16 {
		return kernels.OpNewtonSchulzBF16
	}
	return kernels.OpNewtonSchulzFloat32
}

// eachNewtonSchulz tests what shall give the reference's bits; in bf16 that is more than
// the contract asks for, which AVX2 does.
func eachNewtonSchulz(t *testing.T, test func(t *testing.T, f kernels.NewtonSchulzFunc, bfloat16 bool)) {
	for _, bfloat16 := range []bool{false, true} {
		op := newtonSchulzOp(bfloat16)
		for _, impl := range op.Impls[:len(op.Impls)-1] {
			t.Run(op.Name+"/"+impl.Name, func(t *testing.T) {
				cputest.Need(t, impl.Needs)
				test(t, impl.Func, bfloat16)
			})
		}
	}
}

func TestNewtonSchulzGivesTheReferencesBits(t *testing.T) {
	shapes := [][2]int{{48, 48}, {64, 64}, {65, 65}, {100, 100}, {33, 65}, {65, 33}, {1, 100}, {100, 1}, {20, 600}}
	for n := 1; n <= 33; n++ {
		shapes = append(shapes, [2]int{n, n}, [2]int{n, (n*7)%33 + 1})
	}
	eachNewtonSchulz(t, func(t *testing.T, f kernels.NewtonSchulzFunc, bfloat16 bool) {
		for name, plan := range newtonSchulzPlans {
			plan.BFloat16 = bfloat16
			t.Run(name, func(t *testing.T) {
				for i, shape := range shapes {
					requireSameStacks(t, f, &plan, stackOf(1, shape[0], shape[1], i%3), 1+i%2)
				}
			})
		}
	})
}

// TestLargeNewtonSchulz has chains that are resumed.
func TestLargeNewtonSchulz(t *testing.T) {
	eachNewtonSchulz(t, func(t *testing.T, f kernels.NewtonSchulzFunc, bfloat16 bool) {
		for _, c := range []struct {
			plan       string
			rows, cols int
		}{{"standard", 128, 512}, {"Gram restart", 512, 128}, {"parity", 264, 264}, {"Gram", 259, 290}, {"standard", 40, 1100}, {"Gram", 2050, 7}} {
			plan := newtonSchulzPlans[c.plan]
			plan.BFloat16 = bfloat16
			requireSameStacks(t, f, &plan, stackOf(1, c.rows, c.cols, 0), 3)
		}
	})
}

func TestNewtonSchulzStacks(t *testing.T) {
	plan := newtonSchulzPlans["standard"]
	eachNewtonSchulz(t, func(t *testing.T, f kernels.NewtonSchulzFunc, bfloat16 bool) {
		plan.BFloat16 = bfloat16
		for threads := 1; threads <= 5; threads++ {
			for _, shape := range [][2]int{{16, 16}, {40, 33}, {5, 70}} {
				s := stackOf(7, shape[0], shape[1], threads%3)
				s.Data.F32[s.Step+3] = float32(math.NaN())
				clear(s.Data.F32[2*s.Step:][:s.Step])
				s.Data.F32[3*s.Step] = float32(math.Inf(1))
				for i := range s.Data.F32[4*s.Step:][:s.Step] {
					s.Data.F32[4*s.Step+i] *= 2e38
				}
				for i := range s.Data.F32[5*s.Step:][:s.Step] {
					s.Data.F32[5*s.Step+i] *= 1e-38
				}
				requireSameStacks(t, f, &plan, s, threads)
			}
		}
	})
}

// TestNewtonSchulzStorages has matrices of both formats, with and without gaps between the
// rows, on a workspace of NaN. One line is longer than a kernel's call.
func TestNewtonSchulzStorages(t *testing.T) {
	shapes := [][2]int{{1, 1}, {1, 2}, {2, 1}, {1, 33001}, {300, 1}, {3, 37}, {33, 65}, {70, 34}, {97, 97}}
	stored := func(s kernels.Stack, narrow bool) kernels.Stack {
		s.Data.F32 = slices.Clone(s.Data.F32)
		if narrow {
			s.Data = inBF16(s.Data)
		}
		return s
	}
	eachNewtonSchulz(t, func(t *testing.T, f kernels.NewtonSchulzFunc, bfloat16 bool) {
		impls := newtonSchulzOp(bfloat16).Impls
		for name, plan := range newtonSchulzPlans {
			plan.BFloat16 = bfloat16
			for _, shape := range shapes {
				for _, variant := range []int{0, 3, 5, 6} {
					s := stackOf(1, shape[0], shape[1], variant/4)
					s.Data.F32[0] = float32(math.Copysign(0, -1))
					s.Data.F32[len(s.Data.F32)/2] = -1e-38
					s.Data.F32[len(s.Data.F32)/3] = 1e-41
					src, want, got := stored(s, variant&1 != 0), stored(s, variant&2 != 0), stored(s, variant&2 != 0)
					run := func(f kernels.NewtonSchulzFunc, dst kernels.Stack) int {
						work := make([]float32, plan.WorkSize(s.Rows, s.Cols))
						for i := range work {
							work[i] = float32(math.NaN())
						}
						return f([]kernels.Stack{dst}, []kernels.Stack{src}, &plan, work, 1)
					}
					require.Equal(t, run(impls[len(impls)-1].Func, want), run(f, got), "%s of %v, variant %d", name, shape, variant)
					for i := range want.Data.Len() {
						w, g := want.Data.At(i), got.Data.At(i)
						if math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
							require.Failf(t, "bits differ", "element %d is %x, want %x: %s of %v, variant %d", i, g, w, name, shape, variant)
						}
					}
				}
			}
		}
	})
}
