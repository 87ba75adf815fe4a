package fuzz

import (
	"encoding/binary"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

func TestEveryRowHasATrial(t *testing.T) {
	rows := []kernels.Row{}
	for _, trial := range Trials() {
		rows = append(rows, trial.Row())
	}
	require.Equal(t, kernels.Table(), rows)
	require.Len(t, all, len(rows), "trials of no row")
}

// first are the first n inputs.
func first(n int, inputs iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		left := n
		for data := range inputs {
			if left == 0 || !yield(data) {
				return
			}
			left--
		}
	}
}

// eachImplementation runs a test for every implementation of every row.
func eachImplementation(t *testing.T, test func(t *testing.T, trial Trial, implementation string)) {
	for _, trial := range Trials() {
		row := trial.Row()
		for _, implementation := range row.Implementations {
			t.Run(strings.Join([]string{row.Name, row.Variant, implementation.Name}, "/"), func(t *testing.T) {
				needs, err := cpufeature.Parse(strings.Join(implementation.Needs, ","))
				require.NoError(t, err)
				cputest.Need(t, needs)
				test(t, trial, implementation.Name)
			})
		}
	}
}

func TestImplementationsGiveTheReferencesBits(t *testing.T) {
	eachImplementation(t, func(t *testing.T, trial Trial, implementation string) {
		for data := range first(60, Cases(1)) {
			result := trial.Check(implementation, data)
			require.Empty(t, result.First)
			require.Zero(t, result.Mismatches)
		}
	})
}

// TestImplementationsStayInTheirArrays puts arrays against pages that may not be
// touched, and at every offset.
func TestImplementationsStayInTheirArrays(t *testing.T) {
	const longest = 700
	eachImplementation(t, func(t *testing.T, trial Trial, implementation string) {
		mem := &guarded{t: t}
		random := rand.New(rand.NewPCG(1, 3))
		check := func(length int, place func(b *testmem.Buffer[uint8], n, element int) []byte) {
			data := append(binary.LittleEndian.AppendUint64(nil, random.Uint64()), 0, uint8(length))
			mem.used, mem.place = 0, place
			require.Empty(t, trial.run(implementation, newInput(data), mem).First)
		}
		for length, n := range lengths {
			if n <= longest {
				check(length, func(b *testmem.Buffer[uint8], n, _ int) []byte { return b.AtStart(n) })
				check(length, func(b *testmem.Buffer[uint8], n, _ int) []byte { return b.AtEnd(n) })
			}
		}
		for offset := range 64 {
			for _, length := range []int{offset % 41, random.IntN(41)} { // 41 of them are short
				check(length, func(b *testmem.Buffer[uint8], n, element int) []byte {
					return b.AtOffset(n, offset/element*element)
				})
			}
		}
	})
}

// guarded is memory of testmem. An array's buffer is used again by the next run.
type guarded struct {
	t       *testing.T
	place   func(b *testmem.Buffer[uint8], n, element int) []byte
	buffers []buffer
	used    int
}

type buffer struct {
	*testmem.Buffer[uint8]
	capacity int
}

func (g *guarded) bytes(n, element int) []byte {
	if g.used == len(g.buffers) {
		g.buffers = append(g.buffers, buffer{})
	}
	b := &g.buffers[g.used]
	g.used++
	if b.Buffer == nil || n > b.capacity {
		b.capacity = max(n, 2*b.capacity)
		b.Buffer = testmem.New[uint8](g.t, b.capacity)
	}
	return g.place(b.Buffer, n, element)
}

func (g *guarded) damage() string {
	for _, b := range g.buffers[:g.used] {
		b.Check()
	}
	return ""
}

func TestChecksSeeWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want string
		f    kernels.RoundFunc
	}{
		{"", reference.Round},
		{"dst[48] is", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst[:48], src[:48])
		}},
		{"byte 98 of an array of 98 was written", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst, src)
			*(*uint16)(unsafe.Add(unsafe.Pointer(&dst[0]), 98)) = 0
		}},
		{"byte -2 of an array of 98 was written", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst, src)
			*(*uint16)(unsafe.Add(unsafe.Pointer(&dst[0]), -2)) = 0
		}},
		{"x[0] is", func(dst []bf16.BF16, src []float32) {
			reference.Round(dst, src)
			src[0] = -src[0]
		}},
	} {
		op := &kernels.Op[kernels.RoundFunc]{Name: "bf16_round", Impls: []kernels.Impl[kernels.RoundFunc]{
			{Name: "tried", Func: c.f}, {Name: "reference", Func: reference.Round},
		}}
		data := append([]byte("8 bytes "), 2, uint8(slices.Index(lengths, 49)), 0, 1, 0, 0, 1, 1)
		result := trials(decodeRound, op)[0].Check("tried", data)
		require.Contains(t, result.First, c.want)
		require.Equal(t, c.want != "", result.Mismatches == 1)
	}
}

func TestUnknownImplementation(t *testing.T) {
	result := Trials()[0].Check("abacus", nil)
	require.EqualValues(t, 1, result.Mismatches)
	require.Contains(t, result.First, "abacus: no such implementation")
}

func TestBounds(t *testing.T) {
	outputOf := func(x ...float32) (o output) {
		o.float32s("x", x)
		return o
	}
	want := outputOf(1, 2, 4)
	require.Zero(t, outputOf(1, 2, 4).compare(want).Mismatches)
	off := outputOf(1, 2.5, 4).compare(want)
	require.EqualValues(t, 1, off.Mismatches)
	require.Equal(t, 0.5, off.MaxError)
	require.Equal(t, "x[1] is 2.5 (0x40200000), want 2 (0x40000000)", off.First)
	want[0].bound = []float64{1, 1, 1}
	require.Equal(t, Result{Elements: 3, MaxError: 0.5}, outputOf(1, 2.5, 4).compare(want))
	want[0].bound[1] = 0.25
	require.EqualValues(t, 1, outputOf(1, 2.5, 4).compare(want).Mismatches)
	nan := float32(math.NaN())
	require.Zero(t, outputOf(1, nan, 4).compare(outputOf(1, -nan, 4)).Mismatches)
	require.EqualValues(t, 1, outputOf(1, nan, 4).compare(want).Mismatches)
}
