package workers

import (
	"runtime"
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

func (c *count) Do(worker, piece int) {
	if c.busy[worker].Add(1) != 1 {
		panic("one worker does two pieces")
	}
	c.done[piece].Add(1)
	c.busy[worker].Add(-1)
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
					c := &count{make([]atomic.Int32, pieces), make([]atomic.Int32, max(threads, 1))}
					run(c)
					for i := range c.done {
						require.EqualValues(t, 1, c.done[i].Load(), "piece %d of %d on %d threads", i, pieces, threads)
					}
				}
			}
			crew.Dismiss()
		}
	}
}

func TestNobodyStays(t *testing.T) {
	before := runtime.NumGoroutine()
	crew := Hire(8)
	require.GreaterOrEqual(t, runtime.NumGoroutine(), 7)
	crew.Dismiss()
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

func TestSleepersWake(t *testing.T) {
	crew := Hire(4)
	for range 20 {
		eventually(t, func() bool { return crew.asleep.Load() == 3 })
		c := &count{make([]atomic.Int32, 50), make([]atomic.Int32, 4)}
		crew.Run(50, c)
		for i := range c.done {
			require.EqualValues(t, 1, c.done[i].Load())
		}
	}
	crew.Dismiss()
}
