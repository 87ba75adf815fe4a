package fuzz

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The public door of the means is AdamWFactored, which TestFactoredMatrices tries.

func (f *factorMeansInput) properties(t *testing.T, in *input) {
	means, squares := make([]float32, f.rows), make([]float64, f.cols)
	reference.FactorMeans(means, squares, f.g, f.scale)
	sameFloats(t, f.rowMeans(), means, "row means")
	colMeans := make([]float32, f.cols)
	for j, sum := range squares {
		colMeans[j] = float32(sum / float64(f.rows))
	}
	sameFloats(t, f.colMeans(), colMeans, "column means")
}

func (f *factorInput) rowMeans() []float32 {
	means := make([]float32, f.rows)
	for i := range means {
		terms := make([]float64, f.cols)
		for j := range terms {
			terms[j] = f.square(i, j)
		}
		means[i] = float32(orderedSum(terms) / float64(f.cols))
	}
	return means
}

func (f *factorInput) colMeans() []float32 {
	means := make([]float32, f.cols)
	for j := range means {
		total := 0.0
		for lo := 0; lo < f.rows; lo += 64 {
			chunk := 0.0
			for i := lo; i < min(lo+64, f.rows); i++ {
				chunk += f.square(i, j)
			}
			total += chunk
		}
		means[j] = float32(total / float64(f.rows))
	}
	return means
}

func (f *factorInput) square(i, j int) float64 {
	g := float64(mul(f.g.At(i*f.cols+j), f.scale))
	return float64(g * g)
}

// TestFactoredMatrices steps matrices through the public door and by the contract.
func TestFactoredMatrices(t *testing.T) {
	stepped := 0
	for data := range first(150, Cases(6)) {
		in := newInput(data)
		f := in.factor(in.chance(2), 1, 2, 3, 5, 8, 63, 64, 65, 129, 200)
		a := &adamWInput{hyper: in.hyper()}
		a.scalars = a.hyper.Scalars()
		a.scalars.GradScale, a.scalars.SkipNonFinite = f.scale, in.chance(2)
		n := f.rows * f.cols
		a.tensors = kernels.AdamWTensors{Weights: floatsOf(in.values("weights", n, nil), in.chance(2)), Gradients: f.g}
		a.tensors.M.Format = in.momentFormat(codebook.DE4())
		in.coded("m", n, &a.tensors.M, in.values)
		row, col := in.magnitudes("row factors", f.rows, nil), in.magnitudes("column factors", f.cols, nil)

		newRow, newCol := f.rowMeans(), f.colMeans()
		broken := [2]int{} // rows and columns
		for k, of := range []struct{ means, old []float32 }{{newRow, row}, {newCol, col}} {
			for i, mean := range of.means {
				of.means[i] = add(mul(a.scalars.Beta2, of.old[i]), mul(a.scalars.OneMinusBeta2, mean))
				if !isFinite(of.means[i]) {
					broken[k]++
				}
			}
		}
		finite := broken == [2]int{}
		terms, normalized := make([]float64, f.rows), make([]float32, f.rows)
		for i, r := range newRow {
			terms[i] = float64(r)
		}
		if mean := float32(orderedSum(terms) / float64(f.rows)); mean != 0 {
			for i, r := range newRow {
				normalized[i] = div(r, mean)
			}
		}
		step := *a
		step.tensors.V = kernels.Moment{Row: normalized, Col: newCol}
		want, counts, _ := step.contract()
		want.V = kernels.Moment{}
		if wantSkipped := a.scalars.SkipNonFinite && !finite; wantSkipped {
			nonFinite := broken[0]*f.cols + broken[1]*f.rows - broken[0]*broken[1]
			want, counts = a.placed(&padded{}), kernels.Counts{NonFinite: int64(nonFinite), SkippedElements: int64(n)}
			newRow, newCol = row, col
		} else {
			stepped++
		}

		got, gotRow, gotCol := a.placed(&padded{}), place(&padded{}, row), place(&padded{}, col)
		gotCounts, skipped, err := kernels.AdamWFactored(&got, gotRow, gotCol, &a.scalars)
		require.NoError(t, err, in.description())
		require.Equal(t, a.scalars.SkipNonFinite && !finite, skipped, in.description())
		require.Equal(t, counts, gotCounts, in.description())
		sameTensors(t, want, got, in.description())
		sameFloats(t, newRow, gotRow, in.description())
		sameFloats(t, newCol, gotCol, in.description())
	}
	require.Greater(t, stepped, 50)
	require.Less(t, stepped, 150)
}
