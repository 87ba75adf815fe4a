package bf16

import (
	"crypto/sha256"
	"encoding/binary"
)

// StreamSeed derives the seed of a parameter's random bits from a run's seed, what they
// round ('m' and 'v' for the moments, 'w' for the weights) and the parameter's name: the
// first 8 bytes of the SHA-256 of the seed in little-endian, the kind, a zero byte and
// the name.
func StreamSeed(seed uint64, kind byte, name string) uint64 {
	message := binary.LittleEndian.AppendUint64(nil, seed)
	message = append(message, kind, 0)
	sum := sha256.Sum256(append(message, name...))
	return binary.LittleEndian.Uint64(sum[:])
}
