//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// floats is memory for a vector of either format.
type floats struct {
	wide   *testmem.Buffer[float32]
	narrow *testmem.Buffer[uint16]
}

func newFloats(t testing.TB, bf16 bool, capacity int) floats {
	if bf16 {
		return floats{narrow: testmem.New[uint16](t, capacity)}
	}
	return floats{wide: testmem.New[float32](t, capacity)}
}

// place puts n elements at a place: at a guard page, or at an offset.
func (f floats) place(n, place int) reference.Floats {
	if f.narrow != nil {
		return reference.Floats{BF16: numbers(placed(f.narrow, n, place, 2))}
	}
	return reference.Floats{F32: placed(f.wide, n, place, 4)}
}

func (f floats) check() {
	if f.narrow != nil {
		f.narrow.Check()
	} else {
		f.wide.Check()
	}
}

const places = 18

func placed[T testmem.Number](b *testmem.Buffer[T], n, place, size int) []T {
	switch place {
	case 16:
		return b.AtEnd(n)
	case 17:
		return b.AtStart(n)
	}
	return b.AtOffset(n, place*4%64/size*size)
}

func bits16(f reference.Floats) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(f.BF16))), len(f.BF16))
}

func set(f reference.Floats, i int, x float32) {
	if f.BF16 != nil {
		f.BF16[i] = bf16.FromFloat32(x)
	} else {
		f.F32[i] = x
	}
}

func clone(f reference.Floats) reference.Floats {
	return reference.Floats{F32: append([]float32(nil), f.F32...), BF16: append(f.BF16[:0:0], f.BF16...)}
}

func sameFloats(t *testing.T, what string, got, want reference.Floats) {
	t.Helper()
	for i := range want.Len() {
		if !same(got.At(i), want.At(i)) {
			t.Fatalf("%s: element %d of %d is %g, want %g", what, i, want.Len(), got.At(i), want.At(i))
		}
	}
}

// hyper is a random step; some have extreme values.
func hyper(rng *rand.Rand) reference.AdamWScalars {
	h := reference.AdamWHyper{
		LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, GradScale: 1,
		Step: 1 + rng.Int64N(1<<rng.IntN(20)), Nesterov: rng.IntN(2) == 0,
	}
	switch rng.IntN(4) {
	case 0:
		h.WeightDecay, h.Eps = 0, 0
	case 1:
		h.GradScale, h.Beta1, h.Beta2 = 0.37, 0.95, 0.95
	case 2:
		h.LR, h.Eps = 1e30, 1e-30
	}
	s := h.Scalars()
	s.SkipNonFinite = rng.IntN(2) == 0
	return s
}

// scalarsOf views the first fields of the scalars.
func scalarsOf(s *reference.AdamWScalars) *[11]float32 {
	return (*[11]float32)(unsafe.Pointer(&s.GradScale))
}

// gradient is at one of many scales; one in 50 is not finite or makes the second moment
// overflow, where bad asks for it.
func gradient(rng *rand.Rand, scale float64, bad bool) float32 {
	if bad && rng.IntN(50) == 0 {
		return []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e30, 3e38}[rng.IntN(5)]
	}
	return float32(rng.NormFloat64() * scale)
}

func gradientScale(rng *rand.Rand) float64 {
	return []float64{0, 1e-42, 1e-22, 1e-19, 1e-10, 1e-3, 1, 1e4, 1e18}[rng.IntN(9)]
}

type elementStep struct {
	needs                       cpufeature.Set
	moments, weights, gradients bool // whether in bf16
	step                        func(t *reference.AdamWTensors, s *reference.AdamWScalars) int
}

const inF32, inBF16 = false, true

var elementSteps = []elementStep{
	elements(avx2, inF32, inF32, inF32, amd64.AdamWF32WF32GF32AVX2),
	elements(avx2, inF32, inBF16, inBF16, amd64.AdamWF32WBF16GBF16AVX2),
	elements(avx2, inF32, inBF16, inF32, amd64.AdamWF32WBF16GF32AVX2),
	elements(avx2, inF32, inF32, inBF16, amd64.AdamWF32WF32GBF16AVX2),
	elements(avx2, inBF16, inF32, inF32, amd64.AdamWBF16WF32GF32AVX2),
	elements(avx2, inBF16, inBF16, inBF16, amd64.AdamWBF16WBF16GBF16AVX2),
	elements(avx2, inBF16, inBF16, inF32, amd64.AdamWBF16WBF16GF32AVX2),
	elements(avx2, inBF16, inF32, inBF16, amd64.AdamWBF16WF32GBF16AVX2),
	elements(cpufeature.AVX512, inF32, inF32, inF32, amd64.AdamWF32WF32GF32AVX512),
	elements(cpufeature.AVX512, inF32, inBF16, inBF16, amd64.AdamWF32WBF16GBF16AVX512),
	elements(cpufeature.AVX512, inF32, inBF16, inF32, amd64.AdamWF32WBF16GF32AVX512),
	elements(cpufeature.AVX512, inF32, inF32, inBF16, amd64.AdamWF32WF32GBF16AVX512),
	elements(cpufeature.AVX512, inBF16, inF32, inF32, amd64.AdamWBF16WF32GF32AVX512),
	elements(cpufeature.AVX512, inBF16, inBF16, inBF16, amd64.AdamWBF16WBF16GBF16AVX512),
	elements(cpufeature.AVX512, inBF16, inBF16, inF32, amd64.AdamWBF16WBF16GF32AVX512),
	elements(cpufeature.AVX512, inBF16, inF32, inBF16, amd64.AdamWBF16WF32GBF16AVX512),
}

