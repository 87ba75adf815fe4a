package kernels

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Threads limits the goroutines of a call. Zero and below mean GOMAXPROCS.
type Threads int

// pieceElements is how many elements a goroutine takes at a time. It bounds one call of
// an assembly function, which cannot be preempted, to about 100 µs, and keeps small
// inputs on the caller's goroutine.
const pieceElements = 32 << 10

// splitter runs one operation over aligned pieces of its input. A is the operation's
// arguments.
type splitter[A any] struct {
	idle sync.Pool // of *job[A]
}

// split makes a splitter from the function that does elements lo to hi-1.
func split[A any](piece func(args *A, lo, hi int) Counts) *splitter[A] {
	s := &splitter[A]{}
	s.idle.New = func() any {
		j := &job[A]{piece: piece}
		j.work = j.takePieces
		return j
	}
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
	j.next.Store(0)
	workers := min(threads(limit), (n-1)/j.size+1)
	j.running.Add(workers)
	for range workers - 1 {
		go j.work()
	}
	j.work()
	j.running.Wait()
	counts := j.counts
	j.args = *new(A) // the pool keeps nobody's slices alive
	s.idle.Put(j)
	return counts
}

func threads(limit []Threads) int {
	for _, l := range limit {
		if l > 0 {
			return int(l)
		}
	}
	return runtime.GOMAXPROCS(0)
}

type job[A any] struct {
	piece   func(args *A, lo, hi int) Counts
	work    func()
	args    A
	n, size int
	next    atomic.Int64 // the first piece that nobody has taken
	running sync.WaitGroup
	mutex   sync.Mutex
	counts  Counts
}

func (j *job[A]) takePieces() {
	defer j.running.Done()
	var counts Counts
	for {
		piece := j.next.Add(1) - 1
		if piece > int64((j.n-1)/j.size) {
			break
		}
		lo := int(piece) * j.size
		counts.Add(j.piece(&j.args, lo, lo+min(j.size, j.n-lo)))
	}
	j.mutex.Lock()
	j.counts.Add(counts)
	j.mutex.Unlock()
}
