package codebook

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// encodeByNibbleCell is the search that the cells are made for.
func encodeByNibbleCell(cells *[64]uint32, c *Codebook, r float32) uint8 {
	cell := int(math.Floor(nibbleCells*float64(r))) & 31
	index := cells[32+cell]
	if r > math.Float32frombits(cells[cell]) {
		index++
	}
	return c.codes[index]
}

// encodeByNibbleRange is the search that the ranges are made for.
func encodeByNibbleRange(ranges *[48]uint32, c *Codebook, r float32) uint8 {
	index := ranges[int(math.Floor(nibbleCells*float64(r)))&31]
	if r > math.Float32frombits(ranges[32+min(index+1, 15)]) {
		index += 2
	}
	if r > math.Float32frombits(ranges[32+index]) {
		index++
	}
	return c.codes[index]
}

func TestNibbleCells(t *testing.T) {
	var with, ranged []string
	for _, book := range All() {
		cells, ranges := book.NibbleCells(), book.NibbleRanges()
		if cells != nil {
			with = append(with, book.Name())
		}
		if ranges == nil {
			continue
		}
		ranged = append(ranged, book.Name())
		check := func(r float32) {
			if -1 <= r && r <= 1 {
				require.Equal(t, book.Encode(r), encodeByNibbleRange(ranges, book, r), "%s: %v", book.Name(), r)
				if cells != nil {
					require.Equal(t, book.Encode(r), encodeByNibbleCell(cells, book, r), "%s: %v", book.Name(), r)
				}
			}
		}
		for bits := uint32(0); bits <= 0x3f800000; bits += 9973 {
			check(math.Float32frombits(bits))
			check(-math.Float32frombits(bits))
		}
		for _, near := range slices.Concat(book.thresholds[:book.size-1], []float32{-1, 0, 1}) {
			for around := range uint32(7) {
				check(math.Float32frombits(math.Float32bits(near) + around - 3))
			}
		}
	}
	require.Equal(t, []string{"nf4", "fp4", "linear4"}, with)
	require.Equal(t, []string{"nf4", "fp4", "de4", "linear4"}, ranged)
}

func TestNoNibbleCells(t *testing.T) {
	for name, values := range map[string][]float32{
		"two in a cell":    {-1, 0, 0.01, 0.02, 1},
		"four in a cell":   {-1, 0, 0.01, 0.02, 0.03, 0.04, 1},
		"a tiny threshold": {0, 0x1p-31, 1},
		"zero":             {-0.5, 0.5, 1},
		"near an end":      {-1, 1.0 / nibbleCells, 3.0 / nibbleCells, 1}, // whose middle is the end of a cell
		"below -1":         {-2, 0, 1},
	} {
		book, err := New(name, values)
		require.NoError(t, err)
		require.Nil(t, book.NibbleCells(), name)
		require.Equal(t, name == "two in a cell", book.NibbleRanges() != nil, name)
	}
}
