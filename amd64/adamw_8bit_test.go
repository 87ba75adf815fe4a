//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

type blockStep struct {
	needs              cpufeature.Set
	weights, gradients bool // whether in bf16
	step               func(t *reference.AdamWTensors, s *reference.AdamWScalars, scratch *[12336]float32, counts *[3]int64)
}

var blockSteps = []blockStep{
	tableBlocks(inF32, inF32, amd64.AdamW8bitWF32GF32AVX2),
	tableBlocks(inBF16, inBF16, amd64.AdamW8bitWBF16GBF16AVX2),
	tableBlocks(inBF16, inF32, amd64.AdamW8bitWBF16GF32AVX2),
	tableBlocks(inF32, inBF16, amd64.AdamW8bitWF32GBF16AVX2),
	planeBlocks(inF32, inF32, amd64.AdamW8bitWF32GF32AVX512VBMI),
	planeBlocks(inBF16, inBF16, amd64.AdamW8bitWBF16GBF16AVX512VBMI),
	planeBlocks(inBF16, inF32, amd64.AdamW8bitWBF16GF32AVX512VBMI),
	planeBlocks(inF32, inBF16, amd64.AdamW8bitWF32GBF16AVX512VBMI),
}

func tableBlocks(weights, gradients bool, f func(parameters [][11]uintptr, block int, mTable, vTable *[256]float32, mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32,
	nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)) blockStep {
	return blockStep{avx2, weights, gradients, func(t *reference.AdamWTensors, s *reference.AdamWScalars, scratch *[12336]float32, counts *[3]int64) {
		m, v := &t.M, &t.V
		f(parametersOf(t, m.Format.Block), m.Format.Block, m.Format.Codebook.Table(), v.Format.Codebook.Table(),
			m.Format.Codebook.Thresholds(), v.Format.Codebook.Thresholds(), divisor(m.Format), divisor(v.Format),
			scalarsOf(s), s.Nesterov, s.SkipNonFinite, scratch, counts)
	}}
}

func planeBlocks(weights, gradients bool, f func(parameters [][11]uintptr, block int, planes *[1536]uint8, mThresholds, vThresholds *[255]float32, mDivisor, vDivisor float32, s *[11]float32,
	nesterov, skip bool, scratch *[12336]float32, counts *[3]int64)) blockStep {
	var planes [1536]uint8
	for plane := range 4 {
		byteOf := func(x float32) uint8 { return uint8(math.Float32bits(x) >> (8 * plane)) }
		for i, x := range codebook.Dynamic8().Table() {
			if i >= 128 {
				planes[128*plane+(i-127)%128] = byteOf(x)
			}
		}
		for i, x := range codebook.Dynamic8Unsigned().Table() {
			planes[512+256*plane+i] = byteOf(x)
		}
	}
	return blockStep{avx512vbmi, weights, gradients, func(t *reference.AdamWTensors, s *reference.AdamWScalars, scratch *[12336]float32, counts *[3]int64) {
		m, v := &t.M, &t.V
		f(parametersOf(t, m.Format.Block), m.Format.Block, &planes, m.Format.Codebook.Thresholds(), v.Format.Codebook.Thresholds(), divisor(m.Format), divisor(v.Format),
			scalarsOf(s), s.Nesterov, s.SkipNonFinite, scratch, counts)
	}}
}

func (e blockStep) String() string {
	name := map[bool]string{false: "float32", true: "bfloat16"}
	return fmt.Sprintf("%v, weights %s, gradients %s", e.needs, name[e.weights], name[e.gradients])
}

func TestAdamW8bit(t *testing.T) {
	for _, e := range blockSteps {
		t.Run(e.String(), func(t *testing.T) {
			cputest.Need(t, e.needs)
			testAdamW8bit(t, e)
		})
	}
}

