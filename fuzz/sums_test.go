package fuzz

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

func (a *absmaxInput) properties(t *testing.T, in *input) {
	want := float32(0)
	for _, x := range a.x {
		if x != x || abs(x) > want {
			want = abs(x)
		}
		if x != x {
			break
		}
	}
	sameFloats(t, []float32{want}, []float32{kernels.Absmax(a.x)}, "absmax")
}

// orderedSum is the contract's: sixteen partial sums a chunk, added in a tree, the chunks
// one after the other.
func orderedSum(terms []float64) (total float64) {
	for lo := 0; lo < len(terms); lo += 4096 {
		chunk := terms[lo:min(lo+4096, len(terms))]
		lanes := make([]float64, 16)
		for i, term := range chunk {
			lanes[i%16] += term
		}
		for len(lanes) > 1 {
			half := len(lanes) / 2
			for j := range half {
				lanes[j] += lanes[j+half]
			}
			lanes = lanes[:half]
		}
		total += lanes[0]
	}
	return total
}

// sumsTo: in order to the bit, and of any order within float64's error.
func sumsTo(t *testing.T, terms []float64, got float64) {
	want := orderedSum(terms)
	require.True(t, want == got || want != want && got != got, "sum %v, want %v", got, want)
	exact, magnitudes := new(big.Float).SetPrec(2200), 0.0
	for _, term := range terms {
		magnitudes += math.Abs(term)
		if magnitudes-magnitudes != 0 {
			return
		}
		exact.Add(exact, new(big.Float).SetFloat64(term))
	}
	off, _ := exact.Sub(exact, new(big.Float).SetFloat64(got)).Float64()
	additions := float64(4096/16 + 4 + len(terms)/4096)
	require.LessOrEqual(t, math.Abs(off), additions*0x1p-53*magnitudes)
}

func (n *normInput) properties(t *testing.T, in *input) {
	terms := make([]float64, n.x.Len())
	for i, x := range widened(n.x) {
		terms[i] = float64(x) * float64(x)
	}
	sum := kernels.SumSquares(n.x)
	sumsTo(t, terms, sum)
	sameFloat64(t, math.Sqrt(sum), kernels.Norm(n.x))
	inChunks := 0.0
	for lo := 0; lo < n.x.Len(); lo += 4096 {
		inChunks += kernels.SumSquares(n.x.Slice(lo, min(lo+4096, n.x.Len())))
	}
	sameFloat64(t, sum, inChunks)
}

func sameFloat64(t *testing.T, want, got float64) {
	t.Helper()
	require.True(t, want == got || want != want && got != got, "%v, want %v", got, want)
}

func (d *dotInput) properties(t *testing.T, in *input) {
	terms := make([]float64, len(d.x))
	for i := range terms {
		terms[i] = float64(d.x[i]) * float64(d.y[i])
	}
	sum, err := kernels.Dot(d.x, d.y)
	require.NoError(t, err)
	sumsTo(t, terms, sum)
}

// stored rounds a number to the format of x and widens it.
func stored(x kernels.Floats, v float32) float32 {
	if x.BF16 == nil {
		return v
	}
	return nearest(v).Float32()
}

func (s *scaleInput) properties(t *testing.T, in *input) {
	want := widened(s.x)
	for i, x := range want {
		want[i] = stored(s.x, mul(x, s.factor))
	}
	got := placeFloats(&padded{}, s.x)
	kernels.Scale(got, s.factor)
	sameFloats(t, want, widened(got), "scaled")
}

func (a *accumulateInput) properties(t *testing.T, in *input) {
	want := widened(a.sums)
	for i, g := range widened(a.gradients) {
		want[i] = stored(a.sums, add(want[i], g))
	}
	got := placeFloats(&padded{}, a.sums)
	require.NoError(t, kernels.Accumulate(got, a.gradients))
	sameFloats(t, want, widened(got), "sums")
}
