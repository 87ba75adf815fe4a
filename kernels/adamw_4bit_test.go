package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// TestAdamW4bit steps some 40,000 blocks with every implementation of each row, at guard
// pages and at offsets: at special values, at scales of all sizes and at numbers that are
// thresholds or near them.
func TestAdamW4bit(t *testing.T) {
	for _, ops := range []AdamWOps{OpAdamW4bit, OpAdamWFactored} {
		for _, op := range ops {
			for _, impl := range op.Impls[:len(op.Impls)-1] {
				t.Run(op.Variant+"/"+impl.Name, func(t *testing.T) {
					cputest.Need(t, impl.Needs)
					testAdamW4bit(t, op, impl.Func)
				})
			}
		}
	}
}

// nibbleLengths are around groups of 64, blocks of 128 and the parts that factors are multiplied in.
var nibbleLengths = []int{1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 96, 127, 128, 129, 130, 191, 192, 255, 256, 257, 640, 1023, 1025, 2049, 4000}

func testAdamW4bit(t *testing.T, op *Op[AdamWFunc], step AdamWFunc) {
	const capacity = 4096
	random := rand.New(rand.NewPCG(4, uint64(len(op.Variant))))
	weights, gradients := newGuarded(t, isBF16(op, 0), capacity), newGuarded(t, isBF16(op, 1), capacity)
	codes, scales := [2]*testmem.Buffer[uint8]{}, [2]*testmem.Buffer[float32]{}
	for i := range 2 {
		codes[i], scales[i] = testmem.New[uint8](t, capacity), testmem.New[float32](t, capacity)
		codes[i].AtStart(0) // those of factors stay empty
		scales[i].AtStart(0)
	}
	for trial := range 1200 {
		n, place := nibbleLengths[random.IntN(len(nibbleLengths))], random.IntN(66)
		format := Format{Codebook: codebook.DE4(), Block: []int{32, 64, 128, 128, 128, 256, 1024, 2048, 2, 30, 100, 4096}[random.IntN(12)], Headroom: trial%8 == 0}
		format.Nibble = codebook.Nibble(trial / 16 % 2)
		c := nibbleCase{random: random, trial: trial, scale: math.Ldexp(1+random.Float64(), random.IntN(60)-50)}
		if trial%4 == 1 {
			c.scale = math.Ldexp(1+random.Float64(), random.IntN(276)-149)
		}
		tensors := AdamWTensors{
			Weights:   weights.place(c.weights(n), place),
			Gradients: gradients.place(c.gradients(n), (place+7)%66),
			M:         c.moment(format, n, codes[0], scales[0], (place+13)%66),
		}
		if op == OpAdamWFactored.Of(&tensors) {
			tensors.First = int64(random.IntN(500))
			tensors.V = c.factors(int(tensors.First) + n)
		} else {
			format.Codebook = codebook.Linear4()
			tensors.V = c.moment(format, n, codes[1], scales[1], (place+29)%66)
		}
		s := c.scalars()
		want := cloneTensors(&tensors)
		wantCounts, counts := reference.AdamW(*want, &s), step(&tensors, &s)
		what := fmt.Sprintf("trial %d: %d in blocks of %d", trial, n, format.Block)
		require.Equal(t, wantCounts, counts, what)
		for i := range n {
			if a, b := want.Weights.At(i), tensors.Weights.At(i); math.Float32bits(a) != math.Float32bits(b) && (a == a || b == b) {
				t.Fatalf("%s: weight %d is %g, want %g", what, i, b, a)
			}
		}
		for i, moment := range []*Moment{&want.M, &want.V} {
			got := []*Moment{&tensors.M, &tensors.V}[i]
			require.Equal(t, moment.Codes, got.Codes, what)
			for j := range moment.Scales {
				require.Equal(t, math.Float32bits(moment.Scales[j]), math.Float32bits(got.Scales[j]), "%s: scale %d", what, j)
			}
		}
		for i := range 2 {
			codes[i].Check()
			scales[i].Check()
		}
		weights.check()
		gradients.check()
	}
}

