package kernels

import (
	"fmt"
	"unsafe"
)

func lengthError(op, slice string, found, want int, why string) error {
	return fmt.Errorf("%s: %s has length %d, want %d %s", op, slice, found, want, why)
}

// span is the memory of a slice.
type span struct {
	name   string
	lo, hi uintptr
}

func spanOf[T any](name string, s []T) span {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return span{name, lo, lo + uintptr(len(s))*unsafe.Sizeof(*new(T))}
}

func (s span) overlaps(other span) bool {
	return s.lo < other.hi && other.lo < s.hi
}

// disjoint is the error of two of these slices sharing memory.
func disjoint(op string, spans ...span) error {
	for i, a := range spans {
		for _, b := range spans[:i] {
			if a.overlaps(b) {
				return fmt.Errorf("%s: %s and %s overlap, want separate memory", op, b.name, a.name)
			}
		}
	}
	return nil
}

// sameOrDisjoint lets dst be src itself, and refuses any other overlap.
func sameOrDisjoint(op string, dst, src span) error {
	if dst.lo == src.lo && dst.hi == src.hi {
		return nil
	}
	return disjoint(op, dst, src)
}
