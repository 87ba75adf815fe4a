//go:build !purego

package kernels

import (
	"math"
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/race"
)

// The implementations of the pairs of formats of 4-bit codes, in the order of adamWPairs,
// with a second moment of codes and of factors.
var (
	adamW4bit = [len(adamWPairs)][]Impl[AdamWFunc]{
		adamWNibbles(nibblesStep[float32, float32](amd64.AdamW4bitWF32GF32AVX512).run),
		adamWNibbles(nibblesStep[uint16, uint16](amd64.AdamW4bitWBF16GBF16AVX512).run),
		adamWNibbles(nibblesStep[uint16, float32](amd64.AdamW4bitWBF16GF32AVX512).run),
		adamWNibbles(nibblesStep[float32, uint16](amd64.AdamW4bitWF32GBF16AVX512).run),
	}
	adamWFactored = [len(adamWPairs)][]Impl[AdamWFunc]{
		adamWMatrices(factoredKernels[float32, float32]{amd64.AdamW4bitFactoredWF32GF32AVX512, amd64.FactorSmallAVX512}),
		adamWMatrices(factoredKernels[uint16, uint16]{amd64.AdamW4bitFactoredWBF16GBF16AVX512, amd64.FactorSmallBF16AVX512}),
		adamWMatrices(factoredKernels[uint16, float32]{amd64.AdamW4bitFactoredWBF16GF32AVX512, amd64.FactorSmallAVX512}),
		adamWMatrices(factoredKernels[float32, uint16]{amd64.AdamW4bitFactoredWF32GBF16AVX512, amd64.FactorSmallBF16AVX512}),
	}
)

// adamWNibbles are the implementations of a row: fused for AVX-512, and by parts.
func adamWNibbles(fused adamW4bitStep) []Impl[AdamWFunc] {
	return withMany(nibbleImpls(fused), fused.many, adamWAVX2.manyNibbles)
}

func nibbleImpls(fused adamW4bitStep) []Impl[AdamWFunc] {
	return avx512[AdamWFunc]("avx512", 0, fused.one, avx2[AdamWFunc](adamWAVX2.nibbles))
}

// adamWMatrices are those of a factored second moment, which steps many with their factors.
func adamWMatrices[W, G number](kernels factoredKernels[W, G]) []Impl[AdamWFunc] {
	impls := nibbleImpls(kernels.run)
	impls[0].matrices = kernels.many
	return impls
}

// adamW4bitStep steps parameters in memory; of t it takes the formats and First.
type adamW4bitStep func(calls []adamWCall, t *AdamWTensors, s *AdamWScalars, work *adamWScratch)

// The signatures of the fused kernels, and of the one that makes second moments for them.
type (
	nibblesStep[W, G number] func(parameters [][adamWCallWords]uintptr, block int,
		tables *[160]uint32, mDivisor, vDivisor float32, s *[11]float32,
		nesterov, skip, highFirst bool, scratch *[7216]float32, counts *[3]int64)
	factoredStep func(parameters [][adamWCallWords]uintptr, v []float32, block int,
		tables *[160]uint32, mDivisor float32, s *[11]float32,
		nesterov, skip, highFirst bool, scratch *[7216]float32, counts *[3]int64)
	factoredKernels[W, G number] struct {
		step    factoredStep
		factors smallFactors
	}
	smallFactors func(products []float32, matrices [][adamWCallWords]uintptr, rows, cols int,
		scale, beta2, oneMinusBeta2 float32, scratch *[2688]float32) int
)

func (step adamW4bitStep) one(t *AdamWTensors, s *AdamWScalars) Counts {
	if !fusesNibbles(t, s) || !wholeBytes(t.M.Format, t.Weights.Len()) || !allPositive(t.V.Scales) {
		return adamWAVX512.nibbles(t, s)
	}
	work := adamWWork.Get().(*adamWScratch)
	work.call[0].adamWMemory = adamWMemoryOf(t)
	step(work.call[:], t, s, work)
	work.call[0] = adamWCall{} // the pool keeps nobody's slices alive
	return work.taken()
}

func (step adamW4bitStep) many(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) Counts {
	if !fusesNibbles(t, s) || t.M.Format.Block%2 != 0 || !positiveSeconds(calls, t) {
		return adamWAVX512.manyNibbles(t, calls, s)
	}
	work := adamWWork.Get().(*adamWScratch)
	step(calls, t, s, work)
	return work.taken()
}

func fusesNibbles(t *AdamWTensors, s *AdamWScalars) bool {
	m, v := &t.M.Format, &t.V.Format
	return adamWAVX512.takes(s) && plainAdamW(t, s) && m.Block <= nibblesLargestBlock && m.Codebook == codebook.DE4() &&
		(t.V.Factored() || v.Codebook == codebook.Linear4() && v.Nibble == m.Nibble && s.Beta2 >= 0 && s.OneMinusBeta2 >= 0)
}

// positiveSeconds tells whether second moments are as training leaves them: the fused kernel
// codes their magnitudes.
func positiveSeconds(calls []adamWCall, t *AdamWTensors) bool {
	for i := range calls {
		if !allPositive(unsafe.Slice((*float32)(calls[i].vScales), t.V.Format.Scales(calls[i].n))) {
			return false
		}
	}
	return true
}

