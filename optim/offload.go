package optim

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/scratchfile"
)

// OffloadError is the error of a step that was taken although the scratch file of
// optimizer_state_offload disk failed. The optimizer is in order, with every parameter's
// weights and state of the same step, and can go on.
type OffloadError struct {
	// Kept are the parameters whose new states could not be written, on a full disk for one.
	// They stay in memory until a step that updates them can write them.
	Kept []string
	// Untouched are the parameters whose states could not be read. They miss this step as if
	// they had no gradients.
	Untouched []string
	// Err is the first of the file's errors. It names the directory.
	Err error
}

func (e *OffloadError) Error() string {
	return fmt.Sprintf("optim: the step was taken, but the states of %d parameters could not be written and stay in memory, "+
		"and %d parameters whose states could not be read were left untouched: %v", len(e.Kept), len(e.Untouched), e.Err)
}

func (e *OffloadError) Unwrap() error { return e.Err }

// offload keeps states in a file, batch by batch. In a step one goroutine reads the next
// batches while one is updated and another goroutine writes the last. A batch is in one
// of windowCount windows of memory meanwhile, which go round: free, ready, changed, free.
//
// Between steps a parameter's moments have the lengths of its state and meaningless
// elements: a cursor brings these to memory.
type offload struct {
	file    scratchFile
	batches []*batch
	largest int64 // room of a batch
	closed  bool

	free, ready, changed chan *window
	read, write          func()
	running              sync.WaitGroup
	stop                 atomic.Bool

	// Of the current step. The writer has its own.
	unread, unwritten   failures
	windowsWereReplaced bool
}

// failures are the batches that failed in one way.
type failures struct {
	batches []*batch
	first   error
}

func (f *failures) add(b *batch, err error) {
	f.batches = append(f.batches, b)
	if f.first == nil {
		f.first = err
	}
}

func (f *failures) names() (names []string) {
	for _, b := range f.batches {
		for _, p := range b.params {
			names = append(names, p.Name)
		}
	}
	return names
}

type scratchFile interface {
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	Close() error
}

// batch is a number of parameters whose states are moved together.
type batch struct {
	first, last   int // parameters of the optimizer, the last one excluded
	params        []*parameter
	offset, bytes int64   // of the file
	kept          *window // of what could not be written, or nil
}

// window is memory for one batch.
type window struct {
	memory []byte
	batch  *batch
	err    error // of reading it
}

const (
	windowCount  = 3
	offloadAlign = 4096 // of batches in the file and windows in memory: a page
)

// newOffload writes the states before the first step.
func newOffload(params []*parameter, folder string, size int) (*offload, error) {
	d := &offload{
		free: make(chan *window, windowCount), ready: make(chan *window, windowCount), changed: make(chan *window, windowCount),
	}
	d.read, d.write = d.readBatches, d.writeBatches
	end := int64(0)
	for first := 0; first < len(params); first += min(size, len(params)-first) {
		last := first + min(size, len(params)-first)
		b := &batch{first: first, last: last, params: params[first:last], offset: end}
		for _, p := range b.params {
			p.home = b
			b.bytes += arenaBytes(p.layout.sizes(p.Shape, int64(p.n)))
		}
		room := roundUp(b.bytes, offloadAlign)
		end += room
		d.largest = max(d.largest, room)
		d.batches = append(d.batches, b)
	}
	file, err := scratchfile.Create(folder, end)
	if err == nil {
		d.file = file
		err = d.begin()
	}
	if err != nil {
		return nil, fmt.Errorf("optim: optimizer_state_offload_dir: %w", err)
	}
	return d, nil
}

func (d *offload) begin() error {
	for range windowCount {
		d.free <- d.newWindow()
	}
	w := <-d.free
	for _, b := range d.batches {
		w.batch = b
		clear(w.memory)
		memory := arena{w.memory}
		for _, p := range b.params {
			p.moments = p.newMoments(&memory)
		}
		if err := d.file.WriteAt(w.bytes(), b.offset); err != nil {
			d.file.Close()
			return err
		}
	}
	d.free <- w
	return nil
}

func (d *offload) newWindow() *window {
	memory := make([]byte, d.largest+offloadAlign)
	past := uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % offloadAlign
	return &window{memory: memory[offloadAlign-past:][:d.largest]}
}

// hold makes the window that of a batch, whose parameters have their moments there then.
func (w *window) hold(b *batch) {
	w.batch = b
	memory := arena{w.memory}
	for _, p := range b.params {
		p.moments = p.layout.place(p.Shape, p.n, &memory)
	}
}

func (w *window) bytes() []byte { return w.memory[:w.batch.bytes] }

func (d *offload) close() error {
	d.closed = true
	return d.file.Close()
}

// closedError is os.ErrClosed of the optimizer.
type closedError struct{}

func (closedError) Error() string { return "optim: the optimizer is closed" }
func (closedError) Unwrap() error { return os.ErrClosed }

