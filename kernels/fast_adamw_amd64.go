//go:build !purego

package kernels

import (
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The implementations of the four pairs of formats, in the order of adamWPairs.
var (
	adamWFloat32 = [len(adamWPairs)][]Impl[AdamWFunc]{
		adamWElements(amd64.AdamWF32WF32GF32AVX2, amd64.AdamWF32WF32GF32AVX512),
		adamWElements(amd64.AdamWF32WBF16GBF16AVX2, amd64.AdamWF32WBF16GBF16AVX512),
		adamWElements(amd64.AdamWF32WBF16GF32AVX2, amd64.AdamWF32WBF16GF32AVX512),
		adamWElements(amd64.AdamWF32WF32GBF16AVX2, amd64.AdamWF32WF32GBF16AVX512),
	}
	adamWBF16 = [len(adamWPairs)][]Impl[AdamWFunc]{
		adamWElements(amd64.AdamWBF16WF32GF32AVX2, amd64.AdamWBF16WF32GF32AVX512),
		adamWElements(amd64.AdamWBF16WBF16GBF16AVX2, amd64.AdamWBF16WBF16GBF16AVX512),
		adamWElements(amd64.AdamWBF16WBF16GF32AVX2, amd64.AdamWBF16WBF16GF32AVX512),
		adamWElements(amd64.AdamWBF16WF32GBF16AVX2, amd64.AdamWBF16WF32GBF16AVX512),
	}
	adamW8bit = [len(adamWPairs)][]Impl[AdamWFunc]{
		adamWBlocks(amd64.AdamW8bitWF32GF32AVX2),
		adamWBlocks(amd64.AdamW8bitWBF16GBF16AVX2),
		adamWBlocks(amd64.AdamW8bitWBF16GF32AVX2),
		adamWBlocks(amd64.AdamW8bitWF32GBF16AVX2),
	}
)

// adamW4bit serves every pair of formats, with either second moment.
var adamW4bit = [len(adamWPairs)][]Impl[AdamWFunc]{adamWNibbles, adamWNibbles, adamWNibbles, adamWNibbles}

var adamWNibbles = avx512[AdamWFunc]("avx512", 0, adamWAVX512.nibbles, avx2[AdamWFunc](adamWAVX2.nibbles))

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

func adamWElements[W, G, M number](forAVX2, forAVX512 elementsStep[W, G, M]) []Impl[AdamWFunc] {
	return avx512[AdamWFunc]("avx512", 0, forAVX512.with(&adamWAVX512), avx2[AdamWFunc](forAVX2.with(&adamWAVX2)))
}

func (step elementsStep[W, G, M]) with(parts *adamWParts) AdamWFunc {
	return func(t *AdamWTensors, s *AdamWScalars) Counts {
		switch {
		case !parts.takes(s):
			return reference.AdamW(*t, s)
		case !plainAdamW(t, s):
			return parts.step(t, s)
		}
		return step.run(t, s)
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

func adamWBlocks[W, G number](forAVX2 blocksStep[W, G]) []Impl[AdamWFunc] {
	return avx2[AdamWFunc](forAVX2.with(&adamWAVX2))
}

func (step blocksStep[W, G]) with(parts *adamWParts) AdamWFunc {
	return func(t *AdamWTensors, s *AdamWScalars) Counts {
		switch {
		case t.M.Format.Block > adamWLargestBlock:
			return reference.AdamW(*t, s)
		case !plainAdamW(t, s) || t.M.Format.Codebook.Cells() == nil || t.V.Format.Codebook.Cells() == nil:
			return parts.step(t, s)
		}
		work := adamWWork.Get().(*adamWScratch)
		c := step.run(t, s, work)
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
