package testmem

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// recorder notes a failure in place of ending the test.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestPlaces(t *testing.T) {
	b := New[float32](t, 1000)
	for _, n := range []int{0, 1, 7, 8, 33, 999, 1000} {
		end := b.AtEnd(n)
		require.Len(t, end, n)
		fill(end)
		b.Check()
		start := b.AtStart(n)
		require.Len(t, start, n)
		fill(start)
		b.Check()
		for offset := 0; offset < 64; offset += 4 {
			s := b.AtOffset(n, offset)
			require.Len(t, s, n)
			if n > 0 {
				require.EqualValues(t, offset, uintptr(unsafe.Pointer(&s[0]))%64)
			}
			fill(s)
			b.Check()
		}
	}
}

func fill(s []float32) {
	for i := range s {
		s[i] = 1
	}
}

func TestNeighboursAreNaN(t *testing.T) {
	s := New[float32](t, 10).AtOffset(10, 16)
	beyond := unsafe.Slice(&s[0], 11)
	require.True(t, math.IsNaN(float64(beyond[10])))
	halves := New[uint16](t, 10).AtOffset(10, 2)
	require.EqualValues(t, canary, unsafe.Slice(&halves[0], 11)[10])
}

func TestCheckFindsWrites(t *testing.T) {
	for _, at := range []int{-1, 10} {
		r := &recorder{TB: t}
		b := New[float32](r, 10)
		s := b.AtOffset(10, 32)
		*(*float32)(unsafe.Add(unsafe.Pointer(&s[0]), 4*at)) = 1
		b.Check()
		require.Truef(t, r.failed, "a write to element %d went unnoticed", at)
	}
}

func TestBadRequests(t *testing.T) {
	for name, request := range map[string]func(*Buffer[uint32]){
		"offset not a multiple of the size": func(b *Buffer[uint32]) { b.AtOffset(1, 2) },
		"offset of 64":                      func(b *Buffer[uint32]) { b.AtOffset(1, 64) },
	} {
		r := &recorder{TB: t}
		request(New[uint32](r, 1000))
		require.True(t, r.failed, name)
	}
}