// step updates batch after batch. It is taken if only the file fails.
func (d *offload) step(o *Optimizer, r *StepResult) (taken bool, err error) {
	if d.closed {
		return false, closedError{}
	}
	d.running.Add(1)
	go d.read()
	go d.write()
	for w := <-d.ready; w != nil; w = <-d.ready {
		switch {
		case w.err != nil:
			d.unread.add(w.batch, w.err)
			d.giveBack(w)
		case err != nil:
			d.giveBack(w)
		default:
			w.hold(w.batch)
			if err = o.update(w.batch.first, w.batch.last, r); err != nil {
				d.stop.Store(true)
			}
			d.changed <- w
		}
	}
	d.changed <- nil
	d.running.Wait()
	d.stop.Store(false)
	if d.windowsWereReplaced {
		o.engine.begin()
		d.forgetWindows()
	}
	return err == nil, errors.Join(err, d.trouble())
}

// readBatches brings the batches that have gradients to memory, in order.
func (d *offload) readBatches() {
	for _, b := range d.batches {
		if d.stop.Load() {
			break
		}
		if b.hasGradients() {
			d.ready <- d.bring(b)
		}
	}
	d.ready <- nil
}

func (b *batch) hasGradients() bool {
	for _, p := range b.params {
		if p.gradients().Len() > 0 {
			return true
		}
	}
	return false
}

// bring returns a window that holds what the batch's file part does, unless its err says
// why not.
func (d *offload) bring(b *batch) *window {
	if b.kept != nil {
		return b.kept
	}
	w := <-d.free
	w.batch = b
	w.err = d.file.ReadAt(w.bytes(), b.offset)
	return w
}

// giveBack returns a window of a batch that is not needed in memory any more, unless
// it must be.
func (d *offload) giveBack(w *window) {
	if w.batch.kept != w {
		d.free <- w
	}
}

// writeBatches writes what was updated. A window that cannot be written is kept aside, and
// another takes its place.
func (d *offload) writeBatches() {
	defer d.running.Done()
	for w := <-d.changed; w != nil; w = <-d.changed {
		b := w.batch
		err := d.file.WriteAt(w.bytes(), b.offset)
		switch {
		case err == nil && b.kept == nil:
			d.free <- w
		case err == nil:
			b.kept = nil
			d.windowsWereReplaced = true
		default:
			d.unwritten.add(b, err)
			if b.kept == nil {
				b.kept = w
				d.windowsWereReplaced = true
				d.free <- d.newWindow()
			}
		}
	}
}

// forgetWindows lets go of windows that are in use no more.
func (d *offload) forgetWindows() {
	d.windowsWereReplaced = false
	w := <-d.free
	for _, b := range d.batches {
		if b.kept == nil {
			w.hold(b)
		}
	}
	d.free <- w
}

// trouble is what the file did in a step.
func (d *offload) trouble() error {
	if d.unread.first == nil && d.unwritten.first == nil {
		return nil
	}
	e := &OffloadError{Kept: d.unwritten.names(), Untouched: d.unread.names(), Err: d.unwritten.first}
	if e.Err == nil {
		e.Err = d.unread.first
	}
	d.unread, d.unwritten = failures{}, failures{}
	return e
}

// takeFile exchanges the file for that of an optimizer of the same parameters.
func (d *offload) takeFile(other *offload) {
	d.file, other.file = other.file, d.file
	for _, b := range d.batches {
		b.kept = nil
	}
	d.forgetWindows()
}

// copyOf is the state of a parameter in memory of its own, nil where it cannot be read.
func (d *offload) copyOf(p *parameter) []StateTensor {
	c := cursor{disk: d}
	defer c.leave()
	if c.enter(p.home) != nil {
		return nil
	}
	list := p.moments.tensors()
	for i, t := range list {
		list[i] = StateTensor{t.Kind, slices.Clone(t.F32), slices.Clone(t.BF16), slices.Clone(t.U16), slices.Clone(t.U8)}
	}
	return list
}

// cursor brings states to memory outside of steps, a batch at a time.
type cursor struct {
	disk  *offload // nil where they are there anyway
	write bool     // back what was in memory
	at    *window  // nil before the first
}

// to makes the elements of a checkpoint's piece those of its parameter's state.
func (c *cursor) to(p *piece) error {
	if c.disk == nil || p.owner == nil {
		return nil
	}
	if err := c.enter(p.owner.home); err != nil {
		return err
	}
	p.StateTensor = p.owner.moments.tensors()[p.index]
	return nil
}

func (c *cursor) enter(b *batch) error {
	if c.at != nil && c.at.batch == b {
		return nil
	}
	if err := c.leave(); err != nil {
		return err
	}
	w := c.disk.bring(b)
	if w.err != nil {
		c.disk.free <- w
		return w.err
	}
	c.at = w
	w.hold(b)
	return nil
}

// leave must follow the last piece.
func (c *cursor) leave() (err error) {
	if c.at == nil {
		return nil
	}
	if c.write {
		err = c.disk.file.WriteAt(c.at.bytes(), c.at.batch.offset)
	}
	c.disk.giveBack(c.at)
	c.at = nil
	return err
}
