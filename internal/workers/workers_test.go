package workers

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// count counts how often each piece is done, and how many workers do one at a time.
type count struct {
	done []atomic.Int32
	busy []atomic.Int32
}

func newCount(pieces, threads int) *count {
	return &count{make([]atomic.Int32, pieces), make([]atomic.Int32, max(threads, 1))}
}

func (c *count) Do(worker, piece int) {
	if c.busy[worker].Add(1) != 1 {
		panic("one worker does two pieces")
	}
	c.done[piece].Add(1)
	c.busy[worker].Add(-1)
}

func (c *count) require(t *testing.T, threads int) {
	for i := range c.done {
		require.EqualValues(t, 1, c.done[i].Load(), "piece %d of %d on %d threads", i, len(c.done), threads)
	}
}

func TestEveryPieceIsDoneOnce(t *testing.T) {
	for _, threads := range []int{-1, 0, 1, 2, 3, 16} {
		for _, processors := range []int{1, 2, 8} {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			crew := Hire(threads)
			for pieces := range 40 {
				for _, run := range []func(Task){
					func(c Task) { Run(threads, pieces, c) },
					func(c Task) { crew.Run(pieces, c) },
				} {
					c := newCount(pieces, threads)
					run(c)
					c.require(t, threads)
				}
			}
			crew.Dismiss()
		}
	}
}

// nested is a task whose pieces are tasks, of as many pieces.
type nested struct {
	crew  *Crew
	tasks []*count
}

func (n *nested) Do(worker, piece int) {
	for range 3 {
		n.crew.Share(worker, len(n.tasks[piece].done), n.tasks[piece])
	}
}

func TestTasksWithinPieces(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 16} {
		for _, processors := range []int{1, 2, 8} {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			crew := Hire(threads)
			for pieces := range 20 {
				n := &nested{crew, nil}
				for i := range pieces {
					n.tasks = append(n.tasks, newCount(i*7%12, threads))
				}
				crew.Run(pieces, n)
				for _, c := range n.tasks {
					for i := range c.done {
						require.EqualValues(t, 3, c.done[i].Load())
					}
				}
			}
			crew.Dismiss()
		}
	}
}

// TestManyCrews: those of several goroutines, and of fewer threads than before.
func TestManyCrews(t *testing.T) {
	var all sync.WaitGroup
	for seed := range 6 {
		all.Go(func() {
			for i := range 300 {
				threads, pieces := (seed+i)%5+1, (seed*i)%9
				c := newCount(pieces, threads)
				Run(threads, pieces, c)
				for i := range c.done {
					if c.done[i].Load() != 1 {
						t.Errorf("piece %d of %d was done %d times", i, pieces, c.done[i].Load())
					}
				}
			}
		})
	}
	all.Wait()
}

func TestNobodyStays(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		Run(8, 8, newCount(8, 8))
	}
	eventually(t, func() bool { return runtime.NumGoroutine() <= before })
}

// eventually waits for what happens without anybody telling of it.
func eventually(t *testing.T, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !happened() {
		require.True(t, time.Now().Before(deadline))
		time.Sleep(100 * time.Microsecond)
	}
}

func (c *Crew) present() (n int) {
	for _, h := range c.helpers {
		if h.here.Load() {
			n++
		}
	}
	return n
}

// meeting is a task of which no piece ends before all have begun.
type meeting struct{ sync.WaitGroup }

func (m *meeting) Do(int, int) {
	m.Done()
	m.Wait()
}

// TestHelpersComeBack after they have left.
func TestHelpersComeBack(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	crew := Hire(4)
	for range 20 {
		eventually(t, func() bool { return crew.present() == 0 })
		m := &meeting{}
		m.Add(4)
		crew.Run(4, m)
	}
	crew.Dismiss()
}

// lastIsSlow is a task whose last piece outlasts the patience of who waits for it.
type lastIsSlow struct{ count }

func (l *lastIsSlow) Do(worker, piece int) {
	if worker > 0 {
		time.Sleep(2 * time.Millisecond)
	}
	l.count.Do(worker, piece)
}

func TestWaitingForTheLastPiece(t *testing.T) {
	crew := Hire(2)
	for range 50 {
		l := &lastIsSlow{*newCount(2, 2)}
		crew.Run(2, l)
		l.require(t, 2)
	}
	crew.Dismiss()
}
