package fuzz

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
)

// Cases is an endless stream of inputs for Check, the same for the same seed. The first
// hundred have every length and every offset that matters.
func Cases(seed uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		random := rand.New(rand.NewPCG(seed, 2))
		for i := 0; ; i++ {
			data := binary.LittleEndian.AppendUint64(nil, random.Uint64())
			data = append(data, uint8(i*13), uint8(i%len(lengths)))
			if !yield(data) {
				return
			}
		}
	}
}
