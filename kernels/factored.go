package kernels

import (
	"fmt"
	"sync"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of the factored second moment and of gradient accumulation.
type (
	// FactorRowsFunc sets each of means to the mean square of a row of g times scale.
	FactorRowsFunc func(means []float32, g Floats, cols int, scale float32)
	// FactorColsFunc sets means[j] to the mean square of column first+j of g times scale.
	FactorColsFunc func(means []float32, g Floats, rows, cols, first int, scale float32)
	AccumulateFunc func(sums, g Floats)
)

var (
	OpFactorRowsFloat32 = declareFactorRows("rows_float32", 4, fast.factorRowsFloat32)
	OpFactorRowsBF16    = declareFactorRows("rows_bfloat16", 2, fast.factorRowsBF16)
	OpFactorColsFloat32 = declareFactorCols("cols_float32", 4, fast.factorColsFloat32)
	OpFactorColsBF16    = declareFactorCols("cols_bfloat16", 2, fast.factorColsBF16)

	OpAccumulateFloat32 = declareAccumulate("float32", 4, fast.accumulateFloat32)
	OpAccumulateBF16    = declareAccumulate("bfloat16", 2, fast.accumulateBF16)
)

func declareFactorRows(variant string, bytes float64, fast []Impl[FactorRowsFunc]) *Op[FactorRowsFunc] {
	return declare(Op[FactorRowsFunc]{Name: "factor_means", Variant: variant, Streams: reads(bytes)}, reference.FactorRows, fast)
}

func declareFactorCols(variant string, bytes float64, fast []Impl[FactorColsFunc]) *Op[FactorColsFunc] {
	return declare(Op[FactorColsFunc]{Name: "factor_means", Variant: variant, Streams: reads(bytes)}, reference.FactorCols, fast)
}

func declareAccumulate(variant string, gradient float64, fast []Impl[AccumulateFunc]) *Op[AccumulateFunc] {
	streams := Streams{Read: []float64{gradient}, InPlace: []float64{2}} // with sums in bf16
	return declare(Op[AccumulateFunc]{Name: "accumulate", Variant: variant, Streams: streams}, reference.Accumulate, fast)
}

// AdamWFactored does one step of AdamW on a matrix whose second moment is factored, and
// whose first moment is quantised, after Li et al., "Memory Efficient Optimizers with
// 4-bit States" (2023). row and col are the factors, one number a row and column of the
// weights, row-major [len(row), len(col)]; t.V and t.First are ignored.
//
// Where a new factor is not finite and s.SkipNonFinite is set, nothing changes and
// skipped is true; then the counted elements are those of such rows and columns.
func AdamWFactored(t *AdamWTensors, row, col []float32, s *AdamWScalars, limit ...Threads) (c Counts, skipped bool, err error) {
	rows, cols := len(row), len(col)
	if n, want := t.Weights.Len(), int64(rows)*int64(cols); int64(n) != want {
		return Counts{}, false, fmt.Errorf("adamw: %d weights, want %d for %dx%d factors", n, want, rows, cols)
	}
	if err := checkFloats("adamw", "gradients", t.Gradients, rows*cols); err != nil {
		return Counts{}, false, err
	}
	if err := disjoint("adamw", spanOf("row factors", row), spanOf("column factors", col), floatsSpan("weights", t.Weights),
		floatsSpan("gradients", t.Gradients), spanOf("first moment scales", t.M.Scales)); err != nil {
		return Counts{}, false, err
	}
	if rows*cols == 0 {
		return Counts{}, false, nil
	}
	work := factorWork.Get().(*[]float32)
	defer factorWork.Put(work)
	if need := 2*rows + cols; cap(*work) < need {
		*work = make([]float32, need)
	}
	newRow, newCol, normalized := (*work)[:rows], (*work)[rows:rows+cols], (*work)[rows+cols:2*rows+cols]
	factorMeans(newRow, newCol, t.Gradients, s.GradScale, limit)
	if c, skipped = averageFactors(newRow, newCol, row, col, s); skipped {
		return c, true, nil
	}
	reference.NormalizeRow(normalized, newRow)
	piece := *t
	piece.V, piece.First = Moment{Row: normalized, Col: newCol}, 0
	if c, err = AdamW(&piece, s, limit...); err != nil {
		return c, false, err
	}
	copy(row, newRow)
	copy(col, newCol)
	return c, false, nil
}

// averageFactors makes new factors of the means in their place.
func averageFactors(newRow, newCol, row, col []float32, s *AdamWScalars) (c Counts, skipped bool) {
	finite := reference.AverageFactors(newRow, row, s)
	finite = reference.AverageFactors(newCol, col, s) && finite
	if finite || !s.SkipNonFinite {
		return Counts{}, false
	}
	rows, cols, badRows, badCols := int64(len(row)), int64(len(col)), nonFinite(newRow), nonFinite(newCol)
	return Counts{NonFinite: badRows*cols + (rows-badRows)*badCols, SkippedElements: rows * cols}, true
}

func nonFinite(x []float32) (n int64) {
	for _, v := range x {
		if v-v != 0 {
			n++
		}
	}
	return n
}

var factorWork = sync.Pool{New: func() any { return new([]float32) }}

func factorMeans(rowMeans, colMeans []float32, g Floats, scale float32, limit []Threads) {
	args := factorArgs{rowMeans, g, len(rowMeans), len(colMeans), scale, OpFactorRowsFloat32.run, OpFactorColsFloat32.run}
	if g.BF16 != nil {
		args.rows, args.cols = OpFactorRowsBF16.run, OpFactorColsBF16.run
	}
	factorRowsSplit.run(args, g.Len(), args.nCols, limit)
	args.means = colMeans
	factorColsSplit.run(args, g.Len(), args.nRows*min(columnGroup, args.nCols), limit)
}

type factorArgs struct {
	means        []float32
	g            Floats
	nRows, nCols int
	scale        float32
	rows         FactorRowsFunc
	cols         FactorColsFunc
}

var factorRowsSplit = split(func(a *factorArgs, lo, hi int) Counts {
	a.rows(a.means[lo/a.nCols:hi/a.nCols], a.g.Slice(lo, hi), a.nCols, a.scale)
	return Counts{}
})

// columnGroup is the least number of columns that a goroutine takes, a few cache lines.
const columnGroup = 64

var factorColsSplit = split(func(a *factorArgs, lo, hi int) Counts {
	first, last := lo/a.nRows, hi/a.nRows
	a.cols(a.means[first:last], a.g, a.nRows, a.nCols, first, a.scale)
	return Counts{}
})

// Accumulate adds gradients to sums in place, each sum rounded to float32 and, where sums
// are bf16, to nearest bf16. Both have one length, and either format.
func Accumulate(sums, gradients Floats, limit ...Threads) error {
	if err := checkFloats("accumulate", "gradients", gradients, sums.Len()); err != nil {
		return err
	}
	if err := disjoint("accumulate", floatsSpan("sums", sums), floatsSpan("gradients", gradients)); err != nil {
		return err
	}
	run := OpAccumulateFloat32.run
	if gradients.BF16 != nil {
		run = OpAccumulateBF16.run
	}
	if small(sums.Len()) {
		run(sums, gradients)
		return nil
	}
	accumulateSplit.run(accumulateArgs{sums, gradients, run}, sums.Len(), 1, limit)
	return nil
}

type accumulateArgs struct {
	sums, gradients Floats
	run             AccumulateFunc
}

var accumulateSplit = split(func(a *accumulateArgs, lo, hi int) Counts {
	a.run(a.sums.Slice(lo, hi), a.gradients.Slice(lo, hi))
	return Counts{}
})
