//go:build !purego

package kernels

import (
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/race"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The implementations by the formats of float32 and bf16 momentum, and of gradients or the
// pairs of adamWPairs. Those of float32 momentum take codes too.
var (
	muonDirectionsAVX2 = [2][2]MuonDirectionFunc{
		{directionOf(&kitAVX2, amd64.MuonDirectionMF32GF32AVX2), directionOf(&kitAVX2, amd64.MuonDirectionMF32GBF16AVX2)},
		{directionOf(&kitAVX2, amd64.MuonDirectionMBF16GF32AVX2), directionOf(&kitAVX2, amd64.MuonDirectionMBF16GBF16AVX2)},
	}
	muonDirectionsAVX512 = [2][2]MuonDirectionFunc{
		{directionOf(&kitAVX512, amd64.MuonDirectionMF32GF32AVX512), directionOf(&kitAVX512, amd64.MuonDirectionMF32GBF16AVX512)},
		{directionOf(&kitAVX512, amd64.MuonDirectionMBF16GF32AVX512), directionOf(&kitAVX512, amd64.MuonDirectionMBF16GBF16AVX512)},
	}
	muonUpdatesAVX2 = [2][len(adamWPairs)]MuonUpdateFunc{
		{
			updateOf(&kitAVX2, amd64.MuonUpdateMF32WF32GF32AVX2, amd64.MuonUpdateMF32WF32GF32AVX2),
			updateOf(&kitAVX2, amd64.MuonUpdateMF32WBF16GBF16AVX2, amd64.MuonUpdateMF32WF32GBF16AVX2),
			updateOf(&kitAVX2, amd64.MuonUpdateMF32WBF16GF32AVX2, amd64.MuonUpdateMF32WF32GF32AVX2),
			updateOf(&kitAVX2, amd64.MuonUpdateMF32WF32GBF16AVX2, amd64.MuonUpdateMF32WF32GBF16AVX2),
		},
		{
			updateOf(&kitAVX2, amd64.MuonUpdateMBF16WF32GF32AVX2, amd64.MuonUpdateMBF16WF32GF32AVX2),
			updateOf(&kitAVX2, amd64.MuonUpdateMBF16WBF16GBF16AVX2, amd64.MuonUpdateMBF16WF32GBF16AVX2),
			updateOf(&kitAVX2, amd64.MuonUpdateMBF16WBF16GF32AVX2, amd64.MuonUpdateMBF16WF32GF32AVX2),
			updateOf(&kitAVX2, amd64.MuonUpdateMBF16WF32GBF16AVX2, amd64.MuonUpdateMBF16WF32GBF16AVX2),
		},
	}
	muonUpdatesAVX512 = [2][len(adamWPairs)]MuonUpdateFunc{
		{
			updateOf(&kitAVX512, amd64.MuonUpdateMF32WF32GF32AVX512, amd64.MuonUpdateMF32WF32GF32AVX512),
			updateOf(&kitAVX512, amd64.MuonUpdateMF32WBF16GBF16AVX512, amd64.MuonUpdateMF32WF32GBF16AVX512),
			updateOf(&kitAVX512, amd64.MuonUpdateMF32WBF16GF32AVX512, amd64.MuonUpdateMF32WF32GF32AVX512),
			updateOf(&kitAVX512, amd64.MuonUpdateMF32WF32GBF16AVX512, amd64.MuonUpdateMF32WF32GBF16AVX512),
		},
		{
			updateOf(&kitAVX512, amd64.MuonUpdateMBF16WF32GF32AVX512, amd64.MuonUpdateMBF16WF32GF32AVX512),
			updateOf(&kitAVX512, amd64.MuonUpdateMBF16WBF16GBF16AVX512, amd64.MuonUpdateMBF16WF32GBF16AVX512),
			updateOf(&kitAVX512, amd64.MuonUpdateMBF16WBF16GF32AVX512, amd64.MuonUpdateMBF16WF32GF32AVX512),
			updateOf(&kitAVX512, amd64.MuonUpdateMBF16WF32GBF16AVX512, amd64.MuonUpdateMBF16WF32GBF16AVX512),
		},
	}
	muonCodesDirectionsAVX512 = [2]MuonDirectionFunc{
		directionOf(&kitAVX512VBMI, amd64.MuonDirectionMF32GF32AVX512), directionOf(&kitAVX512VBMI, amd64.MuonDirectionMF32GBF16AVX512),
	}
	muonCodesUpdatesAVX512 = [len(adamWPairs)]MuonUpdateFunc{
		updateOf(&kitAVX512VBMI, amd64.MuonUpdateMF32WF32GF32AVX512, amd64.MuonUpdateMF32WF32GF32AVX512),
		updateOf(&kitAVX512VBMI, amd64.MuonUpdateMF32WBF16GBF16AVX512, amd64.MuonUpdateMF32WF32GBF16AVX512),
		updateOf(&kitAVX512VBMI, amd64.MuonUpdateMF32WBF16GF32AVX512, amd64.MuonUpdateMF32WF32GF32AVX512),
		updateOf(&kitAVX512VBMI, amd64.MuonUpdateMF32WF32GBF16AVX512, amd64.MuonUpdateMF32WF32GBF16AVX512),
	}
)

// muonDirectionImpls and muonUpdateImpls are the implementations of all rows: of float32
// momentum, bf16 and codes.
func muonDirectionImpls() (rows [len(muonStorages)][2][]Impl[MuonDirectionFunc]) {
	for j := range rows[0] {
		for i := range muonDirectionsAVX512 {
			rows[i][j] = avx512("avx512", 0, muonDirectionsAVX512[i][j], avx2[MuonDirectionFunc](muonDirectionsAVX2[i][j]))
		}
		rows[2][j] = avx512("avx512vbmi", cpufeature.VBMI, muonCodesDirectionsAVX512[j], avx2[MuonDirectionFunc](muonDirectionsAVX2[0][j]))
	}
	return rows
}

func muonUpdateImpls() (rows [len(muonStorages)][len(adamWPairs)][]Impl[MuonUpdateFunc]) {
	for j := range rows[0] {
		for i := range muonUpdatesAVX512 {
			rows[i][j] = avx512("avx512", 0, muonUpdatesAVX512[i][j], avx2[MuonUpdateFunc](muonUpdatesAVX2[i][j]))
		}
		rows[2][j] = avx512("avx512vbmi", cpufeature.VBMI, muonCodesUpdatesAVX512[j], avx2[MuonUpdateFunc](muonUpdatesAVX2[0][j]))
	}
	return rows
}

// The signatures of the kernels.
type (
	muonDirection[M, G number] func(dst []float32, m []M, g []G, s *[10]float32)
	muonUpdate[W, G, M number] func(w []W, g []G, m []M, o []float32, s *[10]float32)
)

func directionOf[M, G number](k *kit, direction muonDirection[M, G]) MuonDirectionFunc {
	return func(dst []float32, t MuonTensors, s *MuonScalars) {
		if !t.Momentum.Quantized() {
			direction.run(dst, &t, s)
			return
		}
		size := muonPartSize(&t)
		if size > muonLargestBlock {
			reference.MuonDirection(dst, t, s)
			return
		}
		work := muonWork.Get().(*muonScratch)
		for lo := 0; lo < len(dst); lo += size {
			hi := lo + min(size, len(dst)-lo)
			part := t.Slice(lo, hi)
			k.decode(&part.Momentum, work.m[:hi-lo])
			direction.run(dst[lo:hi], &part, s)
		}
		muonWork.Put(work)
	}
}

func (direction muonDirection[M, G]) run(dst []float32, t *MuonTensors, s *MuonScalars) {
	m, g := view[M](t.Momentum.Floats), view[G](t.Gradients)
	race.Write(dst)
	race.Read(m)
	race.Read(g)
	direction(dst, m, g, muonScalars(s))
}

// updateOf is made of the kernel for the formats and of that for float32 weights, which is
// surrounded with conversions where weights are stored stochastically or with the lower
// halves of a master.
func updateOf[W, G, M number](k *kit, update muonUpdate[W, G, M], wide muonUpdate[float32, G, M]) MuonUpdateFunc {
	return func(t MuonTensors, s *MuonScalars) {
		apart := t.Low != nil || t.Weights.BF16 != nil && s.Rounding.StochasticWeights
		if !apart && !t.Momentum.Quantized() {
			update.run(&t, s)
			return
		}
		size := muonPartSize(&t)
		if size > muonLargestBlock {
			reference.MuonUpdate(t, s)
			return
		}
		work := muonWork.Get().(*muonScratch)
		for lo := 0; lo < t.Weights.Len(); lo += size {
			n := min(size, t.Weights.Len()-lo)
			part := t.Slice(lo, lo+n)
			stepped := part
			if part.Momentum.Quantized() {
				k.decode(&stepped.Momentum, work.m[:n])
			}
			if apart {
				stream := Stream{Seed: s.Rounding.SeedW, Step: s.Rounding.Step, First: part.First}
				k.loadWeights(work.w[:n], part.Weights, part.Low)
				stepped.Weights, stepped.Low = Floats{F32: work.w[:n]}, nil
				wide.run(&stepped, s)
				k.storeWeights(part.Weights, part.Low, work.w[:n], stream, true)
			} else {
				update.run(&stepped, s)
			}
			if m := part.Momentum; m.Quantized() {
				k.quantize8(m.Codes, m.Scales, stepped.Momentum.F32, m.Format)
			}
		}
		muonWork.Put(work)
	}
}

func (update muonUpdate[W, G, M]) run(t *MuonTensors, s *MuonScalars) {
	w, g, m := view[W](t.Weights), view[G](t.Gradients), view[M](t.Momentum.Floats)
	race.Write(w)
	race.Read(g)
	race.Write(m)
	race.Read(t.Update)
	update(w, g, m, t.Update, muonScalars(s))
}

// muonScalars are the numbers of a step in the order that assembly reads them in, which is
// that of the first fields of MuonScalars.
func muonScalars(s *MuonScalars) *[10]float32 {
	return (*[10]float32)(unsafe.Pointer(&s.GradScale))
}

const (
	muonPart         = 2048
	muonLargestBlock = 4096
)

// muonPartSize is the number of elements of a part: whole blocks of a quantised momentum.
func muonPartSize(t *MuonTensors) int {
	if !t.Momentum.Quantized() {
		return muonPart
	}
	block := t.Momentum.Format.Block
	return max(muonPart/block*block, min(block, t.Gradients.Len()))
}

type muonScratch struct{ w, m [muonLargestBlock]float32 }

var muonWork = sync.Pool{New: func() any { return new(muonScratch) }}

// decode replaces the momentum's codes by their values.
func (k *kit) decode(m *Moment, values []float32) {
	k.dequantize8(values, m.Codes, m.Scales, m.Format)
	*m = Moment{Floats: Floats{F32: values}}
}
