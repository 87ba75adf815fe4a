package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/lowbit-go/lowbit/kernels"
)

// pieceElements is how many elements of a tensor are in memory at a time, and the largest block.
const pieceElements = 1 << 20

// env is what a command runs in.
type env struct {
	ctx            context.Context
	stdout, stderr io.Writer
	piece          int // elements of a tensor in memory, or one aligned piece where that is more
}

// pieces calls do for the pieces of n elements, each of which begins at a multiple of align, until an error or an
// interrupt.
func (e *env) pieces(n int64, align int, do func(first int64, n int) error) error {
	size := max(e.piece/align, 1) * align
	for first := int64(0); first < n; first += int64(size) {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		if err := do(first, int(min(int64(size), n-first))); err != nil {
			return err
		}
	}
	return e.ctx.Err()
}

// threadCount is the value of --threads.
type threadCount int

func (t threadCount) Validate() error {
	const most = 1024
	if t < 0 || t > most {
		return badInput("got %d, want 1 to %d, or 0 for one a core", t, most)
	}
	return nil
}

func (t threadCount) limit() kernels.Threads { return kernels.Threads(t) }

// use makes the whole process keep to the limit until restore is called.
func (t threadCount) use() (restore func()) {
	before := runtime.GOMAXPROCS(0)
	if t > 0 {
		runtime.GOMAXPROCS(min(int(t), before))
	}
	return func() { runtime.GOMAXPROCS(before) }
}

// interruptible ends with the context: f, which does not look at it, then goes on until the
// process ends.
func (e *env) interruptible(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// or is what a flag was set to, or otherwise.
func or[T any](flag *T, otherwise T) T {
	if flag == nil {
		return otherwise
	}
	return *flag
}

// warn prints a line that is no error.
func (e *env) warn(format string, args ...any) {
	fmt.Fprintln(e.stderr, "lowbit: warning:", oneLine(fmt.Sprintf(format, args...)))
}

// scratch holds the buffers of one piece.
type scratch struct {
	x, y, scales  []float32
	codes, nested []uint8
	nestedScales  []float32
	narrow        []uint16
	raw           []byte
}

// sized returns the first n elements of a buffer, which it makes longer if need be. What they hold is undefined.
func sized[T any](buffer *[]T, n int) []T {
	if cap(*buffer) < n {
		*buffer = make([]T, n)
	}
	return (*buffer)[:n]
}
