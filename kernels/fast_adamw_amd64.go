//go:build !purego

package kernels

import (
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The implementations of the four pairs of formats, in the order of adamWPairs.
var (
	adamWFloat32AVX2 = [len(adamWPairs)][]Impl[AdamWFunc]{
		avx2[AdamWFunc](adamWElements(amd64.AdamWF32WF32GF32AVX2)),
		avx2[AdamWFunc](adamWElements(amd64.AdamWF32WBF16GBF16AVX2)),
		avx2[AdamWFunc](adamWElements(amd64.AdamWF32WBF16GF32AVX2)),
		avx2[AdamWFunc](adamWElements(amd64.AdamWF32WF32GBF16AVX2)),
	}
	adamWBF16AVX2 = [len(adamWPairs)][]Impl[AdamWFunc]{
		avx2[AdamWFunc](adamWElements(amd64.AdamWBF16WF32GF32AVX2)),
		avx2[AdamWFunc](adamWElements(amd64.AdamWBF16WBF16GBF16AVX2)),
		avx2[AdamWFunc](adamWElements(amd64.AdamWBF16WBF16GF32AVX2)),
		avx2[AdamWFunc](adamWElements(amd64.AdamWBF16WF32GBF16AVX2)),
	}
	adamW8bitAVX2 = [len(adamWPairs)][]Impl[AdamWFunc]{
		avx2[AdamWFunc](adamWBlocks(amd64.AdamW8bitWF32GF32AVX2)),
		avx2[AdamWFunc](adamWBlocks(amd64.AdamW8bitWBF16GBF16AVX2)),
		avx2[AdamWFunc](adamWBlocks(amd64.AdamW8bitWBF16GF32AVX2)),
		avx2[AdamWFunc](adamWBlocks(amd64.AdamW8bitWF32GBF16AVX2)),
	}
)

// adamW4bitAVX2 serves every pair of formats, with either second moment.
var adamW4bitAVX2 = [len(adamWPairs)][]Impl[AdamWFunc]{
	avx2[AdamWFunc](adamWNibbles), avx2[AdamWFunc](adamWNibbles), avx2[AdamWFunc](adamWNibbles), avx2[AdamWFunc](adamWNibbles),
}

// number is a float32 or the bits of a bf16.
type number interface{ float32 | uint16 }

// view is the vector's memory as the format that it has.
func view[T number](f Floats) []T {
	if f.BF16 != nil {
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(f.BF16))), len(f.BF16))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(f.F32))), len(f.F32))
}

// adamWScalars are the numbers of a step in the order that assembly reads them in, which
// is that of the first fields of AdamWScalars.
func adamWScalars(s *AdamWScalars) *[11]float32 {
	return (*[11]float32)(unsafe.Pointer(&s.GradScale))
}

// plainAdamW tells whether assembly does this step: with torch's order of operations,
// stored to nearest, without a split master.
func plainAdamW(t *AdamWTensors, s *AdamWScalars) bool {
	return !s.Optax && t.Low == nil && !s.Rounding.StochasticWeights && !s.Rounding.StochasticMoments
}

// The signatures of the fused kernels.
type (
	elementsStep[W, G, M number] func(w []W, g []G, m, v []M, s *[11]float32, nesterov, skip bool) int
	blocksStep[W, G number]      func(w []W, g []G, mCodes, vCodes []uint8, mScales, vScales []float32, block int,
		mTable, vTable *[256]float32, mCells, vCells []uint32, mDivisor, vDivisor float32, s *[11]float32,
		nesterov, skip bool, scratch *[6192]float32, counts *[3]int64)
)

func adamWElements[W, G, M number](step elementsStep[W, G, M]) AdamWFunc {
	return func(t AdamWTensors, s *AdamWScalars) Counts {
		if !plainAdamW(&t, s) {
			return adamWByParts(t, s)
		}
		return step.run(&t, s)
	}
}

func (step elementsStep[W, G, M]) run(t *AdamWTensors, s *AdamWScalars) Counts {
	w, g, m, v := view[W](t.Weights), view[G](t.Gradients), view[M](t.M.Floats), view[M](t.V.Floats)
	race.Write(w)
	race.Read(g)
	race.Write(m)
	race.Write(v)
	c := Counts{NonFinite: int64(step(w, g, m, v, adamWScalars(s), s.Nesterov, s.SkipNonFinite))}
	if s.SkipNonFinite {
		c.SkippedElements = c.NonFinite
	}
	return c
}

