// Package workers runs independent pieces of work on several goroutines, and leaves none
// behind.
package workers

import (
	"sync"
	"sync/atomic"
)

// Task is work in pieces, done in any order and at the same time. Workers are numbered
// from 0, and each does one piece at a time.
type Task interface{ Do(worker, piece int) }

// Run does every piece, on the caller's goroutine and up to threads-1 others.
func Run(threads, pieces int, task Task) {
	threads = min(threads, pieces)
	if threads <= 1 {
		for piece := range pieces {
			task.Do(0, piece)
		}
		return
	}
	c := idle.Get().(*crew)
	c.task, c.pieces = task, int64(pieces)
	c.next.Store(0)
	c.hired.Store(0)
	c.running.Add(threads)
	for range threads - 1 {
		go c.work()
	}
	c.work()
	c.running.Wait()
	c.task = nil
	idle.Put(c)
}

var idle = sync.Pool{New: func() any {
	c := &crew{}
	c.work = c.takePieces
	return c
}}

type crew struct {
	work    func()
	task    Task
	pieces  int64
	next    atomic.Int64 // the first piece that nobody has taken
	hired   atomic.Int64
	running sync.WaitGroup
}

func (c *crew) takePieces() {
	defer c.running.Done()
	worker := int(c.hired.Add(1) - 1)
	for piece := c.next.Add(1) - 1; piece < c.pieces; piece = c.next.Add(1) - 1 {
		c.task.Do(worker, int(piece))
	}
}
