package fuzz

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

// properties holds some elements against exact arithmetic: each fused multiply-add is
// rounded once.
func (g *gemmInput) properties(t *testing.T, in *input) {
	c := placeMatrix(&padded{}, g.c)
	require.NoError(t, kernels.Gemm(c, g.a, g.transA, g.b, g.transB, g.alpha, g.beta, kernels.Threads(g.threads)))
	g.holds(t, in, c, false)
}

func (g *gemmInput) holds(t *testing.T, in *input, c kernels.Matrix, symmetric bool) {
	if g.a.Data.BF16 != nil || c.Rows*c.Cols == 0 {
		return
	}
	for range 3 {
		i, j := in.below(c.Rows), in.below(c.Cols)
		got := c.Data.At(i*c.Stride + j)
		if symmetric && i > j {
			i, j = j, i
		}
		sameFloats(t, []float32{g.chain(i, j)}, []float32{got}, "element of C")
	}
}

// chain is element i, j.
func (g *gemmInput) chain(i, j int) float32 {
	depth := g.a.Cols
	if g.transA {
		depth = g.a.Rows
	}
	acc := float32(0)
	for k := range depth {
		acc = fused(float32(at(g.a, i, k, g.transA)), float32(at(g.b, k, j, g.transB)), acc)
	}
	x := mul(g.alpha, add(acc, 0))
	if g.beta != 0 {
		x = add(x, mul(g.beta, g.c.Data.At(i*g.c.Stride+j)))
	}
	return x
}

func fused(a, b, c float32) float32 {
	if !isFinite(a) || !isFinite(b) || !isFinite(c) {
		return float32(math.FMA(float64(a), float64(b), float64(c)))
	}
	exact := new(big.Float).SetPrec(700).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
	exact.Add(exact, big.NewFloat(float64(c)))
	if exact.Sign() == 0 {
		return float32(math.FMA(float64(a), float64(b), float64(c)))
	}
	rounded, _ := exact.Float32()
	return rounded
}

func (s *syrkInput) properties(t *testing.T, in *input) {
	c := placeMatrix(&padded{}, s.c)
	require.NoError(t, kernels.Syrk(c, s.a, s.alpha, s.beta, kernels.Threads(s.threads)))
	for i := range c.Rows {
		for j := range i {
			x, mirrored := c.Data.At(i*c.Stride+j), c.Data.At(j*c.Stride+i)
			equal(t, true, x == mirrored || x != x && mirrored != mirrored, "%d, %d", i, j)
		}
	}
	g := gemmInput{c: s.c, a: s.a, b: s.a, transB: true, alpha: s.alpha, beta: s.beta}
	g.holds(t, in, c, true)
}

// properties: groups are their matrices one by one, in place or not.
func (n *newtonSchulzInput) properties(t *testing.T, in *input) {
	var dst, src, inPlace []kernels.Stack
	for _, g := range n.groups {
		d, p := g.dst, g.src
		d.Data, p.Data = placeFloats(&padded{}, d.Data), placeFloats(&padded{}, p.Data)
		dst, src, inPlace = append(dst, d), append(src, g.src), append(inPlace, p)
	}
	work := make([]float32, kernels.NewtonSchulzGroupsWork(&n.plan, src))
	poisoned, err := kernels.NewtonSchulzGroups(dst, src, &n.plan, work, kernels.Threads(n.threads))
	require.NoError(t, err)
	again, err := kernels.NewtonSchulzGroups(inPlace, inPlace, &n.plan, work)
	require.NoError(t, err)
	require.Equal(t, poisoned, again)
	alone := 0
	for i, g := range n.groups {
		for k := range g.src.Count {
			one := kernels.Stack{Count: 1, Rows: g.src.Rows, Cols: g.src.Cols, Stride: g.src.Cols, Step: g.src.Rows * g.src.Cols}
			one.Data = floatsOf(make([]float32, one.Step), g.dst.Data.BF16 != nil)
			from := g.src
			from.Count, from.Data = 1, g.src.Matrix(k).Data
			poisoned, err := kernels.NewtonSchulz(one, from, &n.plan, work)
			require.NoError(t, err)
			alone += poisoned
			together := widened(elementsOf(dst[i].Matrix(k)))
			sameFloats(t, widened(one.Data), together, "alone")
			if (g.dst.Data.BF16 != nil) == (g.src.Data.BF16 != nil) {
				sameFloats(t, together, widened(elementsOf(inPlace[i].Matrix(k))), "in place")
			}
		}
	}
	require.Equal(t, poisoned, alone)
}
