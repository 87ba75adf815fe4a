package fuzz

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// input decodes bytes into choices and numbers. The first eight bytes seed a generator,
// which also stands in for the bytes that are missing: any bytes are an input.
type input struct {
	whole        []byte
	data         []byte // what is left of it
	random       *rand.Rand
	offset       int // of the arrays in memory
	lengthChoice int // of lengths
	notes        []string
	features     map[string]bool // what is noteworthy in it
}

func newInput(data []byte) *input {
	var seed [8]byte
	n := copy(seed[:], data)
	in := &input{
		whole:    data,
		data:     data[n:],
		random:   rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), 1)),
		features: map[string]bool{},
	}
	in.offset, in.lengthChoice = int(in.byte()%padding), int(in.byte())%len(lengths)
	in.feature("offset", in.offset != 0)
	return in
}

func (in *input) byte() uint8 {
	if len(in.data) == 0 {
		return uint8(in.random.Uint32())
	}
	b := in.data[0]
	in.data = in.data[1:]
	return b
}

func (in *input) bits() uint32 {
	return uint32(in.byte()) | uint32(in.byte())<<8 | uint32(in.byte())<<16 | uint32(in.byte())<<24
}

// below is a number from 0 to n-1.
func (in *input) below(n int) int { return int(in.bits() % uint32(n)) }

// chance is true once in n.
func (in *input) chance(n int) bool { return int(in.byte())%n == n-1 }

func pick[T any](in *input, from []T) T { return from[int(in.byte())%len(from)] }

func (in *input) note(format string, args ...any) {
	in.notes = append(in.notes, fmt.Sprintf(format, args...))
}

// description says what was decoded, and from which bytes, as Go reads them.
func (in *input) description() string {
	return fmt.Sprintf("%s, from []byte(%q)", strings.Join(in.notes, ", "), in.whole)
}

func (in *input) feature(name string, has bool) {
	if has {
		in.features[name] = true
	}
}

func (in *input) memory() memory {
	return &padded{offset: in.offset}
}

// lengths lie around vector widths, unrolled loops, blocks and chunks.
var lengths = []int{
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 95, 96, 97,
	127, 128, 129, 130, 159, 191, 192, 193, 255, 256, 257, 300, 383, 511, 512, 513, 640, 1000,
	1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 4100, 8191, 8193, 12301,
}

// length is a number of elements: one of lengths, or one near a few whole blocks.
func (in *input) length(block int) int {
	n := lengths[in.lengthChoice]
	if in.chance(4) && block <= 4096 {
		n = max(in.below(4)*block+in.below(5)-2, 0)
	}
	in.note("n=%d", n)
	in.feature("empty", n == 0)
	in.feature("odd_length", n%2 == 1)
	in.feature("partial_block", n%block != 0)
	for _, most := range []int{256, 4096} {
		in.feature(fmt.Sprintf("longer_than_%d", most), n > most)
	}
	for _, unrolled := range []int{64, 128, 1024} {
		in.feature(fmt.Sprintf("one_less_than_%d", unrolled), n == unrolled-1)
		in.feature(fmt.Sprintf("one_more_than_%d", unrolled), n == unrolled+1)
	}
	for _, usual := range []int{64, 128, 256} {
		in.feature(fmt.Sprintf("blocks_of_%d", usual), block == usual && n > block)
	}
	return n
}

var blocks = []int{
	128, 64, 256, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 96, 100, 127, 129, 192, 255, 512, 1000,
	1024, 2048, 4095, 4096, 4097, 65536, math.MaxInt/2 + 1, math.MaxInt,
}

// block is the size of a block.
func (in *input) block() int {
	block := pick(in, blocks)
	in.note("block=%d", block)
	in.feature("odd_block", block%2 == 1)
	return block
}
