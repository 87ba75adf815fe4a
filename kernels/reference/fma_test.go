package reference

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// exactFMA rounds the exact value once. Zeros and what is not finite follow IEEE 754, as
// float64 arithmetic does.
func exactFMA(a, b, c float32) float32 {
	inFloat64 := float64(a)*float64(b) + float64(c)
	if inFloat64 == 0 || math.IsNaN(inFloat64) || math.IsInf(inFloat64, 0) {
		return float32(inFloat64)
	}
	exact := func(x float32) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(float64(x)) }
	product := new(big.Float).SetPrec(1000).Mul(exact(a), exact(b))
	sum, _ := new(big.Float).SetPrec(1000).Add(product, exact(c)).Float32()
	return sum
}

// number draws a float32 of either sign with an exponent in [low, high].
func number(r *rand.Rand, low, high int) float32 {
	x := math.Ldexp(1+float64(r.IntN(1<<23))/(1<<23), low+r.IntN(high-low+1))
	return float32(x) * float32(1-2*r.IntN(2))
}

// nearPowers are factors of 2^32 + 1 and 2^32 - 1.
var nearPowers = [2][2]float64{{641, 6700417}, {65535, 65537}}

// fmaCases draw the operands on which an emulated FMA goes wrong.
var fmaCases = map[string]func(r *rand.Rand) (a, b, c float32){
	"any bits": func(r *rand.Rand) (a, b, c float32) {
		return math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
	},
	"like exponents": func(r *rand.Rand) (a, b, c float32) {
		return number(r, -12, 12), number(r, -12, 12), number(r, -24, 24)
	},
	"few bits, so that ties are common": func(r *rand.Rand) (a, b, c float32) {
		return float32(r.IntN(511) - 255), float32(r.IntN(511)-255) / 256, float32(math.Ldexp(float64(r.IntN(1<<24)), r.IntN(12)-6))
	},
	"a hair beside half an ulp": func(r *rand.Rand) (a, b, c float32) {
		c = number(r, -60, 60)
		_, e := math.Frexp(float64(c))
		near := nearPowers[r.IntN(2)]
		a, b = float32(math.Ldexp(near[0], e-25-32)), float32(near[1])*float32(1-2*r.IntN(2))
		return a, b, c
	},
	"half an ulp in the product, a hair in c": func(r *rand.Rand) (a, b, c float32) {
		a, b = float32(r.IntN(1<<12)*2+1), float32(r.IntN(1<<12)*2+1) // up to 26 bits
		return a, b, number(r, -60, -20)
	},
	"cancellation": func(r *rand.Rand) (a, b, c float32) {
		a, b = number(r, -40, 40), number(r, -40, 40)
		c = -a * b
		return a, b, math.Float32frombits(math.Float32bits(c) + uint32(r.IntN(5)) - 2)
	},
	"subnormal sum": func(r *rand.Rand) (a, b, c float32) {
		return number(r, -75, -50), number(r, -80, -60), math.Float32frombits(r.Uint32N(1<<24) | r.Uint32N(2)<<31)
	},
	"subnormal halfway": func(r *rand.Rand) (a, b, c float32) {
		near := nearPowers[r.IntN(2)]
		return float32(math.Ldexp(near[0], -100)), float32(math.Ldexp(near[1], -82)), math.Float32frombits(r.Uint32N(1 << 23))
	},
	"overflow": func(r *rand.Rand) (a, b, c float32) {
		return number(r, 60, 64), number(r, 60, 64), number(r, 100, 127)
	},
	"beside the largest": func(r *rand.Rand) (a, b, c float32) {
		return float32(math.Ldexp(1+float64(r.IntN(3)-1)*math.Ldexp(1, -23), 52)), float32(math.Ldexp(1, 51)), math.MaxFloat32
	},
}

var specials = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 3, 0x1p-149, -0x1p-149, 0x1p-126, 0x1.fffffcp-127, -0x1p-24, 0x1p-25,
	0x1p-75, 0x1.000002p0, 0x1.fffffep-1, 0x1p63, 0x1p64, math.MaxFloat32, -math.MaxFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// bits makes all NaN equal.
func bits(x float32) uint32 {
	if x != x {
		return 0x7fc00000
	}
	return math.Float32bits(x)
}

// checkFMA also takes the short way of fmaRow.
func checkFMA(t *testing.T, want, a, b, c float32) {
	t.Helper()
	acc := []float64{float64(c)}
	fmaRow(acc, float64(a), []float64{float64(b)}, false)
	if got := FMA(a, b, c); bits(got) != bits(want) || bits(float32(acc[0])) != bits(want) {
		t.Fatalf("FMA(%x, %x, %x) = %x, in a row %x, want %x", a, b, c, got, float32(acc[0]), want)
	}
}

func TestFMAAgainstExactArithmetic(t *testing.T) {
	for name, draw := range fmaCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			for range 100_000 {
				a, b, c := draw(r)
				checkFMA(t, exactFMA(a, b, c), a, b, c)
			}
		})
	}
	for _, a := range specials {
		for _, b := range specials {
			for _, c := range specials {
				checkFMA(t, exactFMA(a, b, c), a, b, c)
			}
		}
	}
}

// The way that Go offers is wrong on the cases drawn for it, so they do test something.
func TestFMACasesAreHard(t *testing.T) {
	for _, name := range []string{"a hair beside half an ulp", "half an ulp in the product, a hair in c", "subnormal halfway"} {
		r := rand.New(rand.NewPCG(1, 2))
		wrong := 0
		for range 10_000 {
			a, b, c := fmaCases[name](r)
			if bits(float32(math.FMA(float64(a), float64(b), float64(c)))) != bits(FMA(a, b, c)) {
				wrong++
			}
		}
		require.Greater(t, wrong, 100, name)
	}
}
