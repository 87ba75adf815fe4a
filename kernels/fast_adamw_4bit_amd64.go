//go:build !purego

package kernels

import (
	"math"
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
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
		adamWNibbles(factoredStep[float32, float32](amd64.AdamW4bitFactoredWF32GF32AVX512).run),
		adamWNibbles(factoredStep[uint16, uint16](amd64.AdamW4bitFactoredWBF16GBF16AVX512).run),
		adamWNibbles(factoredStep[uint16, float32](amd64.AdamW4bitFactoredWBF16GF32AVX512).run),
		adamWNibbles(factoredStep[float32, uint16](amd64.AdamW4bitFactoredWF32GBF16AVX512).run),
	}
)

// adamWNibbles are the implementations of a row: fused for AVX-512, and by parts.
func adamWNibbles(fused adamW4bitStep) []Impl[AdamWFunc] {
	return withMany(avx512[AdamWFunc]("avx512", 0, fused.one, avx2[AdamWFunc](adamWAVX2.nibbles)), fused.many, adamWAVX2.manyNibbles)
}

// adamW4bitStep steps a parameter in memory; of t it takes the formats and First.
type adamW4bitStep func(at *adamWMemory, t *AdamWTensors, s *AdamWScalars, work *adamWScratch)

// The signatures of the fused kernels.
type (
	nibblesStep[W, G number] func(w []W, g []G, mCodes, vCodes []uint8, mScales, vScales []float32, block int,
		tables *[160]uint32, mDivisor, vDivisor float32, s *[11]float32,
		nesterov, skip, highFirst bool, scratch *[7216]float32, counts *[3]int64)
	factoredStep[W, G number] func(w []W, g []G, mCodes []uint8, v, mScales []float32, block int,
		tables *[160]uint32, mDivisor float32, s *[11]float32,
		nesterov, skip, highFirst bool, scratch *[7216]float32, counts *[3]int64)
)

func (step adamW4bitStep) one(t *AdamWTensors, s *AdamWScalars) Counts {
	if !step.fuses(t, s) || !wholeBytes(t.M.Format, t.Weights.Len()) {
		return adamWAVX512.nibbles(t, s)
	}
	work := adamWWork.Get().(*adamWScratch)
	work.at = adamWMemoryOf(t)
	step(&work.at, t, s, work)
	work.at = adamWMemory{} // the pool keeps nobody's slices alive
	return work.taken()
}

func (step adamW4bitStep) many(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) Counts {
	if !step.fuses(t, s) || t.M.Format.Block%2 != 0 {
		return adamWAVX512.manyNibbles(t, calls, s)
	}
	work := adamWWork.Get().(*adamWScratch)
	for i := range calls {
		step(&calls[i].adamWMemory, t, s, work)
	}
	return work.taken()
}

func (step adamW4bitStep) fuses(t *AdamWTensors, s *AdamWScalars) bool {
	m, v := &t.M.Format, &t.V.Format
	return adamWAVX512.takes(s) && plainAdamW(t, s) && m.Block <= nibblesLargestBlock && m.Codebook == codebook.DE4() &&
		(t.V.Factored() || v.Codebook == codebook.Linear4() && v.Nibble == m.Nibble)
}

func (step nibblesStep[W, G]) run(at *adamWMemory, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	m, v := &t.M.Format, &t.V.Format
	n, scales := at.n, (at.n-1)/m.Block+1
	w, g := unsafe.Slice((*W)(at.weights), n), unsafe.Slice((*G)(at.gradients), n)
	mCodes, vCodes := unsafe.Slice((*uint8)(at.m), (n+1)/2), unsafe.Slice((*uint8)(at.v), (n+1)/2)
	mScales, vScales := unsafe.Slice((*float32)(at.mScales), scales), unsafe.Slice((*float32)(at.vScales), scales)
	touchCodes(w, g, mCodes, vCodes, mScales, vScales)
	step(w, g, mCodes, vCodes, mScales, vScales, m.Block, nibbleTables(), m.ScaleDivisor(), v.ScaleDivisor(),
		adamWScalars(s), s.Nesterov, s.SkipNonFinite, m.Nibble == codebook.HighFirst, work.forNibbles(), &work.counts)
}

// run makes second moments of the factors a part at a time.
func (step factoredStep[W, G]) run(at *adamWMemory, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	m := &t.M.Format
	n, scales := at.n, (at.n-1)/m.Block+1
	w, g := unsafe.Slice((*W)(at.weights), n), unsafe.Slice((*G)(at.gradients), n)
	mCodes, mScales := unsafe.Slice((*uint8)(at.m), (n+1)/2), unsafe.Slice((*float32)(at.mScales), scales)
	touchCodes(w, g, mCodes, nil, mScales, nil)
	size := max(adamWPart/m.Block, 1) * m.Block
	for lo := 0; lo < n; lo += size {
		hi := lo + min(size, n-lo)
		values := work.v[:hi-lo]
		adamWAVX512.multiplyFactors(values, &t.V, t.First+int64(lo))
		step(w[lo:hi], g[lo:hi], mCodes[lo/2:], values, mScales[lo/m.Block:], m.Block, nibbleTables(), m.ScaleDivisor(),
			adamWScalars(s), s.Nesterov, s.SkipNonFinite, m.Nibble == codebook.HighFirst, work.forNibbles(), &work.counts)
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
