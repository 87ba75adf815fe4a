package codebook

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// encodeByLine is the search that a line is made for.
func encodeByLine(line *[3]uint32, c *Codebook, r float32) uint8 {
	slope, offset := math.Float32frombits(line[LineSlope]), math.Float32frombits(line[LineOffset])
	t := float64(slope)*float64(r) + float64(offset) - 1<<23
	const unit, window = 1 << lineFraction, 8
	code := math.Floor(t / unit)
	if t-code*unit < window && !(c.thresholds[int(code)-1] < r) {
		code--
	}
	return uint8(code)
}

func evenlySpaced(t *testing.T, n int, first, step float64) *Codebook {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(first + float64(i)*step)
	}
	c, err := New("even", values)
	require.NoError(t, err)
	return c
}

func TestLine(t *testing.T) {
	for _, book := range []*Codebook{Linear8(), evenlySpaced(t, 256, -1, 2.0/255), evenlySpaced(t, 17, -1, 1.0/8), evenlySpaced(t, 201, -0.998, 0.01)} {
		line := book.Line()
		require.NotNil(t, line, "%d values", book.Len())
		require.Equal(t, uint32(book.Zero()), line[LineZero])
		check := func(r float32) {
			if -1 <= r && r <= 1 {
				require.Equal(t, book.Encode(r), encodeByLine(line, book, r), "%d values: %v", book.Len(), r)
			}
		}
		for bits := uint32(0); bits <= 0x3f800000; bits += 9973 {
			check(math.Float32frombits(bits))
			check(-math.Float32frombits(bits))
		}
		for _, threshold := range book.thresholds[:book.size-1] {
			for around := range uint32(15) {
				check(math.Float32frombits(math.Float32bits(threshold) + around - 7))
			}
		}
		for _, r := range []float32{-1, -math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat32, 1} {
			check(r)
		}
	}
}

func TestLineIsOnlyMadeWhereItHolds(t *testing.T) {
	almost := Linear8().Values()
	almost[200] += 0x1p-16
	shuffled := Linear8().Values()
	shuffled[3], shuffled[4] = shuffled[4], shuffled[3]
	for name, values := range map[string][]float32{
		"one value off the line":  almost,
		"codes not in order":      shuffled,
		"4 bits":                  {-1, 0, 1},
		"values below -1":         evenlySpaced(t, 256, -1.25, 2.5/255).Values(),
		"numbers below the codes": evenlySpaced(t, 256, 0, 1.0/255).Values(),
		"numbers above the codes": evenlySpaced(t, 256, -1, 1.5/255).Values(),
		"all values close to 1":   evenlySpaced(t, 20, 1, 0x1p-22).Values(),
	} {
		book, err := New(name, values)
		require.NoError(t, err)
		require.Nil(t, book.Line(), name)
	}
	require.Nil(t, Dynamic8().Line())
}
