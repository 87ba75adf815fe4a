package kernels

import (
	"runtime"
	"sync"

	"github.com/lowbit-go/lowbit/internal/workers"
)

// Threads limits the goroutines of a call. Zero and below mean GOMAXPROCS; more than 1024
// are not used. The result does not depend on it. Those that a call starts look for work of
// the next for some 50 µs before they end.
type Threads int

const mostThreads = 1024

// pieceElements is how many elements a goroutine takes at a time. It bounds one call of
// an assembly function, which cannot be preempted, to about 100 µs, and keeps small
// inputs on the caller's goroutine.
const pieceElements = 32 << 10

// streamElements is how many results are taken to be far more than the caches hold, and
// streamPiece the alignment of the pieces of such work: implementations see by a piece's
// size that its results need not stay in a cache.
const (
	streamElements = 8 << 20
	streamPiece    = 2 * pieceElements
)

// streamAlign is the alignment of the pieces of n elements that are written and not read.
func streamAlign(n int) int {
	if n >= streamElements {
		return streamPiece
	}
	return 1
}

// small tells that n elements are one piece, for the caller's goroutine: doors that are
// called for many small vectors call the implementation themselves, which a splitter's
// bookkeeping takes longer than.
func small(n int) bool { return n <= pieceElements }

// splitter runs one operation over aligned pieces of its input. A is the operation's
// arguments.
type splitter[A any] struct {
	idle sync.Pool // of *job[A]
}

// split makes a splitter from the function that does elements lo to hi-1.
func split[A any](piece func(args *A, lo, hi int) Counts) *splitter[A] {
	s := &splitter[A]{}
	s.idle.New = func() any { return &job[A]{piece: piece} }
	return s
}

// run does all n elements, in pieces that begin at multiples of align.
func (s *splitter[A]) run(args A, n, align int, limit []Threads) Counts {
	if n == 0 {
		return Counts{}
	}
	j := s.idle.Get().(*job[A])
	j.args, j.n, j.counts = args, n, Counts{}
	j.size = max(pieceElements/align, 1) * align
	if n <= j.size {
		j.Do(0, 0)
	} else {
		workers.Run(threads(limit), (n-1)/j.size+1, j)
	}
	counts := j.counts
	j.args = *new(A) // the pool keeps nobody's slices alive
	s.idle.Put(j)
	return counts
}

func threads(limit []Threads) int {
	for _, l := range limit {
		if l > 0 {
			return min(int(l), mostThreads)
		}
	}
	return min(runtime.GOMAXPROCS(0), mostThreads)
}

type job[A any] struct {
	piece   func(args *A, lo, hi int) Counts
	args    A
	n, size int
	mutex   sync.Mutex
	counts  Counts
}

// Do does one piece.
func (j *job[A]) Do(_, piece int) {
	lo := piece * j.size
	if counts := j.piece(&j.args, lo, lo+min(j.size, j.n-lo)); counts != (Counts{}) {
		j.mutex.Lock()
		j.counts.Add(counts)
		j.mutex.Unlock()
	}
}
