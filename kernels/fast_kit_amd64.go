//go:build !purego

package kernels

import (
	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/race"
)

// kit converts parts that fit the first-level cache between float32 and their storage.
type kit struct {
	widen       WidenFunc
	round       RoundFunc
	stochastic  StochasticFunc
	join        func(dst []float32, weights, low []uint16)
	split       func(weights, low []uint16, src []float32)
	dequantize8 DequantizeFunc
	quantize8   QuantizeFunc
}

var (
	kitAVX2   = kit{widenAVX2, roundAVX2, stochasticAVX2, amd64.JoinAVX2, amd64.SplitAVX2, dequantizeAVX2, quantizeAVX2}
	kitAVX512 = kit{widenAVX512, roundAVX512, stochasticAVX512, amd64.JoinAVX512, amd64.SplitAVX512, nil, nil}

	// kitAVX512VBMI takes 8-bit codes too.
	kitAVX512VBMI = kit{widenAVX512, roundAVX512, stochasticAVX512, amd64.JoinAVX512, amd64.SplitAVX512, dequantizeAVX512, quantizeAVX512}
)

func (k *kit) loadWeights(dst []float32, weights Floats, low []uint16) {
	if low == nil {
		k.loadFloats(dst, weights)
		return
	}
	race.Read(weights.BF16)
	race.Read(low)
	k.join(dst, uint16s(weights.BF16), low)
}

func (k *kit) loadFloats(dst []float32, x Floats) {
	if x.BF16 != nil {
		k.widen(dst, x.BF16)
	} else {
		copy(dst, x.F32)
	}
}

func (k *kit) storeWeights(weights Floats, low []uint16, x []float32, s Stream, stochastic bool) {
	if low == nil {
		k.storeFloats(weights, x, s, stochastic)
		return
	}
	race.Write(weights.BF16)
	race.Write(low)
	k.split(uint16s(weights.BF16), low, x)
}

func (k *kit) storeFloats(dst Floats, x []float32, s Stream, stochastic bool) {
	switch {
	case dst.BF16 == nil:
		copy(dst.F32, x)
	case stochastic:
		k.stochastic(dst.BF16, x, s)
	default:
		k.round(dst.BF16, x)
	}
}
