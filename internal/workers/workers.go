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

// Crew does tasks that follow one another closely: between them its goroutines stay awake
// for a while, since waking up takes longer than a small task. A nil Crew is the caller
// alone.
type Crew struct {
	work  func()
	hired atomic.Int64
	home  sync.WaitGroup

	task     Task
	pieces   int64
	left     atomic.Int64 // pieces that nobody has taken, or dismissed
	done     atomic.Int64
	finished sync.WaitGroup // the pieces

	asleep atomic.Int64
	wake   chan struct{}
}

const (
	dismissed = -1
	// patience is how often somebody looks before falling asleep, some 50 µs, and courtesy
	// how often before others may run.
	patience = 1 << 13
	courtesy = 1 << 10
)

var idle = sync.Pool{New: func() any {
	c := &Crew{wake: make(chan struct{})}
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
	c.announce(dismissed)
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
	c.finished.Add(pieces)
	c.announce(c.pieces)
	for c.take(0) > 0 {
	}
	for looks := 1; looks < patience && c.done.Load() < c.pieces; looks++ {
		beCourteous(looks)
	}
	c.finished.Wait()
	c.task = nil
}

// announce says how many pieces there are.
func (c *Crew) announce(left int64) {
	c.left.Store(left)
	for range c.asleep.Swap(0) {
		c.wake <- struct{}{}
	}
}

func (c *Crew) takePieces() {
	defer c.home.Done()
	worker := int(c.hired.Add(1))
	for looks := 1; ; looks++ {
		switch left := c.take(worker); {
		case left == dismissed:
			return
		case left > 0:
			looks = 0
		case looks == patience:
			c.sleep()
			looks = 0
		default:
			beCourteous(looks)
		}
	}
}

// sleep returns after an announcement, if not before: those who make one after a sleeper
// is counted wake it, and one made before is seen here.
func (c *Crew) sleep() {
	c.asleep.Add(1)
	for c.left.Load() != 0 {
		asleep := c.asleep.Load()
		if asleep == 0 {
			break
		}
		if c.asleep.CompareAndSwap(asleep, asleep-1) {
			return
		}
	}
	<-c.wake
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
			c.finished.Done()
			return left
		}
	}
}

func beCourteous(looks int) {
	if looks%courtesy == 0 {
		runtime.Gosched()
	}
}
