package optim

import "unsafe"

// arena gives its memory away piece by piece. A nil one allocates each piece.
type arena struct{ memory []byte }

// arenaAlign is that of every piece: a cache line.
const arenaAlign = 64

func take[E any](a *arena, n int) []E {
	if a == nil {
		return make([]E, n)
	}
	if n == 0 {
		return []E{}
	}
	piece := unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(a.memory))), n)
	a.memory = a.memory[roundUp(int64(n)*int64(unsafe.Sizeof(*new(E))), arenaAlign):]
	return piece
}

// arenaBytes are what a state of these tensors takes of an arena.
func arenaBytes(tensors []stateSize) (n int64) {
	for _, t := range tensors {
		n += roundUp(t.bytes(), arenaAlign)
	}
	return n
}

func roundUp(n, to int64) int64 { return ceilDiv(n, to) * to }
