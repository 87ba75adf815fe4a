package lm

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	tiny  = Config{Width: 6, Hidden: 10, Layers: 2, Kernel: 3, Context: 7}
	small = Config{Width: 32, Hidden: 64, Layers: 2, Kernel: 4, Context: 32}
)

func testBatch(t testing.TB, c Config, rows int, k uint64) Batch {
	s, err := NewSampler(Embedded().Train, rows, c.Context, 1)
	require.NoError(t, err)
	return s.Batch(k)
}

func TestParams(t *testing.T) {
	shapes := map[string][]int64{
		"embedding": {256, 6}, "norm": {6}, "head": {256, 6}, "head_bias": {256},
		"blocks.0.norm": {6}, "blocks.0.conv": {6, 1, 3}, "blocks.0.conv_bias": {6},
		"blocks.0.up": {6, 10}, "blocks.0.up_bias": {10}, "blocks.0.down": {10, 6},
		"blocks.1.norm": {6}, "blocks.1.conv": {6, 1, 3}, "blocks.1.conv_bias": {6},
		"blocks.1.up": {6, 10}, "blocks.1.up_bias": {10}, "blocks.1.down": {10, 6},
	}
	roles := map[string]int{}
	params := New(tiny, 1).Params()
	require.Len(t, params, len(shapes))
	for _, p := range params {
		require.Equal(t, shapes[p.Name], p.Shape, p.Name)
		require.Len(t, p.Weight, elements(p.Shape), p.Name)
		require.Len(t, p.Grad, elements(p.Shape), p.Name)
		roles[p.Role]++
	}
	require.Equal(t, map[string]int{"token_embedding": 1, "matrix": 5, "conv": 2, "vector": 8}, roles)
}

// The first weights are the same on every platform.
func TestNewKnownAnswer(t *testing.T) {
	hash := fnv.New64a()
	for _, p := range New(Default, 1).Params() {
		require.NoError(t, binary.Write(hash, binary.LittleEndian, p.Weight))
	}
	require.Equal(t, uint64(0xb91adf186215593a), hash.Sum64())
	require.NotEqual(t, New(tiny, 1).Params()[0].Weight, New(tiny, 2).Params()[0].Weight)
}

func TestGradient(t *testing.T) {
	m := New(tiny, 3)
	batch := testBatch(t, tiny, 3, 0)
	for i, p := range m.Params() {
		for j := range p.Weight { // gains other than 1 and biases other than 0
			p.Weight[j] += float32(math.Sin(float64(17*i+j))) / 4
		}
	}
	_, err := m.Step(batch)
	require.NoError(t, err)

	const h = 1.0 / 128
	lossAt := func(w *float32, v float32) float64 {
		old := *w
		*w = v
		loss, err := m.Loss(batch)
		require.NoError(t, err)
		*w = old
		return loss
	}
	for _, p := range m.Params() {
		var wrong, size float64
		for i := range p.Weight {
			w := &p.Weight[i]
			slope := (lossAt(w, *w+h) - lossAt(w, *w-h)) / (2 * h)
			wrong = math.Hypot(wrong, slope-float64(p.Grad[i]))
			size = math.Hypot(size, slope)
		}
		t.Logf("%-18s norm %.5f, relative difference %.1e", p.Name, size, wrong/size)
		require.Greater(t, size, 0.01, p.Name)
		require.Less(t, wrong/size, 2e-3, p.Name)
	}
}

// trainSGD returns the bits of every weight and loss of a few steps.
func trainSGD(t *testing.T, c Config, rows int) []uint32 {
	m := New(c, 1)
	var bits []uint32
	for k := range uint64(3) {
		loss, err := m.Step(testBatch(t, c, rows, k))
		require.NoError(t, err)
		bits = append(bits, math.Float32bits(float32(loss)))
		for _, p := range m.Params() {
			for i, g := range p.Grad {
				p.Weight[i] -= g
				bits = append(bits, math.Float32bits(p.Weight[i]))
			}
		}
	}
	return bits
}

func TestSameBitsForAnyGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	want := trainSGD(t, small, 5)
	for _, n := range []int{2, 3, 8} {
		runtime.GOMAXPROCS(n)
		require.True(t, slices.Equal(want, trainSGD(t, small, 5)), "GOMAXPROCS %d", n)
	}
}

// What a step computes does not depend on the steps before it, nor on the batches' sizes.
func TestStepKeepsNothing(t *testing.T) {
	fresh, used := New(tiny, 1), New(tiny, 1)
	for _, rows := range []int{7, 1} {
		_, err := used.Step(testBatch(t, tiny, rows, 9))
		require.NoError(t, err)
	}
	batch := testBatch(t, tiny, 4, 0)
	want, err := fresh.Step(batch)
	require.NoError(t, err)
	got, err := used.Step(batch)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for i, p := range fresh.Params() {
		require.Equal(t, p.Grad, used.Params()[i].Grad, p.Name)
	}
	loss, err := used.Loss(batch)
	require.NoError(t, err)
	require.Equal(t, want, loss)
}

func TestStepRefuses(t *testing.T) {
	row := make([]byte, tiny.Context+1)
	for name, c := range map[string]struct {
		batch Batch
		want  string
	}{
		"no rows":      {nil, "lm: the batch has no rows"},
		"a short row":  {Batch{row, row[1:]}, "lm: row 1 of the batch has 7 bytes, want 8"},
		"a long row":   {Batch{append(row, 0)}, "lm: row 0 of the batch has 9 bytes, want 8"},
		"an empty row": {Batch{nil}, "lm: row 0 of the batch has 0 bytes, want 8"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(tiny, 1)
			_, err := m.Step(c.batch)
			require.EqualError(t, err, c.want)
			_, err = m.Loss(c.batch)
			require.EqualError(t, err, c.want)
		})
	}
}

// A run that diverged says so.
func TestNaNReachesTheLoss(t *testing.T) {
	for i, p := range New(tiny, 1).Params() {
		m := New(tiny, 1)
		batch := testBatch(t, tiny, 2, 0)
		fill(m.Params()[i].Weight, float32(math.NaN()))
		loss, err := m.Step(batch)
		require.NoError(t, err)
		require.True(t, math.IsNaN(loss), p.Name)
	}
}

func TestLearns(t *testing.T) {
	corpus := Embedded()
	s, err := NewSampler(corpus.Train, 8, small.Context, 1)
	require.NoError(t, err)
	heldOut, err := Spread(corpus.HeldOut, 16, small.Context)
	require.NoError(t, err)
	m := New(small, 1)
	loss := func() float64 {
		l, err := m.Loss(heldOut)
		require.NoError(t, err)
		return l
	}
	before := loss()
	require.InDelta(t, math.Log(256), before, 0.1)

	moments := map[string][][2]float64{}
	for _, p := range m.Params() {
		moments[p.Name] = make([][2]float64, len(p.Weight))
	}
	for k := range 60 {
		_, err := m.Step(s.Batch(uint64(k)))
		require.NoError(t, err)
		fix1, fix2 := 1-math.Pow(0.9, float64(k+1)), 1-math.Pow(0.99, float64(k+1))
		for _, p := range m.Params() {
			for i, g32 := range p.Grad {
				g, mv := float64(g32), &moments[p.Name][i]
				*mv = [2]float64{0.9*mv[0] + 0.1*g, 0.99*mv[1] + 0.01*g*g}
				p.Weight[i] -= float32(0.01 * mv[0] / fix1 / (math.Sqrt(mv[1]/fix2) + 1e-8))
			}
		}
	}
	t.Logf("held-out loss %.3f, then %.3f", before, loss())
	require.Less(t, loss(), 3.0)
}

func BenchmarkStep(b *testing.B) {
	m := New(Default, 1)
	batch := testBatch(b, Default, 8, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Step(batch); err != nil {
			b.Fatal(err)
		}
	}
}
