package codebook

import (
	"math"
	"sort"
)

// The words of Cells before the entries.
const (
	CellShift    = iota // the low bits of a magnitude that select nothing
	CellSmallest        // the bits of the magnitude that smaller ones are coded as
	CellSide            // the number of entries for a sign, the positive ones first
	CellZero            // the code of zero
	CellEntries
)

const (
	widestCell, narrowestCell = 18, 14 // bits
	mostCells                 = 1 << 13
)

// Cells is a search table for Encode of r in [-1, 1], or nil where the codebook has none:
// where codes do not increase with their values, a threshold is zero, values lie below -1
// or thresholds are too close.
//
// A cell is all magnitudes with the same upper bits, and crosses at most one threshold.
// Its entry holds the code shifted left by CellShift, plus such a number that adding the
// low bits of the magnitude (for a negative r their complement) carries into the code
// exactly on the far side of the threshold.
func (c *Codebook) Cells() []uint32 {
	c.makeOnce.Do(func() {
		for shift := widestCell; shift >= narrowestCell && c.cells == nil; shift-- {
			c.cells = c.makeCells(shift)
		}
	})
	return c.cells
}

func (c *Codebook) makeCells(shift int) []uint32 {
	const one = 0x3f800000
	smallest := uint32(one)
	for _, t := range c.thresholds {
		smallest = min(smallest, math.Float32bits(t)&^(1<<31))
	}
	first := smallest>>shift - 1 // the last cell below all thresholds
	side := one>>shift - first + 1
	if int32(first) < 0 || side > mostCells/2 || !c.ordered() || c.decode[0] < -1 {
		return nil
	}
	cells := make([]uint32, CellEntries, CellEntries+2*side)
	cells[CellShift], cells[CellSmallest], cells[CellSide], cells[CellZero] = uint32(shift), first<<shift, side, uint32(c.zero)
	for sign := range uint32(2) {
		for cell := range side {
			start := (first + cell) << shift
			last := min(1<<shift-1, one-start)
			entry, ok := c.cell(sign<<31|start, last, shift)
			if !ok {
				return nil
			}
			cells = append(cells, entry)
		}
	}
	return cells
}

// cell is the entry of the numbers with the bits start to start+last.
func (c *Codebook) cell(start, last uint32, shift int) (entry uint32, ok bool) {
	code := func(low uint32) uint32 { return uint32(c.Encode(math.Float32frombits(start + low))) }
	near, far := code(0), code(last)
	if near == far {
		return near << shift, true
	}
	crossed := uint32(sort.Search(int(last), func(low int) bool { return code(uint32(low)) == far }))
	switch far {
	case near + 1:
		return near<<shift + 1<<shift - crossed, true
	case near - 1:
		return far<<shift + crossed, true
	}
	return 0, false
}

// ordered tells whether codes increase with their values.
func (c *Codebook) ordered() bool {
	for i := range c.size {
		if int(c.codes[i]) != i {
			return false
		}
	}
	return true
}
