package kernels

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// manyLengths has runs of one length, below, at and above a block and a part, and others.
var manyLengths = slices.Concat(
	slices.Repeat([]int{64}, 40), []int{1, 3, 100, 63}, slices.Repeat([]int{31}, 3), slices.Repeat([]int{6}, 180),
	slices.Repeat([]int{128}, 9), slices.Repeat([]int{200}, 5), slices.Repeat([]int{512}, 3), []int{2049, 4096, 4095})

// manyCase is what parameters that are stepped together have in common.
type manyCase struct {
	name    string
	m, v    Format // without a codebook where moments are numbers
	narrow  bool   // moments in bf16
	weights bool   // in bf16, and gradients
	wide    bool   // gradients of bf16 weights in float32
	low     bool
	change  func(*AdamWScalars)
}

func (c *manyCase) tensors(n int, random *rand.Rand, spoil float64) *AdamWTensors {
	values := func(narrow bool, scale float64) Floats {
		f := Floats{F32: make([]float32, n)}
		for i := range n {
			f.F32[i] = float32(random.NormFloat64() * scale)
		}
		if narrow {
			f = Floats{BF16: make([]bf16.BF16, n), F32: f.F32}
			reference.Round(f.BF16, f.F32)
			f.F32 = nil
		}
		return f
	}
	moment := func(format Format, positive bool) Moment {
		x := values(c.narrow, 0.01)
		if positive {
			for i := range x.F32 {
				x.F32[i] *= x.F32[i]
			}
			for i := range x.BF16 {
				x.BF16[i] &= 0x7fff
			}
		}
		if format.Codebook == nil {
			return Moment{Floats: x}
		}
		m := Moment{Codes: make([]uint8, format.CodeBytes(n)), Scales: make([]float32, format.Scales(n)), Format: format}
		reference.Quantize(m.Codes, m.Scales, x.F32, format)
		return m
	}
	t := &AdamWTensors{Weights: values(c.weights, 1), Gradients: values(c.weights && !c.wide, 0.1), M: moment(c.m, false), V: moment(c.v, true)}
	if c.low {
		t.Low = make([]uint16, n)
		for i := range t.Low {
			t.Low[i] = uint16(random.Uint32())
		}
	}
	if random.Float64() < spoil {
		i := random.IntN(n)
		if t.Gradients.BF16 != nil {
			t.Gradients.BF16[i] = 0x7f80
		} else {
			t.Gradients.F32[i] = float32(math.NaN())
		}
	}
	return t
}

func cloneTensors(t *AdamWTensors) *AdamWTensors {
	c := *t
	for _, f := range []*Floats{&c.Weights, &c.Gradients, &c.M.Floats, &c.V.Floats} {
		f.F32, f.BF16 = slices.Clone(f.F32), slices.Clone(f.BF16)
	}
	c.Low = slices.Clone(c.Low)
	for _, m := range []*Moment{&c.M, &c.V} {
		m.Codes, m.Scales = slices.Clone(m.Codes), slices.Clone(m.Scales)
	}
	return &c
}

// bits compare NaN with NaN.
func bits(t *AdamWTensors) (all []any) {
	for _, x := range [][]float32{t.Weights.F32, t.M.F32, t.V.F32, t.M.Scales, t.V.Scales} {
		b := make([]uint32, len(x))
		for i := range x {
			b[i] = math.Float32bits(x[i])
		}
		all = append(all, b)
	}
	return append(all, t.Weights.BF16, t.M.BF16, t.V.BF16, t.Low, t.M.Codes, t.V.Codes)
}

func manyCases() (cases []manyCase) {
	code := func(book *codebook.Codebook, block int) Format { return Format{Codebook: book, Block: block} }
	storages := []manyCase{
		{name: "float32"}, {name: "bf16", narrow: true},
		{name: "8bit", m: code(codebook.Dynamic8(), 128), v: code(codebook.Dynamic8Unsigned(), 128)},
		{name: "8bit others", m: code(codebook.Dynamic8(), 64), v: code(codebook.Dynamic8(), 64)},
		{name: "4bit", m: code(codebook.DE4(), 128), v: code(codebook.Linear4(), 128)},
		{name: "4bit odd block", m: code(codebook.DE4(), 63), v: code(codebook.Linear4(), 63)},
	}
	changes := map[string]func(*AdamWScalars){
		"": func(*AdamWScalars) {}, " skip": func(s *AdamWScalars) { s.SkipNonFinite = true },
		" optax":      func(s *AdamWScalars) { s.Optax = true },
		" nesterov":   func(s *AdamWScalars) { s.Nesterov = true },
		" stochastic": func(s *AdamWScalars) { s.Rounding.StochasticWeights, s.Rounding.StochasticMoments = true, true },
		" far":        func(s *AdamWScalars) { s.RootCorrection2 = 0x1p-30 },
	}
	for _, c := range storages {
		for name, change := range changes {
			for i, formats := range []string{" float32", " bf16", " bf16 wide", " master"} {
				one := c
				one.name += formats + name
				one.weights, one.wide, one.low, one.change = i > 0, i == 2, i == 3, change
				cases = append(cases, one)
			}
		}
	}
	return cases
}

