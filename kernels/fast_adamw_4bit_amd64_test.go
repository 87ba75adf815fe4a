//go:build !purego

package kernels

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/codebook"
)

// TestNibbleTables: each cell has one threshold at most, which is far enough from its ends
// for an estimate of the reciprocal of a scale, and codes are places in the order of values.
func TestNibbleTables(t *testing.T) {
	tables, de4, linear4 := nibbleTables(), codebook.DE4(), codebook.Linear4()
	const error14 = 0x1p-13 // more than that of VRCP14SS and the roundings
	taken := map[int]bool{}
	for i, threshold := range de4.Thresholds()[:de4.Len()-1] {
		cell := firstCell(threshold)
		require.False(t, taken[cell], "%v", threshold)
		taken[cell] = true
		for _, factor := range []float32{1 - error14, 1 + error14} {
			require.Equal(t, cell, firstCell(threshold*factor), "%v", threshold)
		}
		require.Equal(t, math.Float32bits(threshold), tables[32+cell])
		require.Equal(t, 0x4b400000+uint32(i), tables[96+cell])
	}
	for i, threshold := range linear4.Thresholds()[:linear4.Len()-1] {
		for _, factor := range []float64{1 - error14, 1 + error14} {
			require.EqualValues(t, i, math.Floor(15.99*factor*float64(threshold))-1)
		}
	}
	require.Less(t, 15.99*(1+error14), 16.0) // or the largest number would be in no cell
	for i := range 16 {
		require.EqualValues(t, i, de4.Codes()[i])
		require.EqualValues(t, i, linear4.Codes()[i])
		require.Equal(t, de4.Table()[i], math.Float32frombits(tables[i]))
		require.Equal(t, linear4.Table()[i], math.Float32frombits(tables[16+i]))
	}
	require.EqualValues(t, 7, de4.Zero())
}
