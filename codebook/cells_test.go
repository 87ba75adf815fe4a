package codebook

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// encodeByCell is the search that the entries are made for.
func encodeByCell(cells []uint32, r float32) uint8 {
	shift := cells[CellShift]
	bits := math.Float32bits(r)
	low := max(bits&^(1<<31), cells[CellSmallest])
	cell := low>>shift - cells[CellSmallest]>>shift
	if bits>>31 == 1 {
		cell += cells[CellSide]
		low = ^low
	}
	return uint8((cells[CellEntries+cell] + low&(1<<shift-1)) >> shift)
}

func TestCells(t *testing.T) {
	for _, book := range All() {
		if book.Bits() == 4 && !book.ordered() {
			require.True(t, book.Cells() == nil, book.Name())
			continue
		}
		cells := book.Cells()
		require.True(t, cells != nil, book.Name())
		require.Equal(t, CellEntries+2*int(cells[CellSide]), len(cells), book.Name())
		check := func(bits uint32) {
			r := math.Float32frombits(bits)
			if got, want := encodeByCell(cells, r), book.Encode(r); got != want {
				t.Fatalf("%s: %08x has code %d, want %d", book.Name(), bits, got, want)
			}
		}
		for sign := uint32(0); sign < 2; sign++ {
			for bits := uint32(0); bits <= 0x3f800000; bits += 997 {
				check(sign<<31 | bits)
			}
			for cell := range cells[CellSide] - 1 {
				for around := range uint32(7) {
					check(sign<<31 | cells[CellSmallest] + (cell+1)<<cells[CellShift] + around - 3)
				}
			}
			for _, threshold := range book.Thresholds()[:book.Len()-1] {
				for around := range uint32(7) {
					check(math.Float32bits(threshold) + around - 3)
				}
			}
			check(sign<<31 | 0x3f800000)
		}
	}
}

func TestCellsAreOnlyMadeWhereTheyHold(t *testing.T) {
	for name, values := range map[string][]float32{
		"a threshold at zero":   {-0.5, 0.5},
		"thresholds too close":  {0.5, 0.50001, 0.50002, 1},
		"a threshold too small": {0, 1e-44, 1},
		"values below -1":       {-2, 0.5},
		"codes not in order":    {0.5, 0.25, 1},
	} {
		book, err := New(name, values)
		require.NoError(t, err)
		require.True(t, book.Cells() == nil, name)
	}
}
