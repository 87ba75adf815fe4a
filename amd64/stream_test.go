//go:build amd64 && !purego

package amd64_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/internal/testmem"
)

func TestStream(t *testing.T) {
	for _, f := range []struct {
		name  string
		needs cpufeature.Set
		run   func(streams []*byte, sizes, kinds []int, first, last int)
	}{
		{"AVX2", cpufeature.AVX2, amd64.StreamAVX2},
		{"AVX512", cpufeature.AVX512, amd64.StreamAVX512},
	} {
		t.Run(f.name, func(t *testing.T) {
			cputest.Need(t, f.needs)
			rng := rand.New(rand.NewPCG(1, 2))
			for range 200 {
				steps := 1 + rng.IntN(5)
				first, last := rng.IntN(steps+1), steps
				buffers, want, got := []*testmem.Buffer[uint8]{}, [][]uint8{}, [][]uint8{}
				streams, sizes, kinds := []*byte{}, []int{}, []int{}
				for range 1 + rng.IntN(4) {
					size, kind := 256*(1+rng.IntN(4)), rng.IntN(4)
					buffer := testmem.New[uint8](t, steps*size)
					x := buffer.AtEnd(steps * size)
					if kind == 3 {
						x = buffer.AtOffset(steps*size, 0)
					}
					expected := make([]uint8, len(x))
					for i := range x {
						x[i] = uint8(rng.Uint32())
						expected[i] = x[i]
						if i >= first*size && kind%2 == 1 {
							expected[i] = 0xff
						}
					}
					buffers, want, got = append(buffers, buffer), append(want, expected), append(got, x)
					streams, sizes, kinds = append(streams, &x[0]), append(sizes, size), append(kinds, kind)
				}
				f.run(streams, sizes, kinds, first, last)
				require.Equal(t, want, got)
				for _, b := range buffers {
					b.Check()
				}
			}
		})
	}
}
