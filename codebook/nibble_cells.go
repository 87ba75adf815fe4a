package codebook

import "math"

// The cells of NibbleCells: this many for a unit, so that the numbers from -1 to 1 lie in
// 32, of which one begins at 0.
const nibbleCells = 15.99

// NibbleCells is a search table for Encode of r in [-1, 1] to 4 bits, or nil where the
// codebook has none: where two thresholds lie in a cell, one near its end, values below -1
// or a threshold is tiny.
//
// Cell floor(15.99*r) modulo 32 has the bits of its only threshold, or those of +Inf; 32
// words further is the number of thresholds in the cells below it.
func (c *Codebook) NibbleCells() *[64]uint32 {
	c.nibbleOnce.Do(func() { c.nibbleCells = c.makeNibbleCells() })
	return c.nibbleCells
}

func (c *Codebook) makeNibbleCells() *[64]uint32 {
	var cells [64]uint32
	ok := c.eachNibbleCell(1, func(cell int, below int, thresholds []float32) {
		cells[cell], cells[32+cell] = math.Float32bits(float32(math.Inf(1))), uint32(below)
		for _, t := range thresholds {
			cells[cell] = math.Float32bits(t)
		}
	})
	if !ok {
		return nil
	}
	return &cells
}

// NibbleRanges is NibbleCells with up to three thresholds a cell: the number of thresholds in
// the cells below each, then the bits of all thresholds, padded with +Inf.
func (c *Codebook) NibbleRanges() *[48]uint32 {
	c.rangesOnce.Do(func() { c.nibbleRanges = c.makeNibbleRanges() })
	return c.nibbleRanges
}

func (c *Codebook) makeNibbleRanges() *[48]uint32 {
	var ranges [48]uint32
	ok := c.eachNibbleCell(3, func(cell int, below int, _ []float32) { ranges[cell] = uint32(below) })
	if !ok {
		return nil
	}
	for i := range 16 {
		ranges[32+i] = math.Float32bits(c.thresholds[i])
	}
	return &ranges
}

// eachNibbleCell tells whether no cell has more thresholds than most, and none near its end.
func (c *Codebook) eachNibbleCell(most int, f func(cell int, below int, thresholds []float32)) bool {
	const nearEnd, tiny = 1e-4, 0x1p-30
	if c.bits != 4 || c.decode[c.codes[0]] < -1 {
		return false
	}
	below := 0
	for k := -16; k < 16; k++ {
		var found []float32
		for _, t := range c.thresholds[:c.size-1] {
			switch place := nibbleCells*float64(t) - float64(k); {
			case math.Abs(place) < nearEnd, math.Abs(float64(t)) < tiny:
				return false
			case 0 <= place && place < 1:
				found = append(found, t)
			}
		}
		if len(found) > most {
			return false
		}
		f(k&31, below, found)
		below += len(found)
	}
	return true
}
