package fuzz

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// memory gives out the arrays that an operation works on.
type memory interface {
	// bytes returns n bytes at a multiple of the element's size.
	bytes(n, element int) []byte
	// damage says what was written outside of the arrays.
	damage() string
}

// place copies x into memory. Nil stays nil.
func place[T any](mem memory, x []T) []T {
	if x == nil {
		return nil
	}
	size := int(unsafe.Sizeof(*new(T)))
	b := mem.bytes(len(x)*size, size)
	placed := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(x))
	copy(placed, x)
	return placed
}

// padded is memory of the heap at an offset from multiples of 64, with canaries around
// every array. They are NaN as a float32 and as a bfloat16.
type padded struct {
	offset int // of the next array
	arrays []paddedArray
}

type paddedArray struct {
	whole    []byte
	start, n int
}

const padding = 64

var canary = binary.NativeEndian.AppendUint16(nil, 0x7fa5)

func (p *padded) bytes(n, element int) []byte {
	whole := make([]byte, n+4*padding)
	address := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	start := padding + int(-address%padding) + p.offset/element*element
	for i := range whole {
		whole[i] = canary[i%2]
	}
	p.arrays = append(p.arrays, paddedArray{whole, start, n})
	p.offset = p.offset * 3 % padding
	return whole[start : start+n]
}

func (p *padded) damage() string {
	for _, a := range p.arrays {
		for i, b := range a.whole {
			if b != canary[i%2] && (i < a.start || i >= a.start+a.n) {
				return fmt.Sprintf("byte %d of an array of %d was written", i-a.start, a.n)
			}
		}
	}
	return ""
}
