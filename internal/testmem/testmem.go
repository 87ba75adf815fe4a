// Package testmem gives tests memory whose every neighbour is watched: slices that
// end at or begin after a page that may not be touched, and slices at any alignment
// between canaries.
//
// The canaries are NaN as a float32 and as a bfloat16, so a kernel that reads past its
// slice poisons its result. Where the system has no page protection the guard pages
// are canaries too.
package testmem

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"
)

// Number is what a slice may hold: anything without pointers.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// A Buffer hands out one slice at a time; taking the next one ends the last one's life.
type Buffer[T Number] struct {
	t        testing.TB
	memory   []byte // canaries, the slice, canaries
	canaries []byte // what memory holds outside of the slice
	slack    int    // bytes at either end that stand in for a guard page
	start    int    // of the slice in memory
	length   int    // in bytes
}

const (
	canary    = 0x7fa5
	alignment = 64
)

// New returns a buffer for slices of up to capacity elements, freed when the test ends.
func New[T Number](t testing.TB, capacity int) *Buffer[T] {
	t.Helper()
	memory, slack, release, err := reserve(capacity*size[T]() + 4*alignment)
	if err != nil {
		t.Fatalf("testmem: %v", err)
	}
	t.Cleanup(release)
	canaries := bytes.Repeat(binary.NativeEndian.AppendUint16(nil, canary), len(memory)/2)
	return &Buffer[T]{t: t, memory: memory, canaries: canaries, slack: slack}
}

// AtEnd returns n elements, the last of which touches the guard page behind.
func (b *Buffer[T]) AtEnd(n int) []T {
	b.t.Helper()
	return b.place(len(b.memory)-b.slack-n*size[T](), n)
}

// AtStart returns n elements, the first of which touches the guard page in front.
func (b *Buffer[T]) AtStart(n int) []T {
	b.t.Helper()
	return b.place(b.slack, n)
}

// AtOffset returns n elements that begin offset bytes (below 64, a multiple of the
// element's size) after a multiple of 64.
func (b *Buffer[T]) AtOffset(n, offset int) []T {
	b.t.Helper()
	if offset < 0 || offset >= alignment || offset%size[T]() != 0 {
		b.t.Fatalf("testmem: offset %d, wanted a multiple of %d below %d", offset, size[T](), alignment)
	}
	first := b.slack + alignment
	misaligned := int(uintptr(unsafe.Pointer(&b.memory[first])) % alignment)
	return b.place(first-misaligned+offset, n)
}

// Check fails the test when a byte outside the last slice was written.
func (b *Buffer[T]) Check() {
	b.t.Helper()
	end := b.start + b.length
	if bytes.Equal(b.memory[:b.start], b.canaries[:b.start]) && bytes.Equal(b.memory[end:], b.canaries[end:]) {
		return
	}
	for i, got := range b.memory {
		if got != b.canaries[i] && (i < b.start || i >= end) {
			b.t.Fatalf("testmem: byte %d of a slice of %d bytes was written: %#02x", i-b.start, b.length, got)
		}
	}
}

func (b *Buffer[T]) place(start, n int) []T {
	b.t.Helper()
	if n < 0 || start < b.slack || start+n*size[T]() > len(b.memory)-b.slack {
		b.t.Fatalf("testmem: %d elements do not fit a buffer of %d bytes", n, len(b.memory)-2*b.slack)
	}
	copy(b.memory, b.canaries)
	b.start, b.length = start, n*size[T]()
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b.memory[start])), n)
}

func size[T Number]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}
