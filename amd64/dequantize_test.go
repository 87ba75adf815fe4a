//go:build amd64 && !purego

package amd64_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// hardScale is any scale that a block can have, and some that none has.
func hardScale(rng *rand.Rand) float32 {
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return math.Float32frombits(0x7fc00000)
	case 2:
		return math.MaxFloat32
	}
	return float32(math.Ldexp(1+rng.Float64(), rng.IntN(276)-149))
}

func checkSame(t *testing.T, what string, f reference.Format, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s, %s, %d in blocks of %d: element %d is %g, want %g", what, f.Codebook.Name(), len(want), f.Block, i, got[i], want[i])
		}
	}
}

type dequantizer struct {
	name       string
	needs      cpufeature.Set
	dequantize func(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32)
}

var dequantizers = []dequantizer{
	{"avx2", avx2, amd64.DequantizeAVX2},
	{"avx512vbmi", avx512vbmi, func(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32) {
		amd64.DequantizeAVX512VBMI(dst, codes, scales, block, table, false)
	}},
	{"avx512vbmi-stream", avx512vbmi, func(dst []float32, codes []uint8, scales []float32, block int, table *[256]float32) {
		amd64.DequantizeAVX512VBMI(dst, codes, scales, block, table, true)
	}},
}

const avx512vbmi = cpufeature.AVX512 | cpufeature.VBMI

func TestDequantize(t *testing.T) {
	for _, d := range dequantizers {
		t.Run(d.name, func(t *testing.T) {
			cputest.Need(t, d.needs)
			d.test(t)
		})
	}
}

func (d dequantizer) test(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	values, codes, scales := testmem.New[float32](t, 5000), testmem.New[uint8](t, 5000), testmem.New[float32](t, 5000)
	for _, book := range books8 {
		for _, block := range blockSizes {
			f := reference.Format{Codebook: book, Block: block}
			for _, n := range append(lengths, 4097) {
				scales, want := scales.AtEnd(f.Scales(n)), make([]float32, n)
				everywhere(t, values, codes, n, func(dst []float32, codes []uint8) {
					for i := range codes {
						codes[i] = uint8(rng.Uint32())
					}
					for i := range scales {
						scales[i] = hardScale(rng)
					}
					d.dequantize(dst, codes, scales, f.Block, book.Table())
					reference.Dequantize(want, codes, scales, f)
					checkSame(t, "dequantize", f, dst, want)
				})
			}
		}
	}
}

func BenchmarkDequantize(b *testing.B) {
	for _, n := range sizes {
		x, codes, scales := make([]float32, n.elements), make([]uint8, n.elements), make([]float32, n.elements/64)
		for i := range codes {
			codes[i] = uint8(i * 40503 >> 8)
		}
		for _, d := range dequantizers {
			for _, block := range []int{128, 256} {
				n.run(b, d.name+"/"+strconv.Itoa(block), func(lo, hi int) {
					d.dequantize(x[lo:hi], codes[lo:hi], scales[:(hi-lo)/block], block, books8[0].Table())
				})
			}
		}
	}
}
