//go:build !purego

package kernels

import (
	"sync"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/race"
)

// The signatures of the assembly, for gradients of either format.
type (
	rowMeans[G number]        func(means []float32, g []G, cols int, scale float32)
	scaledSquares[G number]   func(sums []float64, g []G, scale float32)
	columnSquares[G number]   func(totals []float64, g []G, rows, stride int, scale float32)
	accumulation[S, G number] func(sums []S, g []G)
)

// factorRows takes the sums of chunks of rows that are too long for one call.
func factorRows[G number](means rowMeans[G], squares scaledSquares[G]) FactorRowsFunc {
	return func(dst []float32, g Floats, cols int, scale float32) {
		x := view[G](g)
		race.Write(dst)
		race.Read(x)
		if cols <= callElements {
			means(dst, x, cols, scale)
			return
		}
		sums := chunkSums.Get().(*[sumBatch]float64)
		for i := range dst {
			total := 0.0
			for row := x[i*cols : i*cols+cols]; len(row) > 0; {
				part := row[:min(callElements, len(row))]
				row = row[len(part):]
				found := sums[:chunks(len(part))]
				squares(found, part, scale)
				for _, sum := range found {
					total += sum
				}
			}
			dst[i] = float32(total / float64(cols))
		}
		chunkSums.Put(sums)
	}
}

// Columns are summed a number at a time, in calls of some rows.
const (
	columnBatch = 512
	rowBatch    = 64 // a multiple of the contract's chunk of rows
)

var columnTotals = sync.Pool{New: func() any { return new([columnBatch]float64) }}

func factorCols[G number](add columnSquares[G]) FactorColsFunc {
	return func(means []float32, g Floats, rows, cols, first int, scale float32) {
		x := view[G](g)
		race.Write(means)
		race.Read(x)
		totals := columnTotals.Get().(*[columnBatch]float64)
		for ; len(means) > 0; means, first = means[min(columnBatch, len(means)):], first+columnBatch {
			sums := totals[:min(columnBatch, len(means))]
			clear(sums)
			for row := 0; row < rows; row += rowBatch {
				add(sums, x[row*cols+first:], min(rowBatch, rows-row), cols, scale)
			}
			for i, sum := range sums {
				means[i] = float32(sum / float64(rows))
			}
		}
		columnTotals.Put(totals)
	}
}

// accumulate adds gradients of a format to sums of either.
func accumulate[G number](toFloat32 accumulation[float32, G], toBF16 accumulation[uint16, G]) AccumulateFunc {
	return func(sums, g Floats) {
		x := view[G](g)
		race.Read(x)
		if sums.BF16 != nil {
			race.Write(sums.BF16)
			toBF16(uint16s(sums.BF16), x)
		} else {
			race.Write(sums.F32)
			toFloat32(sums.F32, x)
		}
	}
}

var (
	factorRowsFloat32Impls = avx512[FactorRowsFunc]("avx512", 0, factorRows(amd64.FactorRowsAVX512, amd64.FactorSumsAVX512), avx2[FactorRowsFunc](factorRows(amd64.FactorRowsAVX2, amd64.FactorSumsAVX2)))
	factorRowsBF16Impls    = avx512[FactorRowsFunc]("avx512", 0, factorRows(amd64.FactorRowsBF16AVX512, amd64.FactorSumsBF16AVX512), avx2[FactorRowsFunc](factorRows(amd64.FactorRowsBF16AVX2, amd64.FactorSumsBF16AVX2)))
	factorColsFloat32Impls = avx512[FactorColsFunc]("avx512", 0, factorCols(amd64.ColumnSquaresAVX512), avx2[FactorColsFunc](factorCols(amd64.ColumnSquaresAVX2)))
	factorColsBF16Impls    = avx512[FactorColsFunc]("avx512", 0, factorCols(amd64.ColumnSquaresBF16AVX512), avx2[FactorColsFunc](factorCols(amd64.ColumnSquaresBF16AVX2)))

	accumulateFloat32Impls = avx512[AccumulateFunc]("avx512", 0, accumulate(amd64.AccumulateF32GF32AVX512, amd64.AccumulateBF16GF32AVX512),
		avx2[AccumulateFunc](accumulate(amd64.AccumulateF32GF32AVX2, amd64.AccumulateBF16GF32AVX2)))
	accumulateBF16Impls = avx512[AccumulateFunc]("avx512", 0, accumulate(amd64.AccumulateF32GBF16AVX512, amd64.AccumulateBF16GBF16AVX512),
		avx2[AccumulateFunc](accumulate(amd64.AccumulateF32GBF16AVX2, amd64.AccumulateBF16GBF16AVX2)))
)
