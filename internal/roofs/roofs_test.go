package roofs

import (
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

// every is a loop over streams of every kind and of the table's sizes.
var every = kernels.Streams{Read: []float64{4, 0.5}, Write: []float64{2, 1}, InPlace: []float64{4}}

func TestStreamsGoThroughTheirArrays(t *testing.T) {
	for _, elements := range []int{1, 512, 513, 70_000} {
		s := NewStreams(every, NewArrays(every, elements))
		for _, l := range s.loops {
			l.steps = steps(elements)
		}
		for _, l := range append(s.loops, &streamLoop{run: streamGo, bases: s.loops[0].bases, sizes: s.loops[0].sizes, kinds: s.loops[0].kinds, steps: s.loops[0].steps}) {
			require.GreaterOrEqual(t, l.steps*StepElements, elements)
			before := l.arrays()
			for _, kind := range []int{2, 3} { // those that are written
				clear(unsafe.Slice(l.bases[kind], l.steps*l.sizes[kind]))
			}
			require.Positive(t, l.time(2, 1))
			after := l.arrays()
			for i, kind := range l.kinds {
				switch kind {
				case read, inPlace:
					require.Equal(t, before[i], after[i])
				case write, nonTemporal:
					require.NotContains(t, after[i], uint8(0))
				}
			}
		}
	}
}

// arrays are copies of all that is gone through.
func (l *streamLoop) arrays() (list [][]byte) {
	for i, p := range l.bases {
		list = append(list, slices.Clone(unsafe.Slice(p, l.steps*l.sizes[i])))
	}
	return list
}

func TestChooseTakesSomeOfTheElements(t *testing.T) {
	s := NewStreams(every, NewArrays(every, 10_000))
	s.Choose(600, 1)
	require.Equal(t, 2, s.chosen.steps)
	seconds := s.Time(1, 3)
	require.True(t, seconds > 0 && seconds < 1, "%g s an element", seconds)
}

func TestPeaks(t *testing.T) {
	for _, p := range Peaks() {
		rate := p.Rate(2, time.Millisecond)
		require.True(t, rate > 1e8 && !math.IsInf(rate, 0), "%s: %g", p.Name, rate)
	}
}
