package main

import "math"

// decades describes the dynamic 8-bit maps to kernels that find codes by arithmetic.
//
// In the decade that ends at 10^(i-6) there are n values, evenly spaced, so the number of
// thresholds below r is the integer part of a straight line: base + (r/10^(i-6) - 0.1)*n/0.9.
// Only the threshold at the beginning of the decade is off that line, at 0.2 of a step in
// place of 0. A second line, 1.25 times as steep, passes through it and meets the first at
// the next threshold; the lesser of the two is right in the whole decade. A last line
// serves the numbers above the last value before 1.
//
// The decade is taken from the bits of r as an integer, which are nearly its logarithm:
// times indexFactor and plus indexOffset. It may change from one to the next anywhere
// between the last threshold within the lower decade and the end of that decade, and with
// these constants does so with a thousandth of a decade to spare, in both maps.
//
// What comes out is a fixed-point number, the code of a magnitude in the upper bits and
// fraction bits below, as the mantissa of a float32. It is off by less than decadeError of
// its units, so whoever finds a fraction within that of a threshold divides and compares
// with the threshold itself.
type decades struct {
	signed                       bool
	fraction                     int     // bits below the code
	least                        float32 // r at which smaller ones are coded; no threshold is below it
	slopes, offsets, corrections [8]float32
}

const (
	decadeScale  = 1.123046875 * (1 << 25) // r is multiplied by it before it is an index
	indexFactor  = 0.29911 / (1 << 23)
	indexOffset  = 1<<23 - 31
	decadeError  = 4
	steeper      = 1.25
	magicDecades = 1 << 23 // whose mantissa begins at 0
)

// line is a straight line, for the fixed-point number of r.
type line struct{ slope, offset float64 }

func through(r0, y0, r1, y1 float64) line {
	slope := (y1 - y0) / (r1 - r0)
	return line{slope, y0 - slope*r0}
}

func newDecades(signed bool) (d decades) {
	d.signed, d.fraction, d.least = signed, 16, 1.5e-7
	first := 1
	if !signed {
		d.fraction, d.least, first = 15, 1e-7, 2
	}
	values := []float64{0}
	for i := range 7 {
		n := first << i
		for k := range n {
			values = append(values, math.Pow(10, float64(i-6))*(0.1+0.9*float64(2*k+1)/float64(2*n)))
		}
	}
	values = append(values, 1)
	threshold := func(i int) float64 { return (values[i] + values[i+1]) / 2 } // the code is above i

	base := 1.0 // the code from the beginning of the decade on
	for i := range 7 {
		n := float64(int(first) << i)
		low := line{n / 0.9 * math.Pow(10, float64(6-i)), base - n/9}
		begin := steep(low, base+1)
		if i == 0 {
			begin = through(threshold(0), 1, threshold(1), 2)
			low = line{begin.slope / steeper, 0}
			meet := threshold(1)
			if n == 1 {
				meet = 4e-6 // beyond the decade, which has no threshold but its ends
			}
			low.offset = begin.slope*meet + begin.offset - low.slope*meet
		}
		d.set(i, low, begin)
		base += n
	}
	last := len(values) - 2
	top := through(threshold(last-1), base-1, threshold(last), base)
	d.set(7, top, steep(top, 0))
	return d
}

// steep is the line that meets another at y.
func steep(low line, y float64) line {
	return line{steeper * low.slope, y - steeper*(y-low.offset)}
}

func (d *decades) set(i int, low, begin line) {
	unit := math.Ldexp(1, d.fraction)
	magic := float64(magicDecades + decadeError)
	offset := magic + unit*low.offset
	d.slopes[i] = float32(unit * low.slope / decadeScale)
	d.offsets[i] = float32(offset)
	d.corrections[i] = float32(magic + unit*begin.offset - steeper*offset)
}
