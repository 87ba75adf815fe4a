package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorStats(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range map[string]struct {
		want, got      []float32
		max, mean, rms float64
	}{
		"empty":       {nil, nil, 0, 0, 0},
		"plain":       {[]float32{1, -2, 3, 0}, []float32{1, -5, 7, 0}, 4, 1.75, 2.5},
		"equal":       {[]float32{inf, -inf, nan, 0}, []float32{inf, -inf, nan, float32(math.Copysign(0, -1))}, 0, 0, 0},
		"overflow":    {[]float32{1, math.MaxFloat32}, []float32{1, inf}, math.Inf(1), math.Inf(1), math.Inf(1)},
		"lost":        {[]float32{1, 2}, []float32{1, nan}, math.NaN(), math.NaN(), math.NaN()},
		"other signs": {[]float32{inf}, []float32{-inf}, math.Inf(1), math.Inf(1), math.Inf(1)},
		"no overflow": {[]float32{math.MaxFloat32}, []float32{-math.MaxFloat32}, 2 * math.MaxFloat32, 2 * math.MaxFloat32, 2 * math.MaxFloat32},
	} {
		for cut := range len(c.want) + 1 {
			var first, second errorStats
			first.add(c.want[:cut], c.got[:cut])
			second.add(c.want[cut:], c.got[cut:])
			first.merge(second)
			for _, pair := range [][2]float64{{c.max, first.max}, {c.mean, first.mean()}, {c.rms, first.rms()}} {
				if math.IsNaN(pair[0]) {
					require.True(t, math.IsNaN(pair[1]), name)
				} else {
					require.Equal(t, pair[0], pair[1], name)
				}
			}
		}
	}
}
