package codebook

import "math"

// The words of Line.
const (
	LineSlope  = iota // the bits of a float32
	LineOffset        // the same
	LineZero          // the code of zero
)

// The number that Line makes of r has the code above this many bits.
const lineFraction = 15

// Line is for Encode of r in [-1, 1] by a straight line, or nil where the codebook has none:
// where codes do not increase with their values, values lie below -1, thresholds are not
// evenly spaced or the line leaves the codes' range.
//
// slope*r + offset, computed without rounding, is 2^23 + 2^15*(e + f) + 4, where e is the code
// of r, and f in [0, 1), within 3 units where r is at a threshold.
func (c *Codebook) Line() *[3]uint32 {
	c.lineOnce.Do(func() { c.line = c.makeLine() })
	return c.line
}

func (c *Codebook) makeLine() *[3]uint32 {
	const unit, base, error, tolerance = 1 << lineFraction, 1 << 23, 4, 2
	last := c.size - 2 // the last threshold
	if c.bits != 8 || !c.ordered() || c.decode[0] < -1 {
		return nil
	}
	first, end := float64(c.thresholds[0]), float64(c.thresholds[last])
	slope := float32(unit * float64(last) / (end - first))
	middle := unit * float64(last+2) / 2
	offset := float32(math.RoundToEven(base + error + middle - float64(slope)*(first+end)/2))
	line := func(r float64) float64 { return float64(slope)*r + float64(offset) - base }
	if slope > base || line(-1) < 4*error || line(1) > float64(unit*c.size-4*error) {
		return nil
	}
	for i := range last + 1 {
		if math.Abs(line(float64(c.thresholds[i]))-error-float64(unit*(i+1))) > tolerance {
			return nil
		}
	}
	return &[3]uint32{math.Float32bits(slope), math.Float32bits(offset), uint32(c.zero)}
}
