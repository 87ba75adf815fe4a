// Package codebook holds the value tables of blockwise quantisation: the values that a
// code can stand for, relative to the block's largest magnitude, and the thresholds
// between them.
package codebook

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
)

// Codebook is a table of at most 256 values with the code of each. It is immutable and
// safe for concurrent use.
type Codebook struct {
	name       string
	size       int
	bits       int
	decode     [256]float32
	codes      [256]uint8   // the code of the value with each index, in increasing order
	thresholds [255]float32 // between neighbours, padded with +Inf
	zero       uint8
	signed     bool

	makeOnce sync.Once
	cells    []uint32

	lineOnce sync.Once
	line     *[3]uint32

	nibbleOnce  sync.Once
	nibbleCells *[64]uint32

	rangesOnce   sync.Once
	nibbleRanges *[48]uint32
}

// New makes a codebook from the value of each code, code 0 first. The values must be
// finite and distinct, and far enough apart that a float32 midpoint separates
// neighbours; any order is allowed. A second zero (fp4's code 8) is
// decoded but never written. Tables of at most 16 values are coded in 4 bits, larger
// ones in 8.
func New(name string, values []float32) (*Codebook, error) {
	if len(values) < 2 || len(values) > 256 {
		return nil, fmt.Errorf("codebook %s: found %d values, want 2 to 256", name, len(values))
	}
	c := &Codebook{name: name, size: len(values), bits: 8}
	if len(values) <= 16 {
		c.bits = 4
	}
	for code := range c.decode {
		c.decode[code] = float32(math.NaN()) // a code without a value
	}
	order := make([]int, 0, len(values))
	zero := -1
	for code, v := range values {
		if v-v != 0 {
			return nil, fmt.Errorf("codebook %s: value %d is %v, want finite values", name, code, v)
		}
		c.decode[code] = v
		if v == 0 {
			c.decode[code] = 0 // never -0
			if zero >= 0 {
				continue
			}
			zero = code
		}
		order = append(order, code)
	}
	sort.SliceStable(order, func(i, j int) bool { return values[order[i]] < values[order[j]] })
	c.zero = uint8(max(zero, 0))
	c.signed = values[order[0]] < 0
	for i, code := range order {
		c.codes[i] = uint8(code)
	}
	for i := range c.thresholds {
		c.thresholds[i] = float32(math.Inf(1))
		if i+1 >= len(order) {
			continue
		}
		low, high := values[order[i]], values[order[i+1]]
		if low == high {
			return nil, fmt.Errorf("codebook %s: codes %d and %d both have the value %v, want distinct values", name, order[i], order[i+1], low)
		}
		t := float32(low+high) * 0.5
		if !(low <= t && t < high) {
			return nil, fmt.Errorf("codebook %s: no float32 threshold separates %v and %v", name, low, high)
		}
		c.thresholds[i] = t
	}
	return c, nil
}

// Name is the name that files and configurations use.
func (c *Codebook) Name() string { return c.name }

// Len is the number of codes that have a value.
func (c *Codebook) Len() int { return c.size }

// Bits is the size of a stored code: 4 or 8.
func (c *Codebook) Bits() int { return c.bits }

// Signed tells whether the table has negative values.
func (c *Codebook) Signed() bool { return c.signed }

// Zero is the code of the value zero, and 0 where the table has none. Blocks that are
// all zero, and blocks that hold a NaN or an infinity, have this code throughout.
func (c *Codebook) Zero() uint8 { return c.zero }

// Values returns the value of each code, code 0 first.
func (c *Codebook) Values() []float32 { return slices.Clone(c.decode[:c.size]) }

// Table is the value of every possible byte, NaN where the codebook has none. It is
// shared: kernels read it and nobody writes it.
func (c *Codebook) Table() *[256]float32 { return &c.decode }

// Thresholds are the float32 midpoints between neighbouring values in increasing order,
// padded with +Inf, shared like Table.
func (c *Codebook) Thresholds() *[255]float32 { return &c.thresholds }

// Codes is the code of each value in increasing order of the values, shared like Table.
func (c *Codebook) Codes() *[256]uint8 { return &c.codes }

// Encode returns the code of the value nearest to r, which is a number relative to its
// block's scale: the code whose index is the number of thresholds strictly below r. So
// at a threshold the lower value is taken, and an unsigned table gives a negative r its
// lowest code.
func (c *Codebook) Encode(r float32) uint8 {
	index := 0
	for step := 128; step > 0; step /= 2 {
		if c.thresholds[index+step-1] < r {
			index += step
		}
	}
	return c.codes[index]
}
