package workers

import (
	"runtime"
	"sync/atomic"
	"testing"

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
	require.Equal(t, before+7, runtime.NumGoroutine())
	crew.Dismiss()
	require.Equal(t, before, runtime.NumGoroutine())
}
