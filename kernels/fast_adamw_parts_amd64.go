//go:build !purego

package kernels

import (
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// adamWParts does what the fused kernels do not: it widens a part to float32, steps it
// there, and stores it stochastically, with the lower halves of a master, or in codes that
// have no kernel of their own.
type adamWParts struct {
	kit
	reciprocal  bool // of RootCorrection2 is what the elements' step multiplies by
	elements    elementsStep
	optax       func(w, g, m, v []float32, s *[15]float32, nesterov bool) int
	dequantize4 DequantizeFunc
	quantize4   QuantizeFunc
	product     func(dst, col []float32, row float32)
}

var (
	adamWAVX2       = adamWParts{kitAVX2, false, amd64.AdamWF32WF32GF32AVX2, amd64.AdamWOptaxAVX2, dequantize4AVX2, quantize4AVX2, amd64.ProductAVX2}
	adamWAVX512     = adamWParts{kitAVX512, true, amd64.AdamWF32WF32GF32AVX512, amd64.AdamWOptaxAVX512, dequantize4AVX512, quantize4AVX512, amd64.ProductAVX512}
	adamWAVX512VBMI = adamWParts{kitAVX512VBMI, true, amd64.AdamWF32WF32GF32AVX512, amd64.AdamWOptaxAVX512, dequantize4AVX512, quantize4AVX512, amd64.ProductAVX512}
)

// takes tells whether the step's numbers are such as its assembly is for: a reciprocal is
// far from overflow and underflow for all that training has.
func (p *adamWParts) takes(s *AdamWScalars) bool {
	const least, most = 0x1p-24, 0x1p24
	return !p.reciprocal || s.Optax || least <= s.RootCorrection2 && s.RootCorrection2 <= most
}

// adamWScratch is the memory that a step needs beside its tensors.
type adamWScratch struct {
	adamWFloats
	counts  [3]int64
	codes   [2][adamWPart / 2]uint8 // of joined parameters
	scales  [2][adamWPart / 2]float32
	part    AdamWTensors
	call    [1]adamWCall // of one parameter
	scalars AdamWScalars
}

// adamWFloats are of a part, or the scratch of a fused kernel. A multiple of 4096 bytes
// between them would make loads wait for stores.
type adamWFloats struct {
	w, g, m, v [adamWLargestBlock + 64]float32
}

// forBytes is the scratch of fused kernels of 8-bit codes.
func (f *adamWFloats) forBytes() *[12336]float32 { return (*[12336]float32)(unsafe.Pointer(f)) }

// forNibbles is that of 4-bit codes, and leaves v.
func (f *adamWFloats) forNibbles() *[7216]float32 { return (*[7216]float32)(unsafe.Pointer(f)) }

// forFactors is that of the factors of small matrices, and leaves v.
func (f *adamWFloats) forFactors() *[2688]float32 { return (*[2688]float32)(f.w[:]) }

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
	if t.Weights.Len() <= size {
		c = p.stepPart(t, s, work)
		adamWWork.Put(work)
		return c
	}
	for lo := 0; lo < t.Weights.Len(); lo += size {
		work.part = t.Slice(lo, lo+min(size, t.Weights.Len()-lo))
		c.Add(p.stepPart(&work.part, s, work))
	}
	work.part = AdamWTensors{} // the pool keeps nobody's slices alive
	adamWWork.Put(work)
	return c
}

// stepPart leaves to the reference what is not finite, if that is to be skipped or coded.
func (p *adamWParts) stepPart(t *AdamWTensors, s *AdamWScalars, work *adamWScratch) Counts {
	n := t.Weights.Len()
	w, m, v, gradients := work.w[:n], work.m[:n], work.v[:n], t.Gradients.F32
	p.loadWeights(w, t.Weights, t.Low)
	if t.Gradients.BF16 != nil {
		gradients = work.g[:n]
		p.widen(gradients, t.Gradients.BF16)
	}
	p.loadMoment(m, &t.M, t.First)
	p.loadMoment(v, &t.V, t.First)
	c := Counts{NonFinite: p.stepWide(t, work, gradients, s)}
	if c.NonFinite > 0 && (s.SkipNonFinite || t.M.Quantized()) {
		return reference.AdamW(*t, s)
	}
	r := &s.Rounding
	p.storeWeights(t.Weights, t.Low, w, Stream{Seed: r.SeedW, Step: r.Step, First: t.First}, r.StochasticWeights)
	p.storeMoment(&t.M, m, Stream{Seed: r.SeedM, Step: r.Step, First: t.First}, r.StochasticMoments)
	p.storeMoment(&t.V, v, Stream{Seed: r.SeedV, Step: r.Step, First: t.First}, r.StochasticMoments)
	return c
}

