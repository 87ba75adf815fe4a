//go:build amd64 && !purego

package amd64_test

import (
	"math/bits"
	"testing"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// TestDivisionByReciprocal proves that with the rounded reciprocal y of c, q = x*y and
// r = x - q*c, which is exact, q + r*y rounds to x/c, as the AVX-512 steps rely on.
//
// r*y is off from r/c by less than 2^-24 of it, and r/c is less than 1.5 units in q's last
// place, so the result could only be wrong where x/c is nearer than 1.5*2^-24 units to the
// middle M of two numbers. In integers, x*2^k - M*c = rest, and x/c is rest/(2c) units off:
// with a c below 2^24, a rest of 3 or more is too far. So for each c these are all x to try.
func TestDivisionByReciprocal(t *testing.T) {
	const smallest, largest, most = 1 << 23, 1 << 24, 4
	for c := int64(smallest); c < largest; c += int64(stride()) {
		twos := bits.TrailingZeros64(uint64(c))
		inverse := inverse64(uint64(c >> twos))
		y := 1 / float32(c)
		for k := 24; k <= 25; k++ { // for quotients of at least 1, and below
			for rest := int64(-most); rest <= most; rest++ {
				if rest == 0 || rest&(1<<twos-1) != 0 {
					continue
				}
				step := int64(1) << (k - twos)
				for middle := int64(uint64(-rest>>twos)*inverse) & (step - 1); middle < 2*largest; middle += step {
					x := (middle*c + rest) >> k
					if middle < 2*smallest || middle%2 == 0 || x < smallest || x >= largest || (k == 24) != (x >= c) {
						continue
					}
					q := float32(x) * y
					r := reference.FMA(-q, float32(c), float32(x))
					if got, want := reference.FMA(r, y, q), float32(x)/float32(c); got != want {
						t.Fatalf("%d/%d is %g, want %g", x, c, got, want)
					}
				}
			}
		}
	}
}

// inverse64 is an odd number's inverse modulo 2^64.
func inverse64(x uint64) uint64 {
	y := x
	for range 5 {
		y *= 2 - x*y
	}
	return y
}
