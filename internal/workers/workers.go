// Package workers runs independent pieces of work on several goroutines, and leaves none
// behind.
package workers

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Task is work in pieces, done in any order and at the same time. Workers are numbered
// from 0, and each does one piece at a time.
type Task interface{ Do(worker, piece int) }

// Run does every piece, on the caller's goroutine and up to threads-1 others.
func Run(threads, pieces int, task Task) {
	c := Hire(min(threads, pieces))
	c.Run(pieces, task)
	c.Dismiss()
}

// Crew does tasks that follow one another closely. Between them its goroutines do not
// sleep, for waking up takes longer than a small task. A nil Crew is the caller alone.
type Crew struct {
	work  func()
	hired atomic.Int64
	home  sync.WaitGroup

	task   Task
	pieces int64
	left   atomic.Int64 // pieces that nobody has taken, or dismissed
	done   atomic.Int64
}

const (
	dismissed = -1
	// patience is how often a worker looks for work, which takes some microseconds, before it
	// lets other goroutines run.
	patience = 1000
)

var idle = sync.Pool{New: func() any {
	c := &Crew{}
	c.work = c.takePieces
	return c
}}

// Hire starts threads-1 goroutines.
func Hire(threads int) *Crew {
	if threads <= 1 {
		return nil
	}
	c := idle.Get().(*Crew)
	c.left.Store(0)
	c.hired.Store(0)
	c.home.Add(threads - 1)
	for range threads - 1 {
		go c.work()
	}
	return c
}

// Dismiss returns when the goroutines have ended.
func (c *Crew) Dismiss() {
	if c == nil {
		return
	}
	c.left.Store(dismissed)
	c.home.Wait()
	idle.Put(c)
}

// Run does every piece of a task.
func (c *Crew) Run(pieces int, task Task) {
	if c == nil || pieces <= 1 {
		for piece := range pieces {
			task.Do(0, piece)
		}
		return
	}
	c.task, c.pieces = task, int64(pieces)
	c.done.Store(0)
	c.left.Store(c.pieces)
	for c.take(0) > 0 {
	}
	for tries := 1; c.done.Load() < c.pieces; tries++ {
		pause(tries)
	}
	c.task = nil
}

func (c *Crew) takePieces() {
	defer c.home.Done()
	worker := int(c.hired.Add(1))
	for tries := 1; ; tries++ {
		switch left := c.take(worker); {
		case left == dismissed:
			return
		case left > 0:
			tries = 0
		}
		pause(tries)
	}
}

// take does a piece if there is one, and returns how many there were. Whoever takes one
// finds its task: no other begins before it is done.
func (c *Crew) take(worker int) (left int64) {
	for {
		left = c.left.Load()
		if left <= 0 {
			return left
		}
		if c.left.CompareAndSwap(left, left-1) {
			c.task.Do(worker, int(c.pieces-left))
			c.done.Add(1)
			return left
		}
	}
}

func pause(tries int) {
	if tries%patience == 0 && tries > 0 {
		runtime.Gosched()
	}
}
