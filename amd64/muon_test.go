//go:build amd64 && !purego

package amd64_test

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

var muonScalars = []reference.MuonScalars{
	{GradScale: 0.7, OldMomentum: 0.95, NewGradient: 0.05, DirectionM: 0.9, DirectionG: 0.1, Divisor: 0.3, Decay: 0.99, Scale: 0.2, WeightDecay: 0.1, StepSize: 0.02},
	{GradScale: float32(math.Inf(1)), OldMomentum: 1, NewGradient: 1, DirectionM: 1, Divisor: 1, Decay: 1, Scale: 1, StepSize: 1},
}

func TestMuon(t *testing.T) {
	for _, isa := range []struct {
		name  string
		needs cpufeature.Set
		run   func(t *testing.T)
	}{
		{"avx2", avx2, func(t *testing.T) {
			testMuonDirection(t, amd64.MuonDirectionMF32GF32AVX2)
			testMuonDirection(t, amd64.MuonDirectionMF32GBF16AVX2)
			testMuonDirection(t, amd64.MuonDirectionMBF16GF32AVX2)
			testMuonDirection(t, amd64.MuonDirectionMBF16GBF16AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMF32WF32GF32AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMF32WBF16GBF16AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMF32WBF16GF32AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMF32WF32GBF16AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WF32GF32AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WBF16GBF16AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WBF16GF32AVX2)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WF32GBF16AVX2)
		}},
		{"avx512", cpufeature.AVX512, func(t *testing.T) {
			testMuonDirection(t, amd64.MuonDirectionMF32GF32AVX512)
			testMuonDirection(t, amd64.MuonDirectionMF32GBF16AVX512)
			testMuonDirection(t, amd64.MuonDirectionMBF16GF32AVX512)
			testMuonDirection(t, amd64.MuonDirectionMBF16GBF16AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMF32WF32GF32AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMF32WBF16GBF16AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMF32WBF16GF32AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMF32WF32GBF16AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WF32GF32AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WBF16GBF16AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WBF16GF32AVX512)
			testMuonUpdate(t, amd64.MuonUpdateMBF16WF32GBF16AVX512)
		}},
	} {
		t.Run(isa.name, func(t *testing.T) {
			cputest.Need(t, isa.needs)
			isa.run(t)
		})
	}
}

// muonLengths are every number of a few registers and one of all patterns.
func muonLengths() []int { return append(everyLength()[:140], len(patterns())) }

// slicesOf places slices of n numbers, at all places in turn.
func sliceOf[T number](t *testing.T, buf *testmem.Buffer[T], n, place int, x []float32) []T {
	t.Helper()
	var zero T
	s := placed(buf, n, place%places, int(unsafe.Sizeof(zero)))
	fill(s, x)
	return s
}

func testMuonDirection[M, G number](t *testing.T, direction func(dst []float32, m []M, g []G, s *[10]float32)) {
	t.Helper()
	x := patterns()
	dsts, ms, gs := testmem.New[float32](t, len(x)), testmem.New[M](t, len(x)), testmem.New[G](t, len(x))
	for i, n := range muonLengths() {
		for place := range places {
			dst, m, g := sliceOf(t, dsts, n, place, x), sliceOf(t, ms, n, place+3, x[(len(x)-n)/2:]), sliceOf(t, gs, n, place+7, x[len(x)-n:])
			s := muonScalars[(i+place)%len(muonScalars)]
			want := make([]float32, n)
			reference.MuonDirection(want, reference.MuonTensors{Momentum: reference.Moment{Floats: floatsOf(m)}, Gradients: floatsOf(g)}, &s)
			direction(dst, m, g, (*[10]float32)(unsafe.Pointer(&s)))
			compareFloats(t, fmt.Sprintf("direction of %T and %T of %d", m, g, n), floatsOf(dst), floatsOf(want))
			dsts.Check()
			ms.Check()
			gs.Check()
		}
	}
}

func testMuonUpdate[W, G, M number](t *testing.T, update func(w []W, g []G, m []M, o []float32, s *[10]float32)) {
	t.Helper()
	x := patterns()
	ws, gs, ms, updates := testmem.New[W](t, len(x)), testmem.New[G](t, len(x)), testmem.New[M](t, len(x)), testmem.New[float32](t, len(x))
	for i, n := range muonLengths() {
		for place := range places {
			w, g := sliceOf(t, ws, n, place, x), sliceOf(t, gs, n, place+3, x[len(x)-n:])
			m, o := sliceOf(t, ms, n, place+7, x[(len(x)-n)/2:]), sliceOf(t, updates, n, place+5, x[(len(x)-n)/3:])
			s := muonScalars[(i+place)%len(muonScalars)]
			want := reference.MuonTensors{
				Weights: floatsOf(append([]W(nil), w...)), Gradients: floatsOf(g), Update: o,
				Momentum: reference.Moment{Floats: floatsOf(append([]M(nil), m...))},
			}
			reference.MuonUpdate(want, &s)
			update(w, g, m, o, (*[10]float32)(unsafe.Pointer(&s)))
			name := fmt.Sprintf("step of %T, %T and %T of %d", w, g, m, n)
			compareFloats(t, name+": weights", floatsOf(w), want.Weights)
			compareFloats(t, name+": momentum", floatsOf(m), want.Momentum.Floats)
			ws.Check()
			gs.Check()
			ms.Check()
			updates.Check()
		}
	}
}

func BenchmarkMuon(b *testing.B) {
	for _, n := range sizes {
		s := (*[10]float32)(unsafe.Pointer(&muonScalars[0]))
		w, g, m, o := noise(n.elements), noise(n.elements), noise(n.elements), noise(n.elements)
		n.runIf(b, avx2, "direction/avx2", func(lo, hi int) { amd64.MuonDirectionMF32GF32AVX2(o[lo:hi], m[lo:hi], g[lo:hi], s) })
		n.runIf(b, cpufeature.AVX512, "direction/avx512", func(lo, hi int) { amd64.MuonDirectionMF32GF32AVX512(o[lo:hi], m[lo:hi], g[lo:hi], s) })
		n.runIf(b, avx2, "update/avx2", func(lo, hi int) { amd64.MuonUpdateMF32WF32GF32AVX2(w[lo:hi], g[lo:hi], m[lo:hi], o[lo:hi], s) })
		n.runIf(b, cpufeature.AVX512, "update/avx512", func(lo, hi int) { amd64.MuonUpdateMF32WF32GF32AVX512(w[lo:hi], g[lo:hi], m[lo:hi], o[lo:hi], s) })
	}
}
