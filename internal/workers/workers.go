// Package workers runs independent pieces of work on several goroutines, and leaves none
// behind.
package workers

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
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

// Crew does tasks that follow one another closely: the caller, who is worker 0, and helpers.
// A helper that finds nothing to do looks on for about as long as starting another would
// take, and so do those of a crew that was dismissed, for the next that is hired. Nobody
// waits for one that has not begun a piece. A nil Crew is the caller alone.
type Crew struct {
	threads atomic.Int64
	helpers []*helper
	main    *desk
	desks   []*desk // of the workers, for what they share
}

const (
	// patience is how long somebody looks in vain before leaving, and courtesy how often
	// before others may run.
	patience = 50 * time.Microsecond
	courtesy = 1 << 9
)

var idle = sync.Pool{New: func() any { return newCrew(runtime.GOMAXPROCS(0)) }}

func newCrew(size int) *Crew {
	c := &Crew{main: newDesk()}
	for worker := range size {
		c.desks = append(c.desks, newDesk())
		if worker > 0 {
			h := &helper{crew: c, worker: worker}
			h.work = h.look
			c.helpers = append(c.helpers, h)
		}
	}
	return c
}

// Hire makes a crew of so many threads.
func Hire(threads int) *Crew {
	if threads <= 1 {
		return nil
	}
	c := idle.Get().(*Crew)
	if len(c.desks) < threads {
		c = newCrew(threads)
	}
	c.threads.Store(int64(threads))
	return c
}

// Dismiss lets the crew go, when all of its work is done.
func (c *Crew) Dismiss() {
	if c != nil {
		idle.Put(c)
	}
}

// Run does every piece of a task.
func (c *Crew) Run(pieces int, task Task) {
	if c == nil || pieces <= 1 {
		alone(0, pieces, task)
		return
	}
	c.run(c.main, 0, pieces, task)
}

// Share does every piece of a task that is part of a worker's piece, with the help of those
// who have no piece of their own.
func (c *Crew) Share(worker, pieces int, task Task) {
	if c == nil || pieces <= 1 {
		alone(worker, pieces, task)
		return
	}
	c.run(c.desks[worker], worker, pieces, task)
}

func alone(worker, pieces int, task Task) {
	for piece := range pieces {
		task.Do(worker, piece)
	}
}

func (c *Crew) run(d *desk, worker, pieces int, task Task) {
	threads := int(c.threads.Load())
	d.put(task, pieces, threads)
	c.call(min(threads, pieces) - 1)
	for d.take(worker) {
	}
	d.wait(pieces)
	d.task = nil
}

// call starts those of the first helpers who are away. The goroutine that is started last
// stays with this processor until it pauses, or others have slept in vain: so that is one
// which has nothing to do.
func (c *Crew) call(helpers int) {
	called := false
	for _, h := range c.helpers[:helpers] {
		if !h.here.Load() && h.here.CompareAndSwap(false, true) {
			go h.work()
			called = true
		}
	}
	if called {
		go nothing()
	}
}

func nothing() {}

type helper struct {
	crew   *Crew
	worker int
	work   func() // look
	here   atomic.Bool
}

func (h *helper) look() {
	for {
		for l := (lookout{}); l.patient(1 + int(h.crew.threads.Load())); {
			if h.help() {
				l = lookout{}
			}
		}
		// Who puts a task on a desk looks for helpers afterwards, and this one for tasks.
		h.here.Store(false)
		if !h.wanted() || !h.here.CompareAndSwap(false, true) {
			return
		}
	}
}

// help does a piece, if it finds one.
func (h *helper) help() bool {
	if h.crew.main.take(h.worker) {
		return true
	}
	for _, d := range h.crew.desks[:h.crew.threads.Load()] {
		if d.take(h.worker) {
			return true
		}
	}
	return false
}

func (h *helper) wanted() bool {
	if h.crew.main.has(h.worker) {
		return true
	}
	for _, d := range h.crew.desks {
		if d.has(h.worker) {
			return true
		}
	}
	return false
}

// lookout is somebody who looks for something.
type lookout struct {
	looks int
	since time.Time
}

// patient tells whether to look again, at so many desks.
func (l *lookout) patient(desks int) bool {
	if l.looks += desks; l.looks < courtesy {
		return true
	}
	l.looks = 0
	runtime.Gosched()
	if l.since.IsZero() {
		l.since = time.Now()
	}
	return time.Since(l.since) < patience
}
