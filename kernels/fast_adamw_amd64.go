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

// withMany gives the implementations, best first, what steps many parameters.
func withMany(impls []Impl[AdamWFunc], many ...adamWManyFunc) []Impl[AdamWFunc] {
	for i := range impls {
		impls[i].many = many[i]
	}
	return impls
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
	elementsStep func(parameters [][adamWCallWords]uintptr, s *[11]float32, nesterov, skip bool) int
	blocksStep   func(parameters [][adamWCallWords]uintptr, block int, mTable, vTable *[256]float32,
		mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32,
		nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)
	planesStep func(parameters [][adamWCallWords]uintptr, block int, planes *[1536]uint8,
		mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32,
		nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)
)

func adamWElements(forAVX2, forAVX512 elementsStep) []Impl[AdamWFunc] {
	in512, in2 := adamWNumbers{&adamWAVX512, forAVX512}, adamWNumbers{&adamWAVX2, forAVX2}
	return withMany(avx512[AdamWFunc]("avx512", 0, in512.one, avx2[AdamWFunc](in2.one)), in512.many, in2.many)
}

// adamWNumbers is the step of moments that are numbers.
type adamWNumbers struct {
	parts *adamWParts
	step  elementsStep
}

func (a adamWNumbers) one(t *AdamWTensors, s *AdamWScalars) Counts {
	switch {
	case !a.parts.takes(s):
		return reference.AdamW(*t, s)
	case !plainAdamW(t, s):
		return a.parts.step(t, s)
	}
	call := oneCall.Get().(*[1]adamWCall)
	call[0].adamWMemory = adamWMemoryOf(t)
	c := a.run(call[:], t, s)
	call[0] = adamWCall{} // the pool keeps nobody's slices alive
	oneCall.Put(call)
	return c
}

var oneCall = sync.Pool{New: func() any { return new([1]adamWCall) }}

func (a adamWNumbers) many(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) Counts {
	if !a.parts.takes(s) || !plainAdamW(t, s) {
		return AdamWFunc(a.one).each(t, calls, s)
	}
	return a.run(calls, t, s)
}

// run steps parameters in memory; of t it takes the formats.
func (a adamWNumbers) run(calls []adamWCall, t *AdamWTensors, s *AdamWScalars) Counts {
	touch(calls, t)
	nonFinite := int64(a.step(callWords(calls), adamWScalars(s), s.Nesterov, s.SkipNonFinite))
	if s.SkipNonFinite {
		return Counts{NonFinite: nonFinite, SkippedElements: nonFinite}
	}
	return Counts{NonFinite: nonFinite}
}

// touch tells the race detector of parameters of t's formats, but for their factors.
func touch(calls []adamWCall, t *AdamWTensors) {
	if !race.Enabled {
		return
	}
	for i := range calls {
		at, touched := &calls[i].adamWMemory, *t
		at.fill(&touched)
		race.Read(touched.Gradients.F32)
		race.Read(touched.Gradients.BF16)
		for _, f := range []Floats{touched.Weights, touched.M.Floats, touched.V.Floats} {
			race.Write(f.F32)
			race.Write(f.BF16)
		}
		for _, m := range []*Moment{&touched.M, &touched.V} {
			race.Write(m.Codes)
			race.Write(m.Scales)
		}
	}
}

// adamWCallWords is the size of what assembly takes parameters from.
const adamWCallWords = 11

var _ = [1]struct{}{}[unsafe.Sizeof(adamWCall{})-8*adamWCallWords]

func callWords(calls []adamWCall) [][adamWCallWords]uintptr {
	return unsafe.Slice((*[adamWCallWords]uintptr)(unsafe.Pointer(unsafe.SliceData(calls))), len(calls))
}

const adamWLargestBlock = 4096

func adamWBlocks(forAVX2 blocksStep, forAVX512 planesStep) []Impl[AdamWFunc] {
	in512, in2 := adamW8bitStep{&adamWAVX512VBMI, forAVX512.run}, adamW8bitStep{&adamWAVX2, forAVX2.run}
	return withMany(avx512[AdamWFunc]("avx512vbmi", cpufeature.VBMI, in512.one, avx2[AdamWFunc](in2.one)), in512.many, in2.many)
}

// adamW8bitStep is the step of 8-bit codes, fused for those of the dynamic codebooks.
type adamW8bitStep struct {
	parts *adamWParts
	fused func(calls []adamWCall, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) // of t the formats
}

func (step adamW8bitStep) one(t *AdamWTensors, s *AdamWScalars) Counts {
	switch {
	case !step.parts.takes(s) || t.M.Format.Block > adamWLargestBlock:
		return reference.AdamW(*t, s)
	case !step.fuses(t, s):
		return step.parts.step(t, s)
	}
	work := adamWWork.Get().(*adamWScratch)
	work.call[0].adamWMemory = adamWMemoryOf(t)
	step.fused(work.call[:], t, s, work)
	work.call[0] = adamWCall{} // the pool keeps nobody's slices alive
	return work.taken()
}

func (step adamW8bitStep) many(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) Counts {
	if !step.parts.takes(s) || t.M.Format.Block > adamWLargestBlock || !step.fuses(t, s) {
		return AdamWFunc(step.one).each(t, calls, s)
	}
	work := adamWWork.Get().(*adamWScratch)
	step.fused(calls, t, s, work)
	return work.taken()
}

func (adamW8bitStep) fuses(t *AdamWTensors, s *AdamWScalars) bool {
	return plainAdamW(t, s) && t.M.Format.Codebook == codebook.Dynamic8() && t.V.Format.Codebook == codebook.Dynamic8Unsigned()
}

// taken gives the scratch back, and its counts to the caller.
func (work *adamWScratch) taken() Counts {
	c := Counts{NonFinite: work.counts[0], SkippedElements: work.counts[1], SkippedBlocks: work.counts[2]}
	work.counts = [3]int64{}
	adamWWork.Put(work)
	return c
}

func (step blocksStep) run(calls []adamWCall, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	touch(calls, t)
	m, v := &t.M.Format, &t.V.Format
	step(callWords(calls), m.Block, m.Codebook.Table(), v.Codebook.Table(), m.Codebook.Thresholds(), v.Codebook.Thresholds(),
		m.ScaleDivisor(), v.ScaleDivisor(), adamWScalars(s),
		s.Nesterov, s.SkipNonFinite, work.forBytes(), &work.counts)
}

func (step planesStep) run(calls []adamWCall, t *AdamWTensors, s *AdamWScalars, work *adamWScratch) {
	touch(calls, t)
	m, v := &t.M.Format, &t.V.Format
	step(callWords(calls), m.Block, dynamicPlanes(), m.Codebook.Thresholds(), v.Codebook.Thresholds(),
		m.ScaleDivisor(), v.ScaleDivisor(), adamWScalars(s),
		s.Nesterov, s.SkipNonFinite, work.forBytes(), &work.counts)
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