type nibbleCase struct {
	random *rand.Rand
	trial  int
	scale  float64 // of gradients
}

// weights are ordinary but where new weights are to be infinite or NaN.
func (c *nibbleCase) weights(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(c.random.NormFloat64())
		if c.trial%16 == 2 && c.random.IntN(200) == 0 {
			x[i] = float32(math.Inf(1 - 2*c.random.IntN(2)))
		}
	}
	return x
}

// gradients are zeros, normal numbers, or the largest of a block and such that they or
// their squares are near its thresholds.
func (c *nibbleCase) gradients(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(c.random.NormFloat64() * c.scale)
		switch {
		case c.trial%16 == 3:
			x[i] = 0
		case c.trial%16 == 4 && i/128%2 == 0:
			x[i] = float32(math.Copysign(0, -1))
		case c.trial%16 == 5 && c.random.IntN(150) == 0:
			x[i] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 3e38}[c.random.IntN(4)]
		case c.thresholds() && i%32 == 0:
			x[i] = float32(c.scale)
		case c.thresholds() && c.random.IntN(2) == 0:
			x[i] = near(c.random, float32(c.scale)*codebook.DE4().Thresholds()[c.random.IntN(15)])
		case c.thresholds():
			x[i] = near(c.random, float32(c.scale*math.Sqrt(float64(codebook.Linear4().Thresholds()[c.random.IntN(15)]))))
		}
	}
	return x
}

func (c *nibbleCase) thresholds() bool { return c.trial%4 == 2 || c.trial%4 == 3 && c.trial%16 > 4 }

// near is x moved by some units in the last place.
func near(random *rand.Rand, x float32) float32 {
	return math.Float32frombits(math.Float32bits(x) + uint32(random.IntN(9)) - 4)
}

func (c *nibbleCase) moment(f Format, n int, codes *testmem.Buffer[uint8], scales *testmem.Buffer[float32], place int) Moment {
	m := Moment{Format: f, Codes: atPlace(codes, make([]uint8, f.CodeBytes(n)), place), Scales: atPlace(scales, make([]float32, f.Scales(n)), place)}
	for i := range m.Codes {
		m.Codes[i] = uint8(c.random.Uint32())
	}
	for i := range m.Scales {
		m.Scales[i] = float32(c.scale * c.random.Float64())
		if f.Codebook == codebook.Linear4() {
			m.Scales[i] = float32(c.scale * c.scale * c.random.Float64())
		}
		switch {
		case c.trial%16 == 3:
			m.Scales[i] = 0
		case c.trial%16 == 6 && c.random.IntN(4) == 0:
			m.Scales[i] = []float32{float32(math.NaN()), float32(math.Inf(1)), -1, 0x1p-149}[c.random.IntN(4)]
		}
	}
	return m
}

func (c *nibbleCase) factors(elements int) Moment {
	v := Moment{Col: make([]float32, []int{1, 3, 16, 64, 100, 128, 1000}[c.random.IntN(7)])}
	v.Row = make([]float32, elements/len(v.Col)+1)
	for _, factor := range [][]float32{v.Row, v.Col} {
		for i := range factor {
			factor[i] = float32(math.Abs(c.random.NormFloat64() * c.scale))
			if c.trial%16 == 6 && c.random.IntN(50) == 0 {
				factor[i] = []float32{float32(math.NaN()), float32(math.Inf(1)), -1, 0x1p-149}[c.random.IntN(4)]
			}
		}
	}
	return v
}

func (c *nibbleCase) scalars() AdamWScalars {
	h := AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, Step: 1 + c.random.Int64N(1000), GradScale: 1, Nesterov: c.trial%3 == 0}
	if c.thresholds() { // gradients and their squares are the new moments
		h.Beta1, h.Beta2 = 0, 0
	} else if c.trial%16 == 1 {
		h.GradScale, h.Eps, h.LR = 0.37, 0, 1e30
	}
	s := h.Scalars()
	s.SkipNonFinite = c.trial%32 < 16
	return s
}

