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
	const nearEnd, tiny = 1e-4, 0x1p-30
	if c.bits != 4 || c.decode[c.codes[0]] < -1 {
		return nil
	}
	var cells [64]uint32
	below := 0
	for k := -16; k < 16; k++ {
		cells[k&31], cells[32+k&31] = math.Float32bits(float32(math.Inf(1))), uint32(below)
		found := 0
		for _, t := range c.thresholds[:c.size-1] {
			switch place := nibbleCells*float64(t) - float64(k); {
			case math.Abs(place) < nearEnd, math.Abs(float64(t)) < tiny:
				return nil
			case 0 <= place && place < 1:
				cells[k&31] = math.Float32bits(t)
				found++
			}
		}
		if found > 1 {
			return nil
		}
		below += found
	}
	return &cells
}
