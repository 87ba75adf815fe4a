package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels"
)

// mixedShapes are counts and shapes of groups in a random order: lines, odd sizes and squares,
// tall and wide, some of no matrices and some like others.
func mixedShapes(seed uint64) (shapes [][3]int) {
	r := rand.New(rand.NewPCG(seed, 1))
	shapes = [][3]int{{1, 1, 1}, {2, 1, 77}, {1, 77, 1}, {1, 33, 65}, {3, 65, 33}, {0, 9, 4}, {1, 0, 3}, {1, 33, 65}, {1, 64, 64}, {1, 170, 163}}
	for range 6 {
		shapes = append(shapes, [3]int{r.IntN(4), 1 + r.IntN(48), 1 + r.IntN(48)})
	}
	r.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	return shapes
}

// groupsOf makes sources of these shapes, some of bf16 numbers, with a matrix that is not
// finite and one of zeros among them.
func groupsOf(shapes [][3]int) (src []kernels.Stack) {
	for i, shape := range shapes {
		s := stackOf(shape[0], shape[1], shape[2], i%3)
		if n := len(s.Data.F32); n > 0 && i == 4 {
			s.Data.F32[0] = float32(math.NaN())
		} else if n > 0 && i == 5 {
			clear(s.Data.F32)
		}
		if i%4 == 3 {
			narrow := make([]bf16.BF16, len(s.Data.F32))
			for j, x := range s.Data.F32 {
				narrow[j] = bf16.FromFloat32(x)
			}
			s.Data = kernels.BF16s(narrow)
		}
		src = append(src, s)
	}
	return src
}

// emptyLike are stacks of these shapes, in float32 that is not touched between the rows.
func emptyLike(src []kernels.Stack) (dst []kernels.Stack) {
	for _, s := range src {
		s.Data = kernels.Float32s(normal(s.Data.Len(), 9))
		dst = append(dst, s)
	}
	return dst
}

// TestGroupsAreTheirStacksAlone: the bits of a call for all are those of a call for each, for
// any number of threads and any workspace from that of the largest matrix on.
func TestGroupsAreTheirStacksAlone(t *testing.T) {
	eachNewtonSchulz(t, func(t *testing.T, f kernels.NewtonSchulzFunc, bfloat16 bool) {
		for seed, name := range []string{"standard", "Gram restart", "parity", "no steps"} {
			plan := newtonSchulzPlans[name]
			plan.BFloat16 = bfloat16
			src := groupsOf(mixedShapes(uint64(seed)))
			want, poisoned, largest := emptyLike(src), 0, int64(0)
			for i := range src {
				largest = max(largest, plan.WorkSize(src[i].Rows, src[i].Cols))
				poisoned += f(want[i:i+1], src[i:i+1], &plan, make([]float32, plan.WorkSize(src[i].Rows, src[i].Cols)), 1)
			}
			for threads := 1; threads <= 8; threads++ {
				enough := kernels.NewtonSchulzGroupsWork(&plan, src, kernels.Threads(threads))
				work := testmem.New[float32](t, int(enough))
				for _, size := range []int64{largest, (largest + enough) / 2, enough} {
					got := emptyLike(src)
					w := work.AtEnd(int(size))
					for i := range w {
						w[i] = float32(math.NaN())
					}
					require.Equal(t, poisoned, f(got, src, &plan, w, threads))
					work.Check()
					for i := range src {
						requireSameFloats(t, want[i].Data.F32, got[i].Data.F32, "%s, group %d of %dx%d, %d threads, work %d", name, i, src[i].Rows, src[i].Cols, threads, size)
					}
				}
			}
		}
	})
}

// TestGroupsInAnyOrder: nor does the order matter, nor that results replace what they are of.
func TestGroupsInAnyOrder(t *testing.T) {
	plan := newtonSchulzPlans["standard"]
	shapes := mixedShapes(7)
	src := groupsOf(shapes)
	want := emptyLike(src)
	work := make([]float32, kernels.NewtonSchulzGroupsWork(&plan, src, 4))
	poisoned, err := kernels.NewtonSchulzGroups(want, src, &plan, work, 1)
	require.NoError(t, err)
	for seed := range uint64(5) {
		order := rand.New(rand.NewPCG(seed, 2)).Perm(len(src))
		var stacks []kernels.Stack
		for _, i := range order {
			s := src[i]
			s.Data = kernels.Floats{F32: slices.Clone(s.Data.F32), BF16: slices.Clone(s.Data.BF16)}
			stacks = append(stacks, s)
		}
		again, err := kernels.NewtonSchulzGroups(stacks, stacks, &plan, work, 4)
		require.NoError(t, err)
		require.Equal(t, poisoned, again)
		for i, of := range order {
			for k := range src[of].Count {
				got, want := stacks[i].Matrix(k), want[of].Matrix(k)
				for row := range got.Rows {
					for col := range got.Cols {
						x, y := got.Data.At(row*got.Stride+col), want.Data.F32[row*want.Stride+col]
						if got.Data.BF16 != nil {
							y = bf16.FromFloat32(y).Float32()
						}
						require.True(t, math.Float32bits(x) == math.Float32bits(y) || x != x && y != y, "matrix %d of %v: %v, want %v", k, shapes[of], x, y)
					}
				}
			}
		}
	}
}