const adamWLargestBlock = 2048

func adamWBlocks[W, G number](step blocksStep[W, G]) AdamWFunc {
	return func(t AdamWTensors, s *AdamWScalars) Counts {
		if t.M.Format.Block > adamWLargestBlock || t.M.Format.Codebook.Cells() == nil || t.V.Format.Codebook.Cells() == nil {
			return reference.AdamW(t, s)
		}
		if !plainAdamW(&t, s) {
			return adamWByParts(t, s)
		}
		work := adamWWork.Get().(*adamWScratch)
		c := step.run(&t, s, work)
		adamWWork.Put(work)
		return c
	}
}

func (step blocksStep[W, G]) run(t *AdamWTensors, s *AdamWScalars, work *adamWScratch) Counts {
	m, v, w, g := &t.M, &t.V, view[W](t.Weights), view[G](t.Gradients)
	race.Write(w)
	race.Read(g)
	race.Write(m.Codes)
	race.Write(v.Codes)
	race.Write(m.Scales)
	race.Write(v.Scales)
	work.counts = [3]int64{}
	step(w, g, m.Codes, v.Codes, m.Scales, v.Scales, m.Format.Block,
		m.Format.Codebook.Table(), v.Format.Codebook.Table(), m.Format.Codebook.Cells(), v.Format.Codebook.Cells(),
		m.Format.ScaleDivisor(), v.Format.ScaleDivisor(), adamWScalars(s),
		s.Nesterov, s.SkipNonFinite, &work.numbers, &work.counts)
	return Counts{NonFinite: work.counts[0], SkippedElements: work.counts[1], SkippedBlocks: work.counts[2]}
}

// adamWScratch is the memory that a step of 8-bit blocks needs beside its tensors.
type adamWScratch struct {
	numbers    [6192]float32
	counts     [3]int64
	w, g, m, v [adamWLargestBlock]float32 // of a part
	scalars    AdamWScalars
}

var adamWWork = sync.Pool{New: func() any { return new(adamWScratch) }}

// adamWByParts does what the fused kernels do not: it widens a part that fits the
// first-level cache to float32, steps it there, and stores it stochastically or with the
// lower halves of a master.
func adamWByParts(t AdamWTensors, s *AdamWScalars) (c Counts) {
	if s.Optax {
		return reference.AdamW(t, s)
	}
	size := adamWLargestBlock
	if t.M.Quantized() {
		size = adamWLargestBlock / t.M.Format.Block * t.M.Format.Block
	}
	work := adamWWork.Get().(*adamWScratch)
	for lo := 0; lo < t.Weights.Len(); lo += size {
		part := t.Slice(lo, lo+min(size, t.Weights.Len()-lo))
		c.Add(work.step(&part, s))
	}
	adamWWork.Put(work)
	return c
}

func (work *adamWScratch) step(t *AdamWTensors, s *AdamWScalars) Counts {
	wide := *t
	wide.Low = nil
	wide.Weights = widenAVX2To(work.w[:], t.Weights)
	if t.Low != nil {
		race.Read(t.Low)
		amd64.JoinAVX2(wide.Weights.F32, uint16s(t.Weights.BF16), t.Low)
	}
	wide.Gradients = widenAVX2To(work.g[:], t.Gradients)
	wide.M.Floats = widenAVX2To(work.m[:], t.M.Floats)
	wide.V.Floats = widenAVX2To(work.v[:], t.V.Floats)
	if s.SkipNonFinite && (hasNaN(wide.Weights) || hasNaN(wide.M.Floats) || hasNaN(wide.V.Floats)) {
		return reference.AdamW(*t, s) // what is skipped keeps its bits, and a NaN would not
	}
	var c Counts
	if t.M.Quantized() {
		c = blocksStep[float32, float32](amd64.AdamW8bitWF32GF32AVX2).run(&wide, s, work)
	} else {
		c = elementsStep[float32, float32, float32](amd64.AdamWF32WF32GF32AVX2).run(&wide, s)
	}
	r := &s.Rounding
	storeAVX2(t, wide.Weights, r)
	narrowAVX2(t.M.Floats, wide.M.Floats, Stream{Seed: r.SeedM, Step: r.Step, First: t.First}, r.StochasticMoments)
	narrowAVX2(t.V.Floats, wide.V.Floats, Stream{Seed: r.SeedV, Step: r.Step, First: t.First}, r.StochasticMoments)
	return c
}