// parameter are the words of tensors, as kernels' adamWCall has them.
func parameter(t *reference.AdamWTensors) (words [11]unsafe.Pointer) {
	at := func(f reference.Floats) unsafe.Pointer {
		if f.BF16 != nil {
			return unsafe.Pointer(unsafe.SliceData(f.BF16))
		}
		return unsafe.Pointer(unsafe.SliceData(f.F32))
	}
	words[0], words[2], words[3], words[4] = at(t.Weights), at(t.Gradients), at(t.M.Floats), at(t.V.Floats)
	if t.M.Quantized() {
		words[3], words[5] = unsafe.Pointer(unsafe.SliceData(t.M.Codes)), unsafe.Pointer(unsafe.SliceData(t.M.Scales))
		words[4], words[6] = unsafe.Pointer(unsafe.SliceData(t.V.Codes)), unsafe.Pointer(unsafe.SliceData(t.V.Scales))
	}
	*(*int)(unsafe.Pointer(&words[7])) = t.Weights.Len()
	return words
}

// parametersOf are tensors as one parameter or, where they have an even number of blocks, as
// three, of which one is empty.
func parametersOf(t *reference.AdamWTensors, block int) [][11]uintptr {
	n := t.Weights.Len()
	cuts := []int{0, n}
	if blocks := (n + block - 1) / block; blocks%2 == 0 {
		cuts = []int{0, blocks / 3 * block, blocks / 3 * block, n}
	}
	var words [][11]unsafe.Pointer
	for i := range cuts[1:] {
		piece := t.Slice(cuts[i], cuts[i+1])
		words = append(words, parameter(&piece))
	}
	return unsafe.Slice((*[11]uintptr)(unsafe.Pointer(&words[0])), len(words))
}

func elements(needs cpufeature.Set, moments, weights, gradients bool, f func(parameters [][11]uintptr, s *[11]float32, nesterov, skip bool) int) elementStep {
	return elementStep{needs, moments, weights, gradients, func(t *reference.AdamWTensors, s *reference.AdamWScalars) int {
		return f(parametersOf(t, 1), scalarsOf(s), s.Nesterov, s.SkipNonFinite)
	}}
}

func (e elementStep) String() string {
	name := map[bool]string{false: "float32", true: "bfloat16"}
	return fmt.Sprintf("%v, moments %s, weights %s, gradients %s", e.needs, name[e.moments], name[e.weights], name[e.gradients])
}

func TestAdamW(t *testing.T) {
	for _, e := range elementSteps {
		t.Run(e.String(), func(t *testing.T) {
			cputest.Need(t, e.needs)
			testAdamW(t, e)
		})
	}
}

func testAdamW(t *testing.T, e elementStep) {
	rng := rand.New(rand.NewPCG(7, 1))
	const capacity = 600
	w, g := newFloats(t, e.weights, capacity), newFloats(t, e.gradients, capacity)
	m, v := newFloats(t, e.moments, capacity), newFloats(t, e.moments, capacity)
	for trial := range trials(400, 100_000) {
		n := lengths[trial%len(lengths)] * (1 + rng.IntN(2))
		a := reference.AdamWTensors{Weights: w.place(n, trial%places), Gradients: g.place(n, (trial+3)%places)}
		a.M.Floats, a.V.Floats = m.place(n, (trial+7)%places), v.place(n, (trial+11)%places)
		scale := gradientScale(rng)
		for i := range n {
			set(a.Weights, i, gradient(rng, 1, trial%3 == 0))
			set(a.Gradients, i, gradient(rng, scale, trial%3 == 1))
			set(a.M.Floats, i, gradient(rng, scale, false))
			set(a.V.Floats, i, float32(math.Abs(float64(gradient(rng, scale*scale, trial%3 == 2)))))
		}
		want := reference.AdamWTensors{Weights: clone(a.Weights), Gradients: clone(a.Gradients)}
		want.M.Floats, want.V.Floats = clone(a.M.Floats), clone(a.V.Floats)
		s := hyper(rng)
		counts := reference.AdamW(want, &s)
		if got := e.step(&a, &s); got != int(counts.NonFinite) {
			t.Fatalf("%v: %d not finite of %d, want %d", e, got, n, counts.NonFinite)
		}
		sameFloats(t, fmt.Sprint(e, ", w"), a.Weights, want.Weights)
		sameFloats(t, fmt.Sprint(e, ", g"), a.Gradients, want.Gradients)
		sameFloats(t, fmt.Sprint(e, ", m"), a.M.Floats, want.M.Floats)
		sameFloats(t, fmt.Sprint(e, ", v"), a.V.Floats, want.V.Floats)
		for _, f := range []floats{w, g, m, v} {
			f.check()
		}
	}
}

// vector is noise in either format.
func vector(n int, bf16 bool) reference.Floats {
	x := noise(n)
	if bf16 {
		narrow := make([]uint16, n)
		amd64.RoundAVX2(narrow, x)
		return reference.Floats{BF16: numbers(narrow)}
	}
	return reference.Floats{F32: x}
}

func BenchmarkAdamW(b *testing.B) {
	for _, n := range sizes {
		for _, e := range elementSteps {
			a := reference.AdamWTensors{Weights: vector(n.elements, e.weights), Gradients: vector(n.elements, e.gradients)}
			a.M.Floats, a.V.Floats = vector(n.elements, e.moments), vector(n.elements, e.moments)
			amd64.ScaleAVX2(a.V.F32, 0)
			amd64.ScaleBF16AVX2(bits16(a.V.Floats), 0)
			s := reference.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, GradScale: 1, Step: 10}.Scalars()
			n.run(b, e.String(), func(lo, hi int) {
				piece := a.Slice(lo, hi)
				e.step(&piece, &s)
			})
		}
	}
}
