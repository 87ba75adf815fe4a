//go:build !purego

package kernels

import (
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// adamWParts does what the fused kernels do not: it widens a part that fits the first-level
// cache to float32, steps it there, and stores it stochastically, with the lower halves of
// a master, or in codes that have no kernel of their own.
type adamWParts struct {
	reciprocal               bool // of RootCorrection2 is what the elements' step multiplies by
	elements                 elementsStep[float32, float32, float32]
	optax                    func(w, g, m, v []float32, s *[15]float32, nesterov bool) int
	widen                    WidenFunc
	round                    RoundFunc
	stochastic               StochasticFunc
	join                     func(dst []float32, weights, low []uint16)
	split                    func(weights, low []uint16, src []float32)
	dequantize8, dequantize4 DequantizeFunc
	quantize8, quantize4     QuantizeFunc
	product                  func(dst, col []float32, row float32)
}

var adamWAVX2 = adamWParts{
	elements: amd64.AdamWF32WF32GF32AVX2, optax: amd64.AdamWOptaxAVX2,
	widen: widenAVX2, round: roundAVX2, stochastic: stochasticAVX2, join: amd64.JoinAVX2, split: amd64.SplitAVX2,
	dequantize8: dequantizeAVX2, dequantize4: dequantize4AVX2, quantize8: quantizeAVX2, quantize4: quantize4AVX2,
	product: amd64.ProductAVX2,
}

var adamWAVX512 = adamWParts{
	reciprocal: true, elements: amd64.AdamWF32WF32GF32AVX512, optax: amd64.AdamWOptaxAVX512,
	widen: widenAVX512, round: roundAVX512, stochastic: stochasticAVX512, join: amd64.JoinAVX512, split: amd64.SplitAVX512,
	dequantize4: dequantize4AVX512, quantize4: quantize4AVX512,
	product: amd64.ProductAVX512,
}

// adamWAVX512VBMI is for 8-bit codes; those of tables that are not the dynamic maps' are found by AVX2.
var adamWAVX512VBMI = adamWParts{
	reciprocal: true, elements: amd64.AdamWF32WF32GF32AVX512, optax: amd64.AdamWOptaxAVX512,
	widen: widenAVX512, round: roundAVX512, stochastic: stochasticAVX512, join: amd64.JoinAVX512, split: amd64.SplitAVX512,
	dequantize8: dequantizeAVX512, quantize8: quantize8AVX512,
}

func quantize8AVX512(codes []uint8, scales, x []float32, f Format) (poisoned int) {
	switch f.Codebook {
	case codebook.Dynamic8():
		return dynamicQuantize(amd64.QuantizeDynamic8AVX512).run(codes, scales, x, f)
	case codebook.Dynamic8Unsigned():
		return dynamicQuantize(amd64.QuantizeDynamic8UnsignedAVX512).run(codes, scales, x, f)
	}
	return quantizeAVX2(codes, scales, x, f)
}

// takes tells whether the step's numbers are such as its assembly is for: a reciprocal is
// far from overflow and underflow for all that training has.
func (p *adamWParts) takes(s *AdamWScalars) bool {
	const least, most = 0x1p-24, 0x1p24
	return !p.reciprocal || s.Optax || least <= s.RootCorrection2 && s.RootCorrection2 <= most
}

// adamWScratch is the memory that a step needs beside its tensors.
type adamWScratch struct {
	numbers    [6192]float32
	counts     [3]int64
	w, g, m, v [adamWLargestBlock]float32 // of a part
	part, wide AdamWTensors
	scalars    AdamWScalars
}

var adamWWork = sync.Pool{New: func() any { return new(adamWScratch) }}

// nibbles is the step of 4-bit codes.
func (p *adamWParts) nibbles(t *AdamWTensors, s *AdamWScalars) Counts {
	if f := t.M.Format; !p.takes(s) || f.Block > adamWLargestBlock || !wholeBytes(f, t.Weights.Len()) {
		return reference.AdamW(*t, s)
	}
	return p.step(t, s)
}

const adamWPart = 1024

func (p *adamWParts) step(t *AdamWTensors, s *AdamWScalars) (c Counts) {
	size := adamWPart
	if block := t.M.Format.Block; t.M.Quantized() {
		size = max(adamWPart/block, 1) * block
	}
	work := adamWWork.Get().(*adamWScratch)
	for lo := 0; lo < t.Weights.Len(); lo += size {
		work.part = t.Slice(lo, lo+min(size, t.Weights.Len()-lo))
		c.Add(p.stepPart(&work.part, s, work))
	}
	work.part, work.wide = AdamWTensors{}, AdamWTensors{} // the pool keeps nobody's slices alive
	adamWWork.Put(work)
	return c
}

// stepPart leaves to the reference what is not finite, if that is to be skipped or coded.
func (p *adamWParts) stepPart(t *AdamWTensors, s *AdamWScalars, work *adamWScratch) (c Counts) {
	n := t.Weights.Len()
	wide := &work.wide
	*wide = AdamWTensors{Weights: Floats{F32: work.w[:n]}, Gradients: t.Gradients}
	wide.M.F32, wide.V.F32 = work.m[:n], work.v[:n]
	p.loadWeights(wide.Weights.F32, t)
	if t.Gradients.BF16 != nil {
		wide.Gradients = Floats{F32: work.g[:n]}
		p.widen(wide.Gradients.F32, t.Gradients.BF16)
	}
	p.loadMoment(wide.M.F32, &t.M, t.First)
	p.loadMoment(wide.V.F32, &t.V, t.First)
	work.scalars = *s
	work.scalars.SkipNonFinite = false
	if t.V.Factored() {
		work.scalars.Beta2, work.scalars.OneMinusBeta2 = 1, 0 // v is new already
	}
	c.NonFinite = p.stepWide(wide, &work.scalars)
	if c.NonFinite > 0 && (s.SkipNonFinite || t.M.Quantized()) {
		return reference.AdamW(*t, s)
	}
	r := &s.Rounding
	p.storeWeights(t, wide.Weights.F32, r)
	p.storeMoment(&t.M, wide.M.F32, Stream{Seed: r.SeedM, Step: r.Step, First: t.First}, r.StochasticMoments)
	p.storeMoment(&t.V, wide.V.F32, Stream{Seed: r.SeedV, Step: r.Step, First: t.First}, r.StochasticMoments)
	return c
}

func (p *adamWParts) stepWide(t *AdamWTensors, s *AdamWScalars) (nonFinite int64) {
	if !s.Optax {
		return p.elements.run(t, s).NonFinite
	}
	race.Read(t.Gradients.F32)
	return int64(p.optax(t.Weights.F32, t.Gradients.F32, t.M.F32, t.V.F32, (*[15]float32)(unsafe.Pointer(&s.GradScale)), s.Nesterov))
}

func (p *adamWParts) loadWeights(dst []float32, t *AdamWTensors) {
	if t.Low != nil {
		race.Read(t.Weights.BF16)
		race.Read(t.Low)
		p.join(dst, uint16s(t.Weights.BF16), t.Low)
		return
	}
	p.load(dst, t.Weights)
}

func (p *adamWParts) load(dst []float32, x Floats) {
	if x.BF16 != nil {
		p.widen(dst, x.BF16)
	} else {
		copy(dst, x.F32)
	}
}

func (p *adamWParts) loadMoment(dst []float32, m *Moment, first int64) {
	switch {
	case m.Factored():
		p.multiplyFactors(dst, m, first)
	case !m.Quantized():
		p.load(dst, m.Floats)
	case m.Format.Codebook.Bits() == 4:
		p.dequantize4(dst, m.Codes, m.Scales, m.Format)
	default:
		p.dequantize8(dst, m.Codes, m.Scales, m.Format)
	}
}

// multiplyFactors is Moment.Product.
func (p *adamWParts) multiplyFactors(dst []float32, m *Moment, first int64) {
	race.Read(m.Col)
	cols := int64(len(m.Col))
	for row, col := first/cols, first%cols; len(dst) > 0; row, col = row+1, 0 {
		n := min(cols-col, int64(len(dst)))
		p.product(dst[:n], m.Col[col:col+n], m.Row[row])
		dst = dst[n:]
	}
}

func (p *adamWParts) storeWeights(t *AdamWTensors, weights []float32, r *AdamWRounding) {
	if t.Low != nil {
		race.Write(t.Weights.BF16)
		race.Write(t.Low)
		p.split(uint16s(t.Weights.BF16), t.Low, weights)
		return
	}
	p.store(t.Weights, weights, Stream{Seed: r.SeedW, Step: r.Step, First: t.First}, r.StochasticWeights)
}

func (p *adamWParts) storeMoment(m *Moment, x []float32, s Stream, stochastic bool) {
	switch {
	case m.Factored():
	case !m.Quantized():
		p.store(m.Floats, x, s, stochastic)
	case m.Format.Codebook.Bits() == 4:
		p.quantize4(m.Codes, m.Scales, x, m.Format)
	default:
		p.quantize8(m.Codes, m.Scales, x, m.Format)
	}
}

func (p *adamWParts) store(dst Floats, x []float32, s Stream, stochastic bool) {
	switch {
	case dst.BF16 == nil:
		copy(dst.F32, x)
	case stochastic:
		p.stochastic(dst.BF16, x, s)
	default:
		p.round(dst.BF16, x)
	}
}