// TestManyParameters: each implementation of the table gives many parameters the
// reference's bits and counts.
func TestManyParameters(t *testing.T) {
	for _, c := range manyCases() {
		t.Run(c.name, func(t *testing.T) {
			for _, spoil := range []float64{0, 0.05} {
				random := rand.New(rand.NewPCG(1, 2))
				s := AdamWHyper{LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, Step: 3, GradScale: 0.5}.Scalars()
				c.change(&s)
				var before, want []*AdamWTensors
				counts := Counts{}
				for _, n := range manyLengths {
					before = append(before, c.tensors(n, random, spoil))
					want = append(want, cloneTensors(before[len(before)-1]))
					counts.Add(reference.AdamW(*want[len(want)-1], &s))
				}
				require.Equal(t, spoil > 0, counts.NonFinite > 0)
				for _, impl := range OpAdamW(before[0]).Impls {
					if !impl.Available() {
						continue
					}
					calls, got := AdamWCalls{}, []*AdamWTensors{}
					for _, x := range before {
						got = append(got, cloneTensors(x))
						require.NoError(t, calls.Add(got[len(got)-1], &s))
					}
					for _, kind := range calls.kinds {
						kind.run, kind.many = impl.Func, impl.many
						if kind.many == nil {
							kind.many = impl.Func.each
						}
					}
					gotCounts, _ := calls.Run(2)
					require.Equal(t, counts, gotCounts, impl.Name)
					for i := range want {
						if !reflect.DeepEqual(bits(want[i]), bits(got[i])) {
							t.Fatalf("%s, spoilt %g: parameter %d of %d elements is not the reference's", impl.Name, spoil, i, manyLengths[i])
						}
					}
				}
			}
		})
	}
}

// TestManyMatrices: AdamWFactored's bits and counts, step after step.
func TestManyMatrices(t *testing.T) {
	shapes := [][2]int{{8, 8}, {8, 8}, {1, 5}, {300, 200}, {8, 8}, {3, 100}, {200, 164}, {64, 512}, {7, 1},
		{64, 16}, {64, 16}, {65, 3}, {9, 17}, {40, 9}, {40, 9}, {40, 9}}
	shapes = append(shapes, slices.Repeat([][2]int{{4, 3}}, 40)...) // more than are stepped at once
	for rows := range 18 {
		shapes = append(shapes, slices.Repeat([][2]int{{rows + 1, rows*5%17 + 1}}, 3)...)
	}
	format := Format{Codebook: codebook.DE4(), Block: 128}
	for _, narrow := range []bool{false, true} {
		for _, skip := range []bool{false, true} {
			for _, threads := range []Threads{1, 3} {
				random := rand.New(rand.NewPCG(3, 4))
				c := manyCase{m: format, v: format, weights: narrow}
				s := AdamWHyper{LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 3, GradScale: 1}.Scalars()
				s.SkipNonFinite = skip
				var calls AdamWCalls
				var got, want []*AdamWTensors
				for i, shape := range shapes {
					x := c.tensors(shape[0]*shape[1], random, 0)
					if i == 2 || i == 3 {
						x = c.tensors(shape[0]*shape[1], random, 1)
					}
					x.V = Moment{Row: make([]float32, shape[0]), Col: make([]float32, shape[1])}
					y := cloneTensors(x)
					y.V.Row, y.V.Col = slices.Clone(x.V.Row), slices.Clone(x.V.Col)
					got, want = append(got, x), append(want, y)
					require.NoError(t, calls.Add(x, &s))
				}
				for range 3 {
					var counts Counts
					skipped := int64(0)
					for _, x := range want {
						one, whole, err := AdamWFactored(x, x.V.Row, x.V.Col, &s)
						require.NoError(t, err)
						counts.Add(one)
						if whole {
							skipped++
						}
					}
					require.Equal(t, skip, skipped == 2)
					gotCounts, gotSkipped := calls.Run(threads)
					require.Equal(t, counts, gotCounts)
					require.Equal(t, skipped, gotSkipped)
					for i := range want {
						if !reflect.DeepEqual(bits(want[i]), bits(got[i])) || !reflect.DeepEqual(factorBits(want[i]), factorBits(got[i])) {
							t.Fatalf("matrix %d of %v is not AdamWFactored's", i, shapes[i])
						}
					}
				}
			}
		}
	}
}

func factorBits(t *AdamWTensors) (all []uint32) {
	for _, x := range slices.Concat(t.V.Row, t.V.Col) {
		all = append(all, math.Float32bits(x))
	}
	return all
}

// TestPiecesOfSmallParameters bounds how many parameters one call of assembly steps.
func TestPiecesOfSmallParameters(t *testing.T) {
	s := AdamWHyper{LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 1, GradScale: 1}.Scalars()
	var calls AdamWCalls
	x := make([]float32, 4*5000)
	for i := range 5000 {
		at := func(array int) Floats { return Float32s(x[4*i+array:][:1:1]) }
		require.NoError(t, calls.Add(&AdamWTensors{Weights: at(0), Gradients: at(1), M: Moment{Floats: at(2)}, V: Moment{Floats: at(3)}}, &s))
	}
	calls.divide()
	stepped := 0
	for _, piece := range calls.pieces {
		require.Equal(t, stepped, piece.first)
		require.LessOrEqual(t, piece.last-piece.first, pieceElements/callCost)
		stepped = piece.last
	}
	require.Equal(t, 5000, stepped)
}
