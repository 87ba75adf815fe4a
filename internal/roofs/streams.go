// Package roofs measures what this machine can do at most: how fast a plain loop moves
// bytes, and how many multiply-adds the processor does. Speeds of operations are given
// as fractions of them.
package roofs

import (
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels"
)

// StepElements are moved at a time; no stream of the table has less than half a byte an
// element, nor a step of it less than 256 bytes.
const StepElements = 512

// pieceSteps are what one goroutine does before it looks for more, as in package kernels.
const pieceSteps = 32 << 10 / StepElements

// The kinds of streams.
const (
	read = iota
	write
	inPlace
	nonTemporal
)

// Streams moves bytes as an operation does, and does nothing else.
type Streams struct {
	loops  []*streamLoop
	chosen *streamLoop
}

// streamFunc is the signature of what package amd64 has for it.
type streamFunc = func(streams []*byte, sizes, kinds []int, first, last int)

// streamLoop is one way to move them.
type streamLoop struct {
	run          streamFunc
	bases        []*byte
	sizes, kinds []int // of a step; of each stream
	steps        int
}

// Arrays are where streams lie, each with room for a multiple of StepElements.
type Arrays struct{ Read, Write, InPlace []*byte }

// NewArrays makes arrays of so many elements, in memory that has been touched.
func NewArrays(streams kernels.Streams, elements int) Arrays {
	list := func(sizes []float64) (bases []*byte) {
		for _, bytes := range sizes {
			array := make([]byte, steps(elements)*int(bytes*StepElements))
			for i := range array {
				array[i] = byte(i)
			}
			bases = append(bases, &array[0])
		}
		return bases
	}
	return Arrays{list(streams.Read), list(streams.Write), list(streams.InPlace)}
}

// NewStreams goes through arrays as an operation does. It should be those that the
// operation itself works on: how fast memory is depends on where it lies. What is in
// Write is lost; what is in InPlace stays.
func NewStreams(streams kernels.Streams, arrays Arrays) *Streams {
	l := streamLoop{bases: slices.Concat(arrays.Read, arrays.Write, arrays.InPlace)}
	for kind, list := range [][]float64{read: streams.Read, write: streams.Write, inPlace: streams.InPlace} {
		for _, bytes := range list {
			l.sizes, l.kinds = append(l.sizes, int(bytes*StepElements)), append(l.kinds, kind)
		}
	}
	s := &Streams{}
	for _, run := range streamFuncs() {
		usual, around := l, l
		usual.run, around.run = run, run
		s.loops = append(s.loops, &usual)
		if len(arrays.Write) > 0 && !slices.ContainsFunc(arrays.Write, misaligned) {
			around.kinds = past(l.kinds)
			s.loops = append(s.loops, &around)
		}
	}
	return s
}

// misaligned tells whether non-temporal stores cannot begin there.
func misaligned(p *byte) bool { return uintptr(unsafe.Pointer(p))%64 != 0 }

func steps(elements int) int { return (elements-1)/StepElements + 1 }

// Choose takes the way that is fastest for so many elements on so many threads.
func (s *Streams) Choose(elements, threads int) {
	best := math.Inf(1)
	for range 3 {
		for _, l := range s.loops {
			l.steps = steps(elements)
			if seconds := l.time(threads, 1); seconds < best {
				best, s.chosen = seconds, l
			}
		}
	}
}

// Time is how long it takes to move an element in the chosen way, in seconds, the mean of
// a number of times.
func (s *Streams) Time(threads, times int) float64 {
	return s.chosen.time(threads, times) / float64(s.chosen.steps*StepElements)
}

func (l *streamLoop) time(threads, times int) float64 {
	start := time.Now()
	for range times {
		workers.Run(threads, (l.steps-1)/pieceSteps+1, l)
	}
	return time.Since(start).Seconds() / float64(times)
}

// past writes past the caches.
func past(kinds []int) []int {
	list := make([]int, len(kinds))
	for i, kind := range kinds {
		list[i] = kind
		if kind == write {
			list[i] = nonTemporal
		}
	}
	return list
}

// Do moves one piece.
func (l *streamLoop) Do(_, piece int) {
	first := piece * pieceSteps
	l.run(l.bases, l.sizes, l.kinds, first, min(first+pieceSteps, l.steps))
}

// streamGo is what streamFuncs are where there is no assembly.
func streamGo(streams []*byte, sizes, kinds []int, first, last int) {
	for step := first; step < last; step++ {
		for i, p := range streams {
			x := unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(p), step*sizes[i])), sizes[i]/8)
			switch kinds[i] {
			case read:
				sum := uint64(0)
				for j := 0; j < len(x); j += 4 {
					sum += x[j] + x[j+1] + x[j+2] + x[j+3]
				}
				keep(sum)
			case inPlace:
				for j := range x {
					x[j] ^= nothing
				}
			default:
				for j := range x {
					x[j] = math.MaxUint64
				}
			}
		}
	}
}

// The compiler does not know what these are.

var nothing uint64

//go:noinline
func keep(uint64) {}