// storeAVX2 stores the new weights.
func storeAVX2(t *AdamWTensors, weights Floats, r *AdamWRounding) {
	if t.Low == nil {
		narrowAVX2(t.Weights, weights, Stream{Seed: r.SeedW, Step: r.Step, First: t.First}, r.StochasticWeights)
		return
	}
	race.Write(t.Weights.BF16)
	race.Write(t.Low)
	amd64.SplitAVX2(uint16s(t.Weights.BF16), t.Low, weights.F32)
}

// adamWNibbles steps parts that fit the first-level cache, decoded to float32. What is not
// finite is left to the reference, block by block.
func adamWNibbles(t AdamWTensors, s *AdamWScalars) (c Counts) {
	f := t.M.Format
	if s.Optax || f.Block > adamWLargestBlock || !wholeBytes(f, t.Weights.Len()) {
		return reference.AdamW(t, s)
	}
	size := adamWLargestBlock / f.Block * f.Block
	work := adamWWork.Get().(*adamWScratch)
	for lo := 0; lo < t.Weights.Len(); lo += size {
		part := t.Slice(lo, lo+min(size, t.Weights.Len()-lo))
		if !work.stepNibbles(&part, s) {
			c.Add(reference.AdamW(part, s))
		}
	}
	adamWWork.Put(work)
	return c
}

// stepNibbles reports whether all was finite; else nothing has changed.
func (work *adamWScratch) stepNibbles(t *AdamWTensors, s *AdamWScalars) bool {
	n := t.Weights.Len()
	wide := AdamWTensors{Weights: Floats{F32: work.w[:n]}, Gradients: widenAVX2To(work.g[:], t.Gradients)}
	switch {
	case t.Low != nil:
		race.Read(t.Low)
		amd64.JoinAVX2(wide.Weights.F32, uint16s(t.Weights.BF16), t.Low)
	case t.Weights.BF16 != nil:
		widenAVX2(wide.Weights.F32, t.Weights.BF16)
	default:
		copy(wide.Weights.F32, t.Weights.F32)
	}
	wide.M.F32, wide.V.F32 = work.m[:n], work.v[:n]
	dequantize4AVX2(wide.M.F32, t.M.Codes, t.M.Scales, t.M.Format)
	work.scalars = *s
	work.scalars.SkipNonFinite = false
	if t.V.Factored() {
		t.V.Product(wide.V.F32, t.First)
		work.scalars.Beta2, work.scalars.OneMinusBeta2 = 1, 0 // v is new already
	} else {
		dequantize4AVX2(wide.V.F32, t.V.Codes, t.V.Scales, t.V.Format)
	}
	if elementsStep[float32, float32, float32](amd64.AdamWF32WF32GF32AVX2).run(&wide, &work.scalars).NonFinite > 0 {
		return false
	}
	if t.Weights.F32 != nil {
		copy(t.Weights.F32, wide.Weights.F32)
	} else {
		storeAVX2(t, wide.Weights, &s.Rounding)
	}
	quantize4AVX2(t.M.Codes, t.M.Scales, wide.M.F32, t.M.Format)
	if !t.V.Factored() {
		quantize4AVX2(t.V.Codes, t.V.Scales, wide.V.F32, t.V.Format)
	}
	return true
}

// widenAVX2To is x in float32, in the memory of scratch if x is bf16.
func widenAVX2To(scratch []float32, x Floats) Floats {
	if x.BF16 == nil {
		return x
	}
	wide := scratch[:x.Len()]
	widenAVX2(wide, x.BF16)
	return Floats{F32: wide}
}

// narrowAVX2 stores x in dst, if that is bf16; else dst is x.
func narrowAVX2(dst, x Floats, s Stream, stochastic bool) {
	switch {
	case dst.BF16 == nil:
	case stochastic:
		stochasticAVX2(dst.BF16, x.F32, s)
	default:
		roundAVX2(dst.BF16, x.F32)
	}
}

func hasNaN(x Floats) bool {
	largest := absmaxAVX2(x.F32)
	return largest != largest
}
