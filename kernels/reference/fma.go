package reference

import "math"

// FMA returns a*b + c rounded once: the float32 fused multiply-add that Go lacks, since
// float32(math.FMA(…)) rounds twice.
//
// The product is exact in float64. Its sum with c is rounded to odd there (an inexact sum
// whose last bit is zero moves one ulp towards the error that TwoSum finds), and with 29
// bits to spare rounding that to float32 is rounding once, subnormals included.
func FMA(a, b, c float32) float32 {
	product, addend := float64(a)*float64(b), float64(c)
	sum := product + addend
	virtual := sum - product
	err := (product - (sum - virtual)) + (addend - virtual)
	bits := math.Float64bits(sum)
	inexact := err < 0 || err > 0 // NaN when the sum is not finite
	if inexact && bits&1 == 0 {
		if (err > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}

// fmaRow sets acc[j] to FMA(a, b[j], acc[j]), and a subnormal result to zero if flush is
// set. The operands are float32 values kept in float64, which saves conversions.
//
// Rounding the float64 sum is already right unless that sum lies halfway between two
// float32: rounding to float64 is monotone and keeps such a midpoint, so no exact sum
// crosses one. Above the subnormals a midpoint ends in a one and 28 zeros.
func fmaRow(acc []float64, a float64, b []float64, flush bool) {
	b = b[:len(acc)]
	for j, c := range acc {
		sum := float64(a*b[j]) + c
		next := float64(float32(sum))
		bits := math.Float64bits(sum)
		if uint32(bits)<<3 == 1<<31 || bits<<1 < smallestNormal<<1 {
			exact := FMA(float32(a), float32(b[j]), float32(c))
			if flush {
				exact = flushSubnormal(exact)
			}
			next = float64(exact)
		}
		acc[j] = next
	}
}

// smallestNormal is the smallest normal float32 as the bits of a float64.
const smallestNormal = 0x381 << 52

// flushSubnormal keeps the sign.
func flushSubnormal(x float32) float32 {
	if magnitude(x) < 0x1p-126 {
		return x * 0
	}
	return x
}
