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

func adamWElements[W, G, M number](step func(w []W, g []G, m, v []M, s *[11]float32, nesterov, skip bool) int) AdamWFunc {
	return func(t AdamWTensors, s *AdamWScalars) Counts {
		if !plainAdamW(&t, s) {
			return reference.AdamW(t, s)
		}
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
}

const adamWLargestBlock = 2048

func adamWBlocks[W, G number](step func(w []W, g []G, mCodes, vCodes []uint8, mScales, vScales []float32, block int,
	mTable, vTable *[256]float32, mCells, vCells []uint32, mDivisor, vDivisor float32, s *[11]float32,
	nesterov, skip bool, scratch *[6192]float32, counts *[3]int64)) AdamWFunc {
	return func(t AdamWTensors, s *AdamWScalars) Counts {
		m, v := &t.M, &t.V
		mCells, vCells := m.Format.Codebook.Cells(), v.Format.Codebook.Cells()
		if !plainAdamW(&t, s) || m.Format.Block > adamWLargestBlock || mCells == nil || vCells == nil {
			return reference.AdamW(t, s)
		}
		w, g := view[W](t.Weights), view[G](t.Gradients)
		race.Write(w)
		race.Read(g)
		race.Write(m.Codes)
		race.Write(v.Codes)
		race.Write(m.Scales)
		race.Write(v.Scales)
		work := adamWWork.Get().(*adamWScratch)
		work.counts = [3]int64{}
		step(w, g, m.Codes, v.Codes, m.Scales, v.Scales, m.Format.Block,
			m.Format.Codebook.Table(), v.Format.Codebook.Table(), mCells, vCells,
			m.Format.ScaleDivisor(), v.Format.ScaleDivisor(), adamWScalars(s),
			s.Nesterov, s.SkipNonFinite, &work.numbers, &work.counts)
		c := Counts{NonFinite: work.counts[0], SkippedElements: work.counts[1], SkippedBlocks: work.counts[2]}
		adamWWork.Put(work)
		return c
	}
}

// adamWScratch is the memory that a step of 8-bit blocks needs beside its tensors.
type adamWScratch struct {
	numbers [6192]float32
	counts  [3]int64
}

var adamWWork = sync.Pool{New: func() any { return new(adamWScratch) }}