func TestNoGroups(t *testing.T) {
	poisoned, err := kernels.NewtonSchulzGroups(nil, nil, &kernels.NewtonSchulzPlan{Safety: 1}, nil)
	require.NoError(t, err)
	require.Zero(t, poisoned)
}

func TestNewtonSchulzGroupsWork(t *testing.T) {
	plan := &kernels.NewtonSchulzPlan{Safety: 1}
	size := func(rows, cols int) int64 { return plan.WorkSize(rows, cols) }
	stack := func(count, rows, cols int) kernels.Stack { return kernels.Stack{Count: count, Rows: rows, Cols: cols} }
	for _, c := range []struct {
		src     []kernels.Stack
		threads kernels.Threads
		want    int64
	}{
		{nil, 2, 0},
		{[]kernels.Stack{stack(1, 64, 64)}, 8, size(64, 64)},
		{[]kernels.Stack{stack(3, 64, 64)}, 2, 2 * size(64, 64)},
		{[]kernels.Stack{stack(3, 64, 64)}, 8, 3 * size(64, 64)},
		{[]kernels.Stack{stack(2, 8, 8), stack(1, 256, 64), stack(2, 64, 64)}, 3, size(256, 64) + 2*size(64, 64)},
		{[]kernels.Stack{stack(5, 4096, 4096)}, 8, size(4096, 4096)},
		{[]kernels.Stack{stack(5, 64, 64), stack(1, 4096, 4096)}, 8, size(4096, 4096)},
		{[]kernels.Stack{stack(100, 512, 512), stack(1, 2048, 2048)}, 64, 64 * size(512, 512)},
		{[]kernels.Stack{stack(2000, 8, 8), stack(2000, 16, 64)}, 1 << 20, 1024 * size(16, 64)},
	} {
		require.Equal(t, c.want, kernels.NewtonSchulzGroupsWork(plan, c.src, c.threads), fmt.Sprint(c.src))
	}
}

func TestGroupRefusals(t *testing.T) {
	plan := &kernels.NewtonSchulzPlan{Safety: 1}
	x, y, work := make([]float32, 64), make([]float32, 64), make([]float32, 1<<13)
	stack := func(data []float32, count, rows, cols int) kernels.Stack {
		return kernels.Stack{Data: kernels.Float32s(data), Count: count, Rows: rows, Cols: cols, Stride: cols, Step: rows * cols}
	}
	list := func(s ...kernels.Stack) []kernels.Stack { return s }
	a, b := stack(x, 1, 2, 8), stack(x[16:], 2, 2, 8)
	for _, c := range []struct {
		dst, src []kernels.Stack
		work     []float32
		want     string
	}{
		{list(a), list(a, b), work, "newton_schulz: dst has 1 groups and src 2, want as many"},
		{list(a, b), list(a, stack(y, 2, 8, 2)), work, "newton_schulz: group 1: dst is 2 of 2x8, want 2 of 8x2 as src"},
		{list(a, stack(y, 9, 2, 8)), list(a, stack(y, 9, 2, 8)), work, "newton_schulz: group 1: dst has length 64, want 144 or more for 9 matrices"},
		{list(a, stack(y, -1, 2, 8)), list(a, stack(y, -1, 2, 8)), work, "newton_schulz: group 1: dst has -1 matrices, want 0 or more"},
		{list(a, b), list(a, b), work[:5], "newton_schulz: work has length 5, want 5135 or more"},
		{list(a, a), list(stack(y, 1, 2, 8), stack(y, 1, 2, 8)), work, "newton_schulz: dst of group 0 and dst of group 1 overlap, want separate memory"},
		{list(a, stack(y, 1, 2, 8)), list(a, stack(x[8:], 1, 2, 8)), work, "newton_schulz: dst of group 0 and src of group 1 overlap, want separate memory"},
		{list(stack(y[1:], 1, 2, 8), b), list(stack(y, 1, 2, 8), b), work, "newton_schulz: dst of group 0 and src of group 0 overlap, want separate memory"},
		{list(a, stack(work[100:], 1, 2, 8)), list(a, stack(y, 1, 2, 8)), work, "newton_schulz: work and dst of group 1 overlap, want separate memory"},
		{list(a, b), list(a, b), work, ""},
		{list(stack(y, 1, 2, 8), stack(y[16:], 1, 2, 8)), list(a, a), work, ""},
	} {
		before := slices.Clone(x)
		_, err := kernels.NewtonSchulzGroups(c.dst, c.src, plan, c.work)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, c.want)
		require.Equal(t, before, x)
	}
}

func TestNewtonSchulzRefusesNoPlan(t *testing.T) {
	_, err := kernels.NewtonSchulz(stackOf(1, 2, 2, 0), stackOf(1, 2, 2, 0), nil, make([]float32, 100))
	require.EqualError(t, err, "newton_schulz: the plan is nil, want one of PlanNewtonSchulz")
}
