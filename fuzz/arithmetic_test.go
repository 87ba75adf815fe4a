package fuzz

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

// One operation of float32 each, rounded once: float64 has more than twice the digits,
// so rounding its result again changes nothing, and no compiler fuses two of them.

func mul(a, b float32) float32 { return float32(float64(a) * float64(b)) }
func add(a, b float32) float32 { return float32(float64(a) + float64(b)) }
func sub(a, b float32) float32 { return float32(float64(a) - float64(b)) }
func div(a, b float32) float32 { return float32(float64(a) / float64(b)) }
func root(a float32) float32   { return float32(math.Sqrt(float64(a))) }

func isFinite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

func pow2(exponent int) float32 { return float32(math.Ldexp(1, exponent)) }

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }

// equal is require.Equal for many numbers.
func equal[T comparable](t *testing.T, want, got T, format string, args ...any) {
	t.Helper()
	if want != got {
		require.Equal(t, want, got, fmt.Sprintf(format, args...))
	}
}

// nearest is the bf16 number with the least distance to x; of two, the even one.
func nearest(x float32) bf16.BF16 {
	bits := math.Float32bits(x)
	down := bf16.BF16(bits >> 16)
	if !isFinite(x) {
		if x != x {
			down |= 0x40
		}
		return down
	}
	up := down + 1
	toDown := math.Abs(float64(x) - bf16Magnitude(down, x))
	toUp := math.Abs(float64(x) - bf16Magnitude(up, x))
	if toDown < toUp || toDown == toUp && down%2 == 0 {
		return down
	}
	return up
}

// bf16Magnitude is a bf16 number, and 2^128 with a sign for infinity.
func bf16Magnitude(b bf16.BF16, sign float32) float64 {
	v := math.Ldexp(float64(0x80|b&0x7f), int(b>>7&0xff)-127-7)
	if b>>7&0xff == 0 {
		v = math.Ldexp(float64(b&0x7f), -126-7)
	}
	return math.Copysign(v, float64(sign))
}

// sameFloats requires the same bits, but takes any NaN for any other.
func sameFloats(t *testing.T, want, got []float32, name string) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			require.Failf(t, name, "%d of %d is %v, want %v", i, len(want), got[i], want[i])
		}
	}
}

// sameScales requires the same bits of NaN too.
func sameScales(t *testing.T, want, got []float32, name string) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, name, "%d of %d is %v, want %v", i, len(want), got[i], want[i])
		}
	}
}

func widened(x kernels.Floats) []float32 {
	w := make([]float32, x.Len())
	for i := range w {
		w[i] = x.At(i)
	}
	return w
}

// cut is a multiple of align from 0 to n.
func (in *input) cut(n, align int) int { return in.below(n/align+1) * align }

// search is a codebook as sorted values, searched from end to end.
type search struct {
	book       *codebook.Codebook
	codes      []uint8 // of the values in increasing order
	thresholds []float32
}

// searches keeps the searches of the last codebooks, which every block asks for.
var searches struct {
	sync.Mutex
	of map[*codebook.Codebook]*search
}

func searchOf(book *codebook.Codebook) *search {
	searches.Lock()
	defer searches.Unlock()
	if s := searches.of[book]; s != nil {
		return s
	}
	if len(searches.of) > 100 || searches.of == nil {
		searches.of = map[*codebook.Codebook]*search{}
	}
	searches.of[book] = newSearch(book)
	return searches.of[book]
}

func newSearch(book *codebook.Codebook) *search {
	s := &search{book: book}
	values := book.Values()
	for {
		least := -1
		for code, v := range values {
			if (least < 0 || v < values[least]) && (len(s.codes) == 0 || v > values[s.codes[len(s.codes)-1]]) {
				least = code
			}
		}
		if least < 0 {
			break
		}
		s.codes = append(s.codes, uint8(least))
	}
	for i := range s.codes[1:] {
		s.thresholds = append(s.thresholds, add(values[s.codes[i]], values[s.codes[i+1]])*0.5)
	}
	return s
}

// code is that of a number relative to the scale.
func (s *search) code(r float32) uint8 {
	index := 0
	for _, t := range s.thresholds {
		if t < r {
			index++
		}
	}
	return s.codes[index]
}

func (s *search) zero() uint8 {
	for code, v := range s.book.Values() {
		if v == 0 {
			return uint8(code)
		}
	}
	return 0
}

// encode is the scale and the codes of one block of a format.
func (s *search) encode(x []float32, headroom bool) (scale float32, codes []uint8, poisoned bool) {
	for _, v := range x {
		if !isFinite(v) {
			poisoned = true
		}
		if abs(v) > scale {
			scale = abs(v)
		}
	}
	if lowest := s.book.Values()[s.codes[0]]; headroom && lowest < 0 && isFinite(div(scale, -lowest)) {
		scale = div(scale, -lowest)
	}
	if poisoned {
		scale = math.Float32frombits(0x7fc00000)
	}
	codes = make([]uint8, len(x))
	for i, v := range x {
		if poisoned || scale == 0 {
			codes[i] = s.zero()
		} else {
			codes[i] = s.code(div(v, scale))
		}
	}
	return scale, codes, poisoned
}

// unpacked are the codes of n elements, one a byte, and the spare half byte's if there is
// one.
func unpacked(codes []uint8, f kernels.Format) []uint8 {
	if f.Codebook.Bits() == 8 {
		return codes
	}
	u := []uint8{}
	for _, b := range codes {
		low, high := b%16, b/16
		if f.Nibble == codebook.HighFirst {
			low, high = high, low
		}
		u = append(u, low, high)
	}
	return u
}