func allPositive(scales []float32) bool {
	for _, s := range scales {
		if math.Signbit(float64(s)) {
			return false
		}
	}
	return true
}

func (step nibblesStep[W, G]) run(calls []adamWCall, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	touch(calls, t)
	m := &t.M.Format
	step(callWords(calls), m.Block, nibbleTables(), m.ScaleDivisor(), t.V.Format.ScaleDivisor(),
		adamWScalars(s), s.Nesterov, s.SkipNonFinite, m.Nibble == codebook.HighFirst, work.forNibbles(), &work.counts)
}

// run steps one parameter, whose second moments it makes of the factors a part at a time.
func (kernels factoredKernels[W, G]) run(calls []adamWCall, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	m := &t.M.Format
	whole, part := calls[0].adamWMemory, &calls[0].adamWMemory
	size := max(adamWPart/m.Block, 1) * m.Block
	for lo := 0; lo < whole.n; lo += size {
		part.weights, part.gradients = elementsFrom[W](whole.weights, lo), elementsFrom[G](whole.gradients, lo)
		part.m, part.mScales = unsafe.Add(whole.m, lo/2), elementsFrom[float32](whole.mScales, lo/m.Block)
		part.n = min(size, whole.n-lo)
		values := work.v[:part.n]
		adamWAVX512.multiplyFactors(values, &t.V, t.First+int64(lo))
		kernels.walk(calls, values, t, s, work)
	}
}

func elementsFrom[T number](p unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(p, i*int(unsafe.Sizeof(*new(T))))
}

// walk steps parameters by their second moments, which follow one another.
func (kernels factoredKernels[W, G]) walk(calls []adamWCall, v []float32, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	touch(calls, t)
	m := &t.M.Format
	kernels.step(callWords(calls), v, m.Block, nibbleTables(), m.ScaleDivisor(),
		adamWScalars(s), s.Nesterov, s.SkipNonFinite, m.Nibble == codebook.HighFirst, work.forNibbles(), &work.counts)
}

const smallMostMatrices, smallMostRows, smallMostCols = 16, 64, 16 // of the factors' kernel

// many steps small matrices with their factors, as many at a time as make a part.
func (kernels factoredKernels[W, G]) many(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) (stepped int, c Counts) {
	n, rows := calls[0].n, calls[0].rows
	if rows > smallMostRows || n > smallMostCols*rows || !fusesNibbles(t, s) || t.M.Format.Block%2 != 0 {
		return 0, Counts{}
	}
	calls = equalShapes(calls[:min(len(calls), smallMostMatrices, max(adamWPart/n, 1))])
	work := adamWWork.Get().(*adamWScratch)
	calls = calls[:kernels.factors(work.v[:], callWords(calls), rows, n/rows, s.GradScale, s.Beta2, s.OneMinusBeta2, work.forFactors())]
	touchFactors(calls)
	kernels.walk(calls, work.v[:n*len(calls)], t, s, work)
	return len(calls), work.taken()
}

func touchFactors(calls []adamWCall) {
	if !race.Enabled {
		return
	}
	for i := range calls {
		at := &calls[i].adamWMemory
		race.Write(unsafe.Slice((*float32)(at.v), at.rows))
		race.Write(unsafe.Slice((*float32)(at.vScales), at.n/at.rows))
	}
}

// nibblesLargestBlock is what the scratch of the fused kernel has room for.
const nibblesLargestBlock = 1024

// nibbleTables are what assembly finds codes of codebook.DE4() and codebook.Linear4() in,
// and their values: see block4 in amd64/_asm.
var nibbleTables = sync.OnceValue(func() *[160]uint32 {
	var tables [160]uint32
	m, v := codebook.DE4(), codebook.Linear4()
	for i := range 16 {
		tables[i], tables[16+i] = math.Float32bits(m.Table()[i]), math.Float32bits(v.Table()[i])
	}
	firstCells(tables[32:64], tables[64:96], tables[96:128], m.Thresholds()[:m.Len()-1])
	for i, t := range v.Thresholds()[:v.Len()-1] {
		tables[128+i], tables[144+i] = math.Float32bits(t), halfStep(t)
	}
	tables[128+15] = math.Float32bits(-1) // of the cell below the first
	return &tables
})

// firstCells fills the tables of first moments with thresholds, half steps and codes.
func firstCells(thresholds, halfSteps, below []uint32, of []float32) {
	const magic = 0x4b400000 // 1.5*2^23, in which assembly counts
	for cell := range below {
		thresholds[cell], below[cell] = math.Float32bits(float32(math.Inf(1))), magic
	}
	place := func(cell int) int { // among all cells by their numbers
		if cell < 16 {
			return 16 + cell
		}
		return 31 - cell
	}
	for _, t := range of {
		its := firstCell(t)
		thresholds[its], halfSteps[its] = math.Float32bits(t), halfStep(t)
		for cell := range below {
			if place(cell) > place(its) {
				below[cell]++
			}
		}
	}
}

// firstCell is the cell of a number r of first moments.
func firstCell(r float32) int {
	x := 1.1952 * float64(r)
	cell := (math.Ilogb(x*x+1.0/14000) + 127) & 15
	if r < 0 {
		return cell + 16
	}
	return cell
}

// halfStep is half the distance to the next float32.
func halfStep(x float32) uint32 {
	return math.Float32bits((math.Nextafter32(x, 2) - x) / 2)
}
