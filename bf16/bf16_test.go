package bf16_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	for _, c := range []struct{ in, want uint32 }{
		{0x00000000, 0x0000}, {0x80000000, 0x8000},
		{0x3f800000, 0x3f80},
		{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, // ties go to even
		{0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
		{0x7f7fffff, 0x7f80}, {0xff7fffff, 0xff80},
		{0x7f7f8000, 0x7f80}, {0x7f7f7fff, 0x7f7f},
		{0x7f800000, 0x7f80}, {0xff800000, 0xff80},
		{0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x00018000, 0x0002},
		{0x007fffff, 0x0080}, {0x80018000, 0x8002},
		{0x7f800001, 0x7fc0}, {0xff800001, 0xffc0}, {0x7fffffff, 0x7fff}, {0x7fa10000, 0x7fe1},
	} {
		require.Equalf(t, bf16.BF16(c.want), bf16.FromFloat32(math.Float32frombits(c.in)), "%08x", c.in)
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct{ in, want uint32 }{
		{0x3f80ffff, 0x3f80}, {0xbf80ffff, 0xbf80}, {0x7f7fffff, 0x7f7f}, {0x0000ffff, 0},
		{0x7f800000, 0x7f80}, {0x7f800001, 0x7fc0}, {0xff800001, 0xffc0},
	} {
		require.Equalf(t, bf16.BF16(c.want), bf16.Truncate(math.Float32frombits(c.in)), "%08x", c.in)
	}
}

func TestStochastic(t *testing.T) {
	for _, c := range []struct {
		in     uint32
		random uint16
		want   bf16.BF16
	}{
		{0x3f800000, 0xffff, 0x3f80}, // an exact value never moves
		{0x3f800001, 0xffff, 0x3f81}, {0x3f800001, 0xfffe, 0x3f80},
		{0xbf80c000, 0x4000, 0xbf81}, {0xbf80c000, 0x3fff, 0xbf80},
		{0x7f7fffff, 0xffff, 0x7f7f}, {0xff7fffff, 0xffff, 0xff7f}, // never infinite
		{0x7f800000, 0xffff, 0x7f80}, {0xff800000, 0xffff, 0xff80},
		{0x7f800001, 0xffff, 0x7fc0}, {0x80000001, 0xffff, 0x8001},
	} {
		require.Equalf(t, c.want, bf16.Stochastic(math.Float32frombits(c.in), c.random), "%08x %04x", c.in, c.random)
	}
}

// nearestByDistance picks the closest of the two neighbouring bfloat16 values in float64.
func nearestByDistance(bits uint32) bf16.BF16 {
	down := bf16.BF16(bits >> 16)
	up := down + 1
	value := func(b bf16.BF16) float64 {
		if b&0x7fff == 0x7f80 { // infinity stands where the next value would be
			return math.Copysign(0x1p128, float64(b.Float32()))
		}
		return float64(b.Float32())
	}
	x := float64(math.Float32frombits(bits))
	toDown, toUp := math.Abs(x-value(down)), math.Abs(value(up)-x)
	if toDown < toUp || toDown == toUp && down&1 == 0 {
		return down
	}
	return up
}

func checkPattern(t *testing.T, bits uint32) {
	f := math.Float32frombits(bits)
	nearest, truncated := bf16.FromFloat32(f), bf16.Truncate(f)
	switch {
	case f != f:
		want := bf16.BF16(bits>>16 | 0x40)
		if nearest != want || truncated != want || bf16.Stochastic(f, 0x8000) != want {
			t.Fatalf("%08x: NaN became %04x, %04x", bits, nearest, truncated)
		}
	case math.IsInf(float64(f), 0):
		want := bf16.BF16(bits >> 16)
		if nearest != want || truncated != want || bf16.Stochastic(f, 0xffff) != want {
			t.Fatalf("%08x: infinity became %04x, %04x", bits, nearest, truncated)
		}
	default:
		if want := nearestByDistance(bits); nearest != want {
			t.Fatalf("%08x: nearest is %04x, want %04x", bits, nearest, want)
		}
		if want := bf16.BF16(bits >> 16); truncated != want {
			t.Fatalf("%08x: truncated to %04x, want %04x", bits, truncated, want)
		}
		if s := bf16.Stochastic(f, 0x8000); s&0x7fff >= 0x7f80 || s != truncated && s != truncated+1 {
			t.Fatalf("%08x: stochastic is %04x", bits, s)
		}
	}
}

// TestPatterns samples the 2^32 float32 patterns with a stride coprime to them;
// LOWBIT_ALL_PATTERNS=1 takes every one.
func TestPatterns(t *testing.T) {
	stride := uint64(9973)
	if os.Getenv("LOWBIT_ALL_PATTERNS") != "" {
		stride = 1
	}
	const parts = 64
	for part := range uint64(parts) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for bits := part * stride; bits < 1<<32; bits += parts * stride {
				checkPattern(t, uint32(bits))
			}
		})
	}
}

func TestTies(t *testing.T) {
	for high := range uint32(1 << 16) { // every tie and both its neighbours
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			checkPattern(t, high<<16|low)
		}
	}
}

func TestWidenRoundTrip(t *testing.T) {
	for b := range 1 << 16 {
		f := bf16.BF16(b).Float32()
		if f == f {
			require.Equal(t, bf16.BF16(b), bf16.FromFloat32(f))
			require.Equal(t, bf16.BF16(b), bf16.Truncate(f))
			require.Equal(t, bf16.BF16(b), bf16.Stochastic(f, 0xffff))
		}
	}
}

func TestPhiloxKnownAnswers(t *testing.T) {
	const ones = 0xffffffff
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
		bf16.Philox4x32([4]uint32{}, [2]uint32{}))
	require.Equal(t, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		bf16.Philox4x32([4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}))
}

func TestRandomBitsLayout(t *testing.T) {
	words := bf16.Philox4x32([4]uint32{5, 1, 7, 2}, [2]uint32{3, 4})
	seed, step, group := uint64(4<<32|3), uint64(2<<32|7), uint64(1<<32|5)
	for i := range uint64(8) {
		want := uint16(words[i/2])
		if i%2 == 1 {
			want = uint16(words[i/2] >> 16)
		}
		require.Equal(t, want, bf16.RandomBits(seed, step, group*8+i))
	}
}

func TestStochasticMeanIsUnbiased(t *testing.T) {
	const x, draws = float32(1.00123), 200_000
	sum := 0.0
	for i := range uint64(draws) {
		sum += float64(bf16.Stochastic(x, bf16.RandomBits(1, 2, i)).Float32())
	}
	const ulp = 1.0 / 128
	fraction := (float64(x) - 1) / ulp
	sigma := ulp * math.Sqrt(fraction*(1-fraction)/draws)
	require.InDelta(t, float64(x), sum/draws, 5*sigma)
}

func ExampleFromFloat32() {
	b := bf16.FromFloat32(3.14159)
	fmt.Printf("%04x %v\n", uint16(b), b.Float32())
	// Output: 4049 3.140625
}

func ExampleStochastic() {
	b := bf16.Stochastic(1.001, bf16.RandomBits(42, 0, 0))
	fmt.Println(b.Float32() == 1 || b.Float32() == 1.0078125)
	// Output: true
}
