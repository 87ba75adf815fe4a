//go:build !purego

package kernels

import (
	"math"
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
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
		adamWBlocks(amd64.AdamW8bitWF32GF32AVX2, amd64.AdamW8bitWF32GF32AVX512VBMI),
		adamWBlocks(amd64.AdamW8bitWBF16GBF16AVX2, amd64.AdamW8bitWBF16GBF16AVX512VBMI),
		adamWBlocks(amd64.AdamW8bitWBF16GF32AVX2, amd64.AdamW8bitWBF16GF32AVX512VBMI),
		adamWBlocks(amd64.AdamW8bitWF32GBF16AVX2, amd64.AdamW8bitWF32GBF16AVX512VBMI),
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
	dynamicBlocksStep[W, G number] func(w []W, g []G, mCodes, vCodes []uint8, mScales, vScales []float32, block int,
		planes *[1536]uint8, mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32,
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

func adamWBlocks[W, G number](forAVX2 blocksStep[W, G], forAVX512 dynamicBlocksStep[W, G]) []Impl[AdamWFunc] {
	return avx512[AdamWFunc]("avx512vbmi", cpufeature.VBMI|cpufeature.AVX2|cpufeature.FMA, adamWAVX512VBMI.blocks(forAVX512.run, dynamicMoments),
		avx2[AdamWFunc](adamWAVX2.blocks(forAVX2.run, momentsInCells)))
}

// blocks is the step of 8-bit codes, fused where that takes the moments' codebooks.
func (p *adamWParts) blocks(fused func(*AdamWTensors, *AdamWScalars, *adamWScratch), takes func(m, v *codebook.Codebook) bool) AdamWFunc {
	return func(t *AdamWTensors, s *AdamWScalars) Counts {
		m, v := &t.M.Format, &t.V.Format
		switch {
		case !p.takes(s) || m.Block > adamWLargestBlock:
			return reference.AdamW(*t, s)
		case !plainAdamW(t, s) || !takes(m.Codebook, v.Codebook):
			return p.step(t, s)
		}
		w, g := &t.Weights, &t.Gradients
		race.Write(w.F32)
		race.Write(w.BF16)
		race.Read(g.F32)
		race.Read(g.BF16)
		for _, moment := range []*Moment{&t.M, &t.V} {
			race.Write(moment.Codes)
			race.Write(moment.Scales)
		}
		work := adamWWork.Get().(*adamWScratch)
		work.counts = [3]int64{}
		fused(t, s, work)
		counts := work.counts
		adamWWork.Put(work)
		return Counts{NonFinite: counts[0], SkippedElements: counts[1], SkippedBlocks: counts[2]}
	}
}

func momentsInCells(m, v *codebook.Codebook) bool { return m.Cells() != nil && v.Cells() != nil }

func dynamicMoments(m, v *codebook.Codebook) bool {
	return m == codebook.Dynamic8() && v == codebook.Dynamic8Unsigned()
}

func (step blocksStep[W, G]) run(t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	m, v := &t.M, &t.V
	step(view[W](t.Weights), view[G](t.Gradients), m.Codes, v.Codes, m.Scales, v.Scales, m.Format.Block,
		m.Format.Codebook.Table(), v.Format.Codebook.Table(), m.Format.Codebook.Cells(), v.Format.Codebook.Cells(),
		m.Format.ScaleDivisor(), v.Format.ScaleDivisor(), adamWScalars(s),
		s.Nesterov, s.SkipNonFinite, &work.numbers, &work.counts)
}

func (step dynamicBlocksStep[W, G]) run(t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	m, v := &t.M, &t.V
	step(view[W](t.Weights), view[G](t.Gradients), m.Codes, v.Codes, m.Scales, v.Scales, m.Format.Block,
		dynamicPlanes(), m.Format.Codebook.Thresholds(), v.Format.Codebook.Thresholds(),
		m.Format.ScaleDivisor(), v.Format.ScaleDivisor(), adamWScalars(s),
		s.Nesterov, s.SkipNonFinite, &work.numbers, &work.counts)
}

// dynamicPlanes are the bytes of the dynamic codebooks' values as assembly looks them up.
var dynamicPlanes = sync.OnceValue(func() *[1536]uint8 {
	planes, at := new([1536]uint8), 0
	plane := func(values []float32, shift int) {
		for _, x := range values {
			planes[at] = uint8(math.Float32bits(x) >> shift)
			at++
		}
	}
	m, v := codebook.Dynamic8().Table(), codebook.Dynamic8Unsigned().Table()
	for shift := 0; shift < 32; shift += 8 {
		plane(m[255:], shift)
		plane(m[128:255], shift)
	}
	for shift := 0; shift < 32; shift += 8 {
		plane(v[:], shift)
	}
	return planes
})
