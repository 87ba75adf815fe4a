package kernels

import (
	"fmt"
	"unsafe"
)

func lengthError(op, slice string, found, want int, why string) error {
	return fmt.Errorf("%s: %s has length %d, want %d %s", op, slice, found, want, why)
}

// checkFirst refuses a negative position in a parameter.
func checkFirst(op string, first int64) error {
	if first < 0 {
		return fmt.Errorf("%s: the first element's position is %d, want 0 or more", op, first)
	}
	return nil
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
		if a.hi == 0 {
			continue // nil
		}
		for _, b := range spans[:i] {
			if a.overlaps(b) {
				return fmt.Errorf("%s: %s and %s overlap, want separate memory", op, b.name, a.name)
			}
		}
	}
	return nil
}
