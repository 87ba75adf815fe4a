package workers

import "sync/atomic"

// desk is where a worker puts a task for others to help with.
type desk struct {
	task   Task
	pieces int64
	_      [cacheLine]byte

	left atomic.Int64 // pieces that nobody has taken, and for how many workers they are
	_    [cacheLine]byte

	done    atomic.Int64
	asleep  atomic.Bool // the desk's worker, until all are done
	allDone chan struct{}
	_       [cacheLine]byte
}

const (
	cacheLine = 64
	leftBits  = 48
)

func newDesk() *desk { return &desk{allDone: make(chan struct{}, 1)} }

func (d *desk) put(task Task, pieces, workers int) {
	d.task, d.pieces = task, int64(pieces)
	d.done.Store(0)
	d.left.Store(int64(workers)<<leftBits | d.pieces)
}

// has tells how many pieces there are for a worker.
func (d *desk) has(worker int) bool { return left(d.left.Load(), worker) > 0 }

func left(all int64, worker int) int64 {
	if int64(worker) >= all>>leftBits {
		return 0
	}
	return all & (1<<leftBits - 1)
}

// take does a piece if there is one. Whoever takes one finds its task: no other is put there
// before it is done.
func (d *desk) take(worker int) bool {
	for {
		all := d.left.Load()
		left := left(all, worker)
		if left == 0 {
			return false
		}
		if d.left.CompareAndSwap(all, all-1) {
			pieces := d.pieces
			d.task.Do(worker, int(pieces-left))
			if d.done.Add(1) == pieces && d.asleep.CompareAndSwap(true, false) {
				d.allDone <- struct{}{}
			}
			return true
		}
	}
}

// wait returns when all pieces are done. It may be woken by the last piece of a task before.
func (d *desk) wait(pieces int) {
	for l := (lookout{}); d.done.Load() < int64(pieces); {
		if l.patient(1) {
			continue
		}
		d.asleep.Store(true)
		if d.done.Load() < int64(pieces) || !d.asleep.CompareAndSwap(true, false) {
			<-d.allDone
		}
	}
}