// guarded holds numbers of one of the formats.
type guarded struct {
	wide   *testmem.Buffer[float32]
	narrow *testmem.Buffer[bf16.BF16]
}

func newGuarded(t *testing.T, narrow bool, capacity int) guarded {
	if narrow {
		return guarded{narrow: testmem.New[bf16.BF16](t, capacity)}
	}
	return guarded{wide: testmem.New[float32](t, capacity)}
}

func (g guarded) place(x []float32, place int) Floats {
	if g.wide != nil {
		return Floats{F32: atPlace(g.wide, x, place)}
	}
	rounded := make([]bf16.BF16, len(x))
	reference.Round(rounded, x)
	return Floats{BF16: atPlace(g.narrow, rounded, place)}
}

func (g guarded) check() {
	if g.wide != nil {
		g.wide.Check()
	} else {
		g.narrow.Check()
	}
}

// atPlace copies x to a guard page or to an offset.
func atPlace[T testmem.Number](b *testmem.Buffer[T], x []T, place int) []T {
	var at []T
	switch size := int(reflect.TypeFor[T]().Size()); place {
	case 64:
		at = b.AtEnd(len(x))
	case 65:
		at = b.AtStart(len(x))
	default:
		at = b.AtOffset(len(x), place/size*size)
	}
	copy(at, x)
	return at
}

// isBF16 tells whether a row's weights or gradients are bf16.
func isBF16(op *Op[AdamWFunc], which int) bool {
	for i, pair := range adamWPairs {
		if op == OpAdamW4bit[i] || op == OpAdamWFactored[i] {
			return []bool{pair.weights, pair.gradients}[which]
		}
	}
	return false
}

// TestNegativeSecondMoments: training makes none, and steps with codes have the reference's
// bits all the same.
func TestNegativeSecondMoments(t *testing.T) {
	const n, block = 96, 16
	for _, ops := range []AdamWOps{OpAdamW8bit, OpAdamW4bit} {
		for pair, op := range ops {
			for _, impl := range op.Impls[:len(op.Impls)-1] {
				t.Run(op.Name+"/"+op.Variant+"/"+impl.Name, func(t *testing.T) {
					cputest.Need(t, impl.Needs)
					random := rand.New(rand.NewPCG(5, 6))
					for trial := range 50 {
						floats := func(narrow bool) Floats {
							if narrow {
								return Floats{BF16: make([]bf16.BF16, n)}
							}
							return Floats{F32: make([]float32, n)}
						}
						moment := func(book *codebook.Codebook, scale float32) Moment {
							m := Moment{Format: Format{Codebook: book, Block: block}}
							m.Codes, m.Scales = make([]uint8, m.Format.CodeBytes(n)), make([]float32, m.Format.Scales(n))
							for i := range m.Codes {
								m.Codes[i] = uint8(random.Uint32())
							}
							for i := range m.Scales {
								m.Scales[i] = scale * float32(random.NormFloat64())
							}
							return m
						}
						first, second := codebook.Dynamic8(), codebook.Dynamic8Unsigned()
						if op.Name == OpAdamW4bit[0].Name {
							first, second = codebook.DE4(), codebook.Linear4()
						}
						tensors := AdamWTensors{Weights: floats(pair == 1 || pair == 2), Gradients: floats(pair == 1 || pair == 3), M: moment(first, float32(trial%2)), V: moment(second, 1)}
						s := AdamWHyper{LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 3, GradScale: 1}.Scalars()
						want := cloneTensors(&tensors)
						require.Equal(t, reference.AdamW(*want, &s), impl.Func(&tensors, &s))
						require.Equal(t, bits(want), bits(&tensors))
					}
				})
			}
		}
	}
}
