package kernels

import (
	"fmt"
	"sync"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of the factored second moment and of gradient accumulation.
type (
	// FactorMeansFunc sets means to the mean squares of the rows of g, up to
	// reference.FactorBand, and squares to the sums of those of its columns, each element first
	// multiplied by scale.
	FactorMeansFunc func(means []float32, squares []float64, g Floats, scale float32)
	AccumulateFunc  func(sums, g Floats)
)

var (
	OpFactorMeansFloat32 = declareFactorMeans("float32", 4, fast.factorMeansFloat32)
	OpFactorMeansBF16    = declareFactorMeans("bfloat16", 2, fast.factorMeansBF16)

	OpAccumulateFloat32 = declareAccumulate("float32", 4, fast.accumulateFloat32)
	OpAccumulateBF16    = declareAccumulate("bfloat16", 2, fast.accumulateBF16)
)

func declareFactorMeans(variant string, bytes float64, fast []Impl[FactorMeansFunc]) *Op[FactorMeansFunc] {
	return declare(Op[FactorMeansFunc]{Name: "factor_means", Variant: variant, Streams: reads(bytes)}, reference.FactorMeans, fast)
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

// factorMeans sets the mean squares of rows and columns. It reads the gradients once, a band
// of rows at a time, some bands on each goroutine, and then adds up the bands' columns.
func factorMeans(rowMeans, colMeans []float32, g Floats, scale float32, limit []Threads) {
	rows, cols := len(rowMeans), len(colMeans)
	bands := min((rows-1)/reference.FactorBand+1, bandsOfThread*threads(limit))
	work := factorBands.Get().(*[]float64)
	if need := (bands + 1) * cols; cap(*work) < need {
		*work = make([]float64, need)
	}
	args := factorArgs{totals: (*work)[:cols], squares: (*work)[cols : (bands+1)*cols], scale: scale, run: OpFactorMeansFloat32.run}
	if g.BF16 != nil {
		args.run = OpFactorMeansBF16.run
	}
	clear(args.totals)
	for first, size := 0, bands*reference.FactorBand; first < rows; first += size {
		last := min(first+size, rows)
		args.means, args.g = rowMeans[first:last], g.Slice(first*cols, last*cols)
		factorBandsSplit.run(args, args.g.Len(), reference.FactorBand*cols, limit)
		factorTotalsSplit.run(args, cols*args.bands(), columnsTogether*args.bands(), limit)
	}
	for j, total := range args.totals {
		colMeans[j] = float32(total / float64(rows))
	}
	factorBands.Put(work)
}

const (
	bandsOfThread   = 8 // between two waits
	columnsTogether = 64
)

var factorBands = sync.Pool{New: func() any { return new([]float64) }}

type factorArgs struct {
	means   []float32
	totals  []float64 // of columns
	squares []float64 // of the columns of each band
	g       Floats
	scale   float32
	run     FactorMeansFunc
}

func (a *factorArgs) bands() int { return (len(a.means)-1)/reference.FactorBand + 1 }

var factorBandsSplit = split(func(a *factorArgs, lo, hi int) Counts {
	cols := len(a.totals)
	for row := lo / cols; row < hi/cols; row += reference.FactorBand {
		last, band := min(row+reference.FactorBand, hi/cols), row/reference.FactorBand
		a.run(a.means[row:last], a.squares[band*cols:(band+1)*cols], a.g.Slice(row*cols, last*cols), a.scale)
	}
	return Counts{}
})

var factorTotalsSplit = split(func(a *factorArgs, lo, hi int) Counts {
	first, last, cols := lo/a.bands(), hi/a.bands(), len(a.totals)
	totals := a.totals[first:last]
	for band := range a.bands() {
		for j, sum := range a.squares[band*cols+first : band*cols+last] {
			totals[j] += sum
		}
	}
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
