//go:build !purego

package kernels

import (
	"sync"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of the assembly, for gradients of either format.
type (
	factorBand[G number] func(totals []float64, lanes *[reference.FactorBand][16]float64, sums *[bandColumns]float64, g []G,
		columns, stride int, scale float32, first, last bool)
	accumulation[S, G number] func(sums []S, g []G)
)

const bandColumns = 1024 // of a call

// bandWork is the scratch of a band of rows.
type bandWork struct {
	totals [reference.FactorBand]float64
	lanes  [reference.FactorBand][16]float64
	sums   [bandColumns]float64
}

var bandWorks = sync.Pool{New: func() any { return new(bandWork) }}

func factorMeansBy[G number](add factorBand[G]) FactorMeansFunc {
	return func(means []float32, squares []float64, g Floats, scale float32) {
		x, cols := view[G](g), len(squares)
		race.Write(means)
		race.Write(squares)
		race.Read(x)
		work := bandWorks.Get().(*bandWork)
		totals := work.totals[:len(means)]
		clear(totals)
		for first := 0; first < cols; first += bandColumns {
			last := min(first+bandColumns, cols)
			clear(work.sums[:min(last-first+15, bandColumns)]) // and what is added after the last
			add(totals, &work.lanes, &work.sums, x[first:], last-first, cols, scale,
				first%reference.SumChunk == 0, last%reference.SumChunk == 0 || last == cols)
			copy(squares[first:last], work.sums[:])
		}
		for i, total := range totals {
			means[i] = float32(total / float64(cols))
		}
		bandWorks.Put(work)
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
	factorMeansFloat32Impls = avx512[FactorMeansFunc]("avx512", 0, factorMeansBy(amd64.FactorBandAVX512), avx2[FactorMeansFunc](factorMeansBy(amd64.FactorBandAVX2)))
	factorMeansBF16Impls    = avx512[FactorMeansFunc]("avx512", 0, factorMeansBy(amd64.FactorBandBF16AVX512), avx2[FactorMeansFunc](factorMeansBy(amd64.FactorBandBF16AVX2)))

	accumulateFloat32Impls = avx512[AccumulateFunc]("avx512", 0, accumulate(amd64.AccumulateF32GF32AVX512, amd64.AccumulateBF16GF32AVX512),
		avx2[AccumulateFunc](accumulate(amd64.AccumulateF32GF32AVX2, amd64.AccumulateBF16GF32AVX2)))
	accumulateBF16Impls = avx512[AccumulateFunc]("avx512", 0, accumulate(amd64.AccumulateF32GBF16AVX512, amd64.AccumulateBF16GBF16AVX512),
		avx2[AccumulateFunc](accumulate(amd64.AccumulateF32GBF16AVX2, amd64.AccumulateBF16GBF16AVX2)))
)
