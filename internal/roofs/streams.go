// Package roofs measures what this machine can do at most: how fast a plain loop moves
// bytes, and how many multiply-adds the processor does. Speeds of operations are given
// as fractions of them.
package roofs

import (
	"math"
	"time"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels"
)

// stepElements are moved at a time; no stream of the table has less than half a byte an
// element, nor a step of it less than 256 bytes.
const stepElements = 512

// pieceSteps are what one goroutine does before it looks for more, as in package kernels.
const pieceSteps = 32 << 10 / stepElements

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

// NewStreams makes arrays for an operation's streams of so many elements, in memory that
// has been touched.
func NewStreams(streams kernels.Streams, elements int) *Streams {
	l := streamLoop{steps: steps(elements)}
	for kind, list := range [][]float64{read: streams.Read, write: streams.Write, inPlace: streams.InPlace} {
		for _, bytes := range list {
			size := int(bytes * stepElements)
			l.bases = append(l.bases, &aligned(l.steps * size)[0])
			l.sizes, l.kinds = append(l.sizes, size), append(l.kinds, kind)
		}
	}
	s := &Streams{}
	for _, run := range streamFuncs() {
		usual, around := l, l
		usual.run, around.run = run, run
		s.loops = append(s.loops, &usual)
		if len(streams.Write) > 0 {
			around.kinds = past(l.kinds)
			s.loops = append(s.loops, &around)
		}
	}
	return s
}

func steps(elements int) int { return (elements-1)/stepElements + 1 }

// Choose takes the way that is fastest for so many elements, at most those that there are
// arrays for, on so many threads.
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
	return s.chosen.time(threads, times) / float64(s.chosen.steps*stepElements)
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

// aligned is memory that begins at a cache line.
func aligned(n int) []byte {
	const line = 64
	x := make([]byte, n+line)
	for i := range x {
		x[i] = byte(i)
	}
	offset := -int(uintptr(unsafe.Pointer(&x[0]))) & (line - 1)
	return x[offset : offset+n : offset+n]
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
					x[j]++
				}
			default:
				for j := range x {
					x[j] = math.MaxUint64
				}
			}
		}
	}
}

//go:noinline
func keep(uint64) {}
