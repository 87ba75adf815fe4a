package lm

import (
	"fmt"
	"math/bits"

	"github.com/lowbit-go/lowbit/bf16"
)

// Batch is rows of Context+1 bytes: the model sees all but the last byte of a row and
// predicts all but the first.
type Batch [][]byte

// Sampler is the stream of training batches that a seed draws from a text.
type Sampler struct {
	text          []byte
	rows, context int
	key           [2]uint32
}

// NewSampler returns the stream of batches of the given number of rows. The text must hold
// one row at least.
func NewSampler(text []byte, rows, context int, seed uint64) (*Sampler, error) {
	if err := checkText(text, rows, context); err != nil {
		return nil, err
	}
	return &Sampler{text, rows, context, [2]uint32{uint32(seed), uint32(seed >> 32)}}, nil
}

// Batch returns batch number k, which depends on k and the seed alone. Its rows are views
// of the text.
func (s *Sampler) Batch(k uint64) Batch {
	starts := uint64(len(s.text) - s.context)
	batch := make(Batch, s.rows)
	for i := range batch {
		words := bf16.Philox4x32([4]uint32{uint32(k), uint32(k >> 32), uint32(i), drawRows}, s.key)
		at, _ := bits.Mul64(uint64(words[1])<<32|uint64(words[0]), starts)
		batch[i] = s.text[at:][: s.context+1 : s.context+1]
	}
	return batch
}

// Spread returns rows that begin at even distances in the text, the first at its start and
// the last at its end: the batch a held-out loss is measured on.
func Spread(text []byte, rows, context int) (Batch, error) {
	if err := checkText(text, rows, context); err != nil {
		return nil, err
	}
	last := int64(len(text) - context - 1)
	batch := make(Batch, rows)
	for i := range batch {
		at := last * int64(i) / int64(max(1, rows-1))
		batch[i] = text[at:][: context+1 : context+1]
	}
	return batch, nil
}

func checkText(text []byte, rows, context int) error {
	if rows < 1 || context < 1 {
		return fmt.Errorf("lm: %d rows of %d bytes, want at least one of each", rows, context)
	}
	if len(text) <= context {
		return fmt.Errorf("lm: the text has %d bytes, want at least %d for one row", len(text), context+1)
	}
	return nil
}