// stepWide steps what the scratch holds of tensors like t, and skips nothing.
func (p *adamWParts) stepWide(t *AdamWTensors, work *adamWScratch, g []float32, s *AdamWScalars) (nonFinite int64) {
	n := len(g)
	race.Read(g)
	work.scalars = *s
	if t.V.Factored() {
		work.scalars.Beta2, work.scalars.OneMinusBeta2 = 1, 0 // v is new already
	}
	if s.Optax {
		return int64(p.optax(work.w[:n], g, work.m[:n], work.v[:n], (*[15]float32)(unsafe.Pointer(&work.scalars.GradScale)), s.Nesterov))
	}
	at := &work.call[0].adamWMemory
	*at = adamWMemory{weights: pointer(work.w[:]), gradients: pointer(g), m: pointer(work.m[:]), v: pointer(work.v[:]), n: n}
	nonFinite = int64(p.elements(callWords(work.call[:]), adamWScalars(&work.scalars), s.Nesterov, false))
	*at = adamWMemory{} // the pool keeps nobody's slices alive
	return nonFinite
}

// manyNibbles joins parameters of one length that have a block each: codes are taken apart
// and made for as many at a time as make a part.
func (p *adamWParts) manyNibbles(t *AdamWTensors, calls []adamWCall, s *AdamWScalars) (c Counts) {
	work := adamWWork.Get().(*adamWScratch)
	for len(calls) > 0 {
		same := equalShapes(calls)
		calls = calls[len(same):]
		n := same[0].n
		if len(same) == 1 || n%2 != 0 || n > min(t.M.Format.Block, adamWPart/2) || t.Low != nil || !p.takes(s) {
			c.Add(AdamWFunc(p.nibbles).each(t, same, s))
			continue
		}
		for len(same) > 0 {
			count := min(len(same), adamWPart/n)
			c.Add(p.joined(t, same[:count], s, work))
			same = same[count:]
		}
	}
	adamWWork.Put(work)
	return c
}

// equalShapes are the first calls that have the same length, and rows of factors.
func equalShapes(calls []adamWCall) []adamWCall {
	n := 1
	for n < len(calls) && calls[n].n == calls[0].n && calls[n].rows == calls[0].rows {
		n++
	}
	return calls[:n]
}

func (p *adamWParts) joined(t *AdamWTensors, calls []adamWCall, s *AdamWScalars, work *adamWScratch) Counts {
	n, total := calls[0].n, calls[0].n*len(calls)
	m := Moment{Codes: work.codes[0][:total/2], Scales: work.scales[0][:len(calls)], Format: t.M.Format}
	v := Moment{Codes: work.codes[1][:total/2], Scales: work.scales[1][:len(calls)], Format: t.V.Format}
	m.Format.Block, v.Format.Block = n, n
	narrowWeights, narrowGradients := t.Weights.BF16 != nil, t.Gradients.BF16 != nil
	for i := range calls {
		at := &calls[i].adamWMemory
		p.loadFloats(work.w[i*n:i*n+n], floatsAt(at.weights, n, narrowWeights))
		p.loadFloats(work.g[i*n:i*n+n], floatsAt(at.gradients, n, narrowGradients))
		copy(m.Codes[i*n/2:], unsafe.Slice((*uint8)(at.m), n/2))
		copy(v.Codes[i*n/2:], unsafe.Slice((*uint8)(at.v), n/2))
		m.Scales[i], v.Scales[i] = *(*float32)(at.mScales), *(*float32)(at.vScales)
	}
	p.loadMoment(work.m[:total], &m, 0)
	p.loadMoment(work.v[:total], &v, 0)
	if p.stepWide(t, work, work.g[:total], s) > 0 {
		return AdamWFunc(p.nibbles).each(t, calls, s)
	}
	p.quantize4(m.Codes, m.Scales, work.m[:total], m.Format)
	p.quantize4(v.Codes, v.Scales, work.v[:total], v.Format)
	stream := Stream{Seed: s.Rounding.SeedW, Step: s.Rounding.Step}
	for i := range calls {
		at := &calls[i].adamWMemory
		p.storeFloats(floatsAt(at.weights, n, narrowWeights), work.w[i*n:i*n+n], stream, s.Rounding.StochasticWeights)
		copy(unsafe.Slice((*uint8)(at.m), n/2), m.Codes[i*n/2:])
		copy(unsafe.Slice((*uint8)(at.v), n/2), v.Codes[i*n/2:])
		*(*float32)(at.mScales), *(*float32)(at.vScales) = m.Scales[i], v.Scales[i]
	}
	return Counts{}
}

func (p *adamWParts) loadMoment(dst []float32, m *Moment, first int64) {
	switch {
	case m.Factored():
		p.multiplyFactors(dst, m, first)
	case !m.Quantized():
		p.loadFloats(dst, m.Floats)
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

func (p *adamWParts) storeMoment(m *Moment, x []float32, s Stream, stochastic bool) {
	switch {
	case m.Factored():
	case !m.Quantized():
		p.storeFloats(m.Floats, x, s, stochastic)
	case m.Format.Codebook.Bits() == 4:
		p.quantize4(m.Codes, m.Scales, x, m.Format)
	default:
		p.quantize8(m.Codes, m.Scales, x, m.Format)
	}
}