func testAdamW8bit(t *testing.T, e blockStep) {
	rng := rand.New(rand.NewPCG(8, 1))
	const capacity, largestBlock = 4200, 4096
	scratch := testmem.New[float32](t, 12336)
	codes, scales := [2]*testmem.Buffer[uint8]{}, [2]*testmem.Buffer[float32]{}
	for i := range 2 {
		codes[i], scales[i] = testmem.New[uint8](t, capacity), testmem.New[float32](t, capacity)
	}
	w, g := newFloats(t, e.weights, capacity), newFloats(t, e.gradients, capacity)
	for trial := range trials(500, 100_000) {
		n := lengths[rng.IntN(len(lengths))] * (1 + rng.IntN(8))
		block := []int{1, 7, 16, 31, 64, 100, 128, 256, largestBlock}[rng.IntN(9)]
		if block == largestBlock && trial%8 == 0 {
			n = block + rng.IntN(70)
		}
		a := reference.AdamWTensors{Weights: w.place(n, trial%places), Gradients: g.place(n, (trial+3)%places)}
		scale := gradientScale(rng)
		for i := range n {
			set(a.Weights, i, gradient(rng, 1, trial%16 == 0))
			set(a.Gradients, i, gradient(rng, scale, trial%16 == 1))
		}
		want := reference.AdamWTensors{Weights: clone(a.Weights), Gradients: clone(a.Gradients)}
		books := [2]*codebook.Codebook{codebook.Dynamic8(), codebook.Dynamic8Unsigned()}
		for i, m := range []*reference.Moment{&a.M, &a.V} {
			f := reference.Format{Codebook: books[i], Block: block, Headroom: rng.IntN(2) == 0}
			*m = reference.Moment{Format: f, Codes: placed(codes[i], n, (trial+5*i)%places, 1), Scales: placed(scales[i], f.Scales(n), (trial+9*i)%places, 4)}
			for j := range m.Codes {
				m.Codes[j] = uint8(rng.IntN(f.Codebook.Len()))
			}
			for j := range m.Scales {
				m.Scales[j] = float32(math.Pow(scale, float64(i+1)) * rng.Float64())
				if trial%16 == 2 {
					m.Scales[j] = hardScale(rng)
				}
			}
			copied := *m
			copied.Codes, copied.Scales = append([]uint8(nil), m.Codes...), append([]float32(nil), m.Scales...)
			*[]*reference.Moment{&want.M, &want.V}[i] = copied
		}
		s := hyper(rng)
		wantCounts, counts := reference.AdamW(want, &s), [3]int64{}
		e.step(&a, &s, (*[12336]float32)(scratch.AtOffset(12336, trial*4%64)), &counts)
		what := fmt.Sprintf("%v, %d in blocks of %d", e, n, block)
		if got := (reference.Counts{NonFinite: counts[0], SkippedElements: counts[1], SkippedBlocks: counts[2]}); got != wantCounts {
			t.Fatalf("%s: %+v, want %+v", what, got, wantCounts)
		}
		sameFloats(t, what+", w", a.Weights, want.Weights)
		sameFloats(t, what+", g", a.Gradients, want.Gradients)
		for i, m := range []reference.Moment{a.M, a.V} {
			m, want, name := m, []reference.Moment{want.M, want.V}[i], []string{"m", "v"}[i]
			sameFloats(t, what+", scales of "+name, reference.Floats{F32: m.Scales}, reference.Floats{F32: want.Scales})
			for j := range m.Codes {
				if m.Codes[j] != want.Codes[j] {
					t.Fatalf("%s: code %d of %s is %d, want %d", what, j, name, m.Codes[j], want.Codes[j])
				}
			}
			codes[i].Check()
			scales[i].Check()
		}
		w.check()
		g.check()
		scratch.Check()
	}
}

func BenchmarkAdamW8bit(b *testing.B) {
	for _, n := range sizes {
		for _, e := range blockSteps {
			for _, block := range []int{128, 256} {
				a := reference.AdamWTensors{Weights: vector(n.elements, e.weights), Gradients: vector(n.elements, e.gradients)}
				moment := func(book *codebook.Codebook, scale float32) reference.Moment {
					f := reference.Format{Codebook: book, Block: block}
					m := reference.Moment{Format: f, Codes: make([]uint8, n.elements), Scales: make([]float32, f.Scales(n.elements))}
					for i := range m.Codes {
						m.Codes[i] = uint8(i * 40503 >> 8)
					}
					for i := range m.Scales {
						m.Scales[i] = scale
					}
					return m
				}
				a.M, a.V = moment(codebook.Dynamic8(), 1e-2), moment(codebook.Dynamic8Unsigned(), 1e-4)
				s := reference.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, GradScale: 1, Step: 10}.Scalars()
				var scratch [12336]float32
				var counts [3]int64
				n.run(b, e.String()+"/"+strconv.Itoa(block), func(lo, hi int) {
					piece := a.Slice(lo, hi)
					e.step(&piece, &s, &scratch, &counts)
				})
			}
		}
	}
}
