package bf16

import "math/bits"

// Philox4x32 is the counter-based generator Philox4x32-10 of Salmon, Moraes, Dror
// and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
func Philox4x32(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xD2511F53, counter[0])
		hi1, lo1 := bits.Mul32(0xCD9E8D57, counter[2])
		counter = [4]uint32{hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// Draws are the random half-words of eight consecutive elements.
type Draws [8]uint16

// DrawsAt returns the random bits of elements 8*group to 8*group+7. They depend on the
// seed, the step and the element's position alone, so any split of a parameter over
// threads, calls or machines draws the same ones.
func DrawsAt(seed, step, group uint64) Draws {
	words := Philox4x32(
		[4]uint32{uint32(group), uint32(group >> 32), uint32(step), uint32(step >> 32)},
		[2]uint32{uint32(seed), uint32(seed >> 32)})
	var d Draws
	for i := range d {
		d[i] = uint16(words[i/2] >> (16 * (i % 2)))
	}
	return d
}

// RandomBits returns the 16 random bits for Stochastic of one element: index is its position
// in its whole parameter, step that of training, and the seed the parameter's (see
// StreamSeed).
func RandomBits(seed, step, index uint64) uint16 {
	return DrawsAt(seed, step, index/8)[index%8]
}
