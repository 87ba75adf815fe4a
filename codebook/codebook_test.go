package codebook_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/stretchr/testify/require"
)

func littleEndian(values []float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestDynamicTablesAreThePublishedOnes(t *testing.T) {
	for _, c := range []struct {
		book *codebook.Codebook
		zero uint8
		crc  uint32
		sha  string
	}{
		{codebook.Dynamic8(), 127, 0xb66387ba, "035c4114538df2a03bbcb4d8a39b9325d26d84a00cf6cf29018d1a6608ab14c4"},
		{codebook.Dynamic8Unsigned(), 0, 0x603f8c47, "02a9b523750e21348029626da435f2adadb851b687d86349cd20752f9255de26"},
	} {
		data := littleEndian(c.book.Values())
		sum := sha256.Sum256(data)
		require.Equal(t, c.crc, crc32.ChecksumIEEE(data), c.book.Name())
		require.Equal(t, c.sha, hex.EncodeToString(sum[:]), c.book.Name())
		require.Equal(t, c.zero, c.book.Zero(), c.book.Name())
	}
	require.Equal(t, float32(-0.99296874), codebook.Dynamic8().Values()[0])
}

// TestEncodeCountsThresholds checks the search against the definition, at every
// threshold and three steps around it, at every value, and on random numbers.
func TestEncodeCountsThresholds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, book := range codebook.All() {
		var inputs []float32
		for _, x := range append(book.Thresholds()[:], book.Values()...) {
			for range 3 {
				x = math.Nextafter32(x, float32(math.Inf(-1)))
			}
			for range 7 {
				inputs = append(inputs, x)
				x = math.Nextafter32(x, float32(math.Inf(1)))
			}
		}
		for range 2000 {
			inputs = append(inputs, 2*rng.Float32()-1, float32(math.Exp(-20*rng.Float64())), math.Float32frombits(rng.Uint32()))
		}
		inputs = append(inputs, 0, float32(math.Copysign(0, -1)), 1, -1, math.SmallestNonzeroFloat32, -math.MaxFloat32, math.MaxFloat32)
		for _, r := range inputs {
			index := 0
			for _, threshold := range book.Thresholds() {
				if threshold < r {
					index++
				}
			}
			require.Equalf(t, book.Codes()[index], book.Encode(r), "%s: %v", book.Name(), r)
		}
	}
}

func TestEveryWrittenCodeRoundTrips(t *testing.T) {
	for _, book := range codebook.All() {
		previous := math.Inf(-1)
		for _, code := range sortedCodes(book) {
			value := book.Table()[code]
			require.Equal(t, code, book.Encode(value), book.Name())
			require.Greater(t, float64(value), previous)
			previous = float64(value)
		}
		require.Equal(t, float32(1), slices.Max(book.Values()), book.Name())
	}
}

func sortedCodes(book *codebook.Codebook) []uint8 {
	values := book.Values()
	distinct := book.Len()
	if book.Name() == "fp4" {
		distinct-- // code 8 is a second zero
	}
	codes := slices.Clone(book.Codes()[:distinct])
	slices.SortFunc(codes, func(a, b uint8) int { return int(math.Copysign(1, float64(values[a]-values[b]))) })
	return codes
}

func TestZero(t *testing.T) {
	negativeZero := float32(math.Copysign(0, -1))
	for _, book := range codebook.All() {
		if book.Name() == "linear4" {
			require.Equal(t, uint8(0), book.Encode(0))
			continue
		}
		for _, zero := range []float32{0, negativeZero} {
			require.Equal(t, book.Zero(), book.Encode(zero), book.Name())
		}
		require.Equal(t, uint32(0), math.Float32bits(book.Table()[book.Zero()]), book.Name())
	}
	require.Equal(t, uint32(0), math.Float32bits(codebook.FP4().Table()[8]))
}

func TestCodesWithoutAValueDecodeToNaN(t *testing.T) {
	v := codebook.Linear8().Table()[255]
	require.True(t, v != v)
	require.Len(t, codebook.Linear8().Values(), 255)
}

func TestNewRefuses(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		values []float32
		want   string
	}{
		{nil, "codebook x: found 0 values, want 2 to 256"},
		{make([]float32, 257), "codebook x: found 257 values, want 2 to 256"},
		{[]float32{0, inf}, "codebook x: value 1 is +Inf, want finite values"},
		{[]float32{0, float32(math.NaN())}, "codebook x: value 1 is NaN, want finite values"},
		{[]float32{0, 1, 1}, "codebook x: codes 1 and 2 both have the value 1, want distinct values"},
		{[]float32{0, 3e38, 3.2e38}, "codebook x: no float32 threshold separates 3e+38 and 3.2e+38"},
		{[]float32{-math.SmallestNonzeroFloat32, 0}, "codebook x: no float32 threshold separates -1e-45 and 0"},
		{[]float32{0, math.SmallestNonzeroFloat32}, ""},
		{[]float32{1, 1 + 0x1p-23, 1 + 0x1p-22}, "codebook x: no float32 threshold separates 1.0000001 and 1.0000002"},
		{[]float32{0, 0}, ""},
	} {
		_, err := codebook.New("x", c.values)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.want)
		}
	}
}

func TestByNameAndResolve(t *testing.T) {
	for _, book := range codebook.All() {
		found, err := codebook.ByName(book.Name())
		require.NoError(t, err)
		require.Same(t, book, found)
		if book.Name() != "linear8" {
			resolved, err := codebook.Resolve(book.Name(), book.Values())
			require.NoError(t, err)
			require.Same(t, book, resolved)
		}
	}
	_, err := codebook.ByName("dynamic9")
	require.EqualError(t, err, `unknown codebook "dynamic9", want one of dynamic8, dynamic8u, linear8, nf4, fp4, de4, linear4`)
	values := codebook.Dynamic8().Values()
	values[3] = math.Nextafter32(values[3], 1)
	resolved, err := codebook.Resolve("dynamic8", values)
	require.NoError(t, err)
	require.NotSame(t, codebook.Dynamic8(), resolved)
}

func TestNibbles(t *testing.T) {
	for _, order := range []codebook.Nibble{codebook.LowFirst, codebook.HighFirst} {
		packed := []uint8{0xff, 0xff, 0xff}
		codes := []uint8{1, 2, 3, 4, 5}
		for i, code := range codes {
			order.Put(packed, i, code)
		}
		for i, code := range codes {
			require.Equal(t, code, order.Get(packed, i))
		}
		require.Equal(t, uint8(15), order.Get(packed, 5), "a neighbour changed")
	}
	packed := make([]uint8, 1)
	codebook.LowFirst.Put(packed, 0, 3)
	require.Equal(t, uint8(0x03), packed[0])
	codebook.HighFirst.Put(packed, 0, 5)
	require.Equal(t, uint8(0x53), packed[0])
}

func ExampleNew() {
	book, err := codebook.New("signs", []float32{-1, 0, 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(book.Bits(), book.Encode(-0.7), book.Encode(0.2), book.Encode(0.6))
	// Output: 4 0 1 2
}
