package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/golden"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

func quantize(t *testing.T, x []float32, f kernels.Format) (codes []uint8, scales []float32, poisoned int64) {
	t.Helper()
	codes, scales = make([]uint8, f.CodeBytes(len(x))), make([]float32, f.Scales(len(x)))
	poisoned, err := kernels.Quantize(codes, scales, x, f)
	require.NoError(t, err)
	return codes, scales, poisoned
}

func dequantize(t *testing.T, codes []uint8, scales []float32, n int, f kernels.Format) []float32 {
	t.Helper()
	x := make([]float32, n)
	require.NoError(t, kernels.Dequantize(x, codes, scales, f))
	return x
}

func formats(block int) []kernels.Format {
	list := []kernels.Format{}
	for _, book := range codebook.All() {
		list = append(list, kernels.Format{Codebook: book, Block: block})
	}
	return list
}

func TestBitsandbytesCodes(t *testing.T) {
	set := golden.Open(t, "bitsandbytes_quant")
	x := set.F32("x")
	magnitudes := make([]float32, len(x))
	for i, v := range x {
		magnitudes[i] = float32(math.Abs(float64(v)))
	}
	for _, c := range []struct {
		name string
		ours *codebook.Codebook
		x    []float32
	}{{"signed", codebook.Dynamic8(), x}, {"unsigned", codebook.Dynamic8Unsigned(), magnitudes}} {
		theirs, err := codebook.New("theirs", set.F32("map."+c.name))
		require.NoError(t, err)
		for _, block := range []int{64, 256, 4096} {
			prefix := fmt.Sprintf("exact.%s.%d.", c.name, block)
			for _, book := range []*codebook.Codebook{theirs, c.ours} {
				codes, scales, _ := quantize(t, c.x, kernels.Format{Codebook: book, Block: block})
				require.Equal(t, set.U8(prefix+"codes"), codes, "%s %s", prefix, book.Name())
				require.Equal(t, set.F32(prefix+"absmax"), scales, prefix)
			}
		}
	}
}

func TestBitsandbytes4Bit(t *testing.T) {
	set := golden.Open(t, "bitsandbytes_quant")
	for _, book := range []*codebook.Codebook{codebook.NF4(), codebook.FP4()} {
		require.Equal(t, set.F32("map."+book.Name()), book.Values())
		for _, block := range []int{64, 128, 256} {
			prefix := fmt.Sprintf("%s.%d.", book.Name(), block)
			want := set.F32(prefix + "dequant")
			n := len(want)
			f := kernels.Format{Codebook: book, Block: block, Nibble: codebook.HighFirst}
			packed := set.U8(prefix + "packed")
			require.Equal(t, want, dequantize(t, packed, set.F32(prefix+"absmax"), n, f), prefix)

			codes, scales, _ := quantize(t, set.F32("x")[:n], f)
			require.Equal(t, set.F32(prefix+"absmax"), scales, prefix)
			for i := range n {
				ours, theirs := f.Get(codes, i), f.Get(packed, i)
				sameZero := book == codebook.FP4() && ours|theirs == 8 && ours&theirs == 0
				if scales[i/block] != 0 && ours != theirs && !sameZero {
					require.Failf(t, "codes differ", "%s element %d: %d, want %d", prefix, i, ours, theirs)
				}
			}
		}
	}
}

// TestBitsandbytesNestedScales quantises the scales too: less their mean, in blocks of
// 256, with the signed map.
func TestBitsandbytesNestedScales(t *testing.T) {
	set := golden.Open(t, "bitsandbytes_quant")
	want, packed := set.F32("nf4.nested.dequant"), set.U8("nf4.nested.packed")
	scaleBook, err := codebook.New("nested", set.F32("nf4.nested.map"))
	require.NoError(t, err)
	f := kernels.Format{Codebook: codebook.NF4(), Block: 64, Nibble: codebook.HighFirst}
	scaleFormat := kernels.Format{Codebook: scaleBook, Block: 256}
	offset := set.F32("nf4.nested.offset")[0]

	scales := dequantize(t, set.U8("nf4.nested.absmax8"), set.F32("nf4.nested.absmax2"), f.Scales(len(want)), scaleFormat)
	for i := range scales {
		scales[i] += offset
	}
	require.Equal(t, want, dequantize(t, packed, scales, len(want), f))

	_, scales, _ = quantize(t, set.F32("x")[:len(want)], f)
	mean := 0.0
	for _, s := range scales {
		mean += float64(s)
	}
	require.InEpsilon(t, offset, mean/float64(len(scales)), 1e-6)
	for i := range scales {
		scales[i] -= offset
	}
	codes, outer, _ := quantize(t, scales, scaleFormat)
	require.Equal(t, set.U8("nf4.nested.absmax8"), codes)
	require.Equal(t, set.F32("nf4.nested.absmax2"), outer)
}

func TestGoldenRounding(t *testing.T) {
	set := golden.Open(t, "rounding")
	x := []float32{}
	for _, bits := range set.I32("bits") {
		x = append(x, math.Float32frombits(uint32(bits)))
	}
	narrow := make([]uint16, len(x))
	require.NoError(t, kernels.Round(narrow, x))
	for _, library := range []string{"torch", "ml_dtypes"} {
		for i, want := range set.BF16("bf16." + library) {
			isNaN := narrow[i]&0x7fff > 0x7f80
			require.Equal(t, want&0x7fff > 0x7f80, isNaN, "%s of %08x", library, math.Float32bits(x[i]))
			if !isNaN {
				require.Equal(t, want, narrow[i], "%s of %08x", library, math.Float32bits(x[i]))
			}
		}
	}
}

func TestAZeroBlockAmongOthers(t *testing.T) {
	for _, f := range formats(256) {
		x := normal(10_000, 1)
		clear(x[:256])
		codes, scales, poisoned := quantize(t, x, f)
		require.Zero(t, poisoned)
		require.Zero(t, math.Float32bits(scales[0]))
		y := dequantize(t, codes, scales, len(x), f)
		for i := range 256 {
			require.Equal(t, f.Codebook.Zero(), f.Get(codes, i))
			require.Zero(t, math.Float32bits(y[i]), "+0")
		}
		alone, aloneScales, _ := quantize(t, x[256:], f)
		require.Equal(t, alone, codes[f.CodeBytes(256):], f.Codebook.Name())
		require.Equal(t, aloneScales, scales[1:])
	}
}

func TestZerosStayZero(t *testing.T) {
	x := []float32{1, 0, float32(math.Copysign(0, -1)), 1e-6, -1e-6, 5.5e-7}
	f := kernels.Format{Codebook: codebook.Dynamic8(), Block: 8}
	codes, scales, _ := quantize(t, x, f)
	y := dequantize(t, codes, scales, len(x), f)
	require.Equal(t, []uint8{255, 127, 127}, codes[:3])
	require.Equal(t, x[:3], y[:3])
	for i, v := range x {
		require.Equal(t, nearestCode(v, f.Codebook), codes[i], "%v", v)
	}
}

// nearestCode is the code of the value with the least distance, the lower at a midpoint.
func nearestCode(r float32, book *codebook.Codebook) (best uint8) {
	least := math.Inf(1)
	for code, v := range book.Values() {
		if d := math.Abs(float64(r) - float64(v)); d < least {
			least, best = d, uint8(code)
		}
	}
	return best
}

func TestNonFiniteBlocksAreAlone(t *testing.T) {
	for _, f := range formats(64) {
		clean := normal(64*9+5, 2)
		wantCodes, wantScales, _ := quantize(t, clean, f)
		for _, special := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			x := append([]float32(nil), clean...)
			x[64*3+17] = special
			codes, scales, poisoned := quantize(t, x, f)
			require.EqualValues(t, 1, poisoned)
			require.Equal(t, uint32(0x7fc00000), math.Float32bits(scales[3]))
			y := dequantize(t, codes, scales, len(x), f)
			for i := range x {
				if i/64 == 3 {
					require.Equal(t, f.Codebook.Zero(), f.Get(codes, i))
					require.True(t, y[i] != y[i])
				} else {
					require.Equal(t, f.Get(wantCodes, i), f.Get(codes, i))
					require.Equal(t, wantScales[i/64], scales[i/64])
				}
			}
		}
	}
}

func TestScalesAtTheEndsOfFloat32(t *testing.T) {
	for _, f := range formats(128) {
		x := normal(128, 3)
		want, _, _ := quantize(t, x, f)
		for _, largest := range []float64{1e-40, math.MaxFloat32} {
			factor := largest / float64(absmax(x))
			y := make([]float32, len(x))
			for i, v := range x {
				y[i] = float32(float64(v) * factor)
			}
			codes, scales, poisoned := quantize(t, y, f)
			require.Zero(t, poisoned)
			require.Equal(t, absmax(y), scales[0])
			z := dequantize(t, codes, scales, len(x), f)
			differing := 0
			for i := range z {
				require.False(t, math.IsInf(float64(z[i]), 0) || z[i] != z[i])
				if f.Get(codes, i) != f.Get(want, i) {
					differing++
				}
			}
			require.LessOrEqual(t, differing, 1, "%s at %g: the roundings of x move few across a threshold", f.Codebook.Name(), largest)
		}
	}
}

func absmax(x []float32) float32 { return kernels.Absmax(x) }

// TestErrorGrowsWithTheBlock has sizes whose blocks do and do not divide the length.
func TestErrorGrowsWithTheBlock(t *testing.T) {
	x := normal(3*65536+1, 4)
	for _, book := range []*codebook.Codebook{codebook.Dynamic8(), codebook.NF4(), codebook.Linear8()} {
		previous := 0.0
		for _, block := range []int{1, 3, 31, 33, 100, 4096, 65536, 1 << 20} {
			f := kernels.Format{Codebook: book, Block: block}
			codes, scales, _ := quantize(t, x, f)
			sum := 0.0
			for i, y := range dequantize(t, codes, scales, len(x), f) {
				sum += math.Abs(float64(y) - float64(x[i]))
			}
			mean := sum / float64(len(x))
			require.GreaterOrEqual(t, mean, previous*0.99, "%s block %d", book.Name(), block)
			require.Less(t, mean, 0.2, "%s block %d", book.Name(), block)
			previous = mean
		}
	}
}

// TestIdleRequantisation: a table without -1 shrinks a negative extreme at each pass,
// which headroom prevents.
func TestIdleRequantisation(t *testing.T) {
	for _, c := range []struct {
		headroom bool
		want     float64
	}{{false, 8.6e-4}, {true, 1}} {
		f := kernels.Format{Codebook: codebook.Dynamic8(), Block: 4, Headroom: c.headroom}
		x := []float32{-1, 0.5, 0.25, 0}
		for range 1000 {
			codes, scales, _ := quantize(t, x, f)
			x = dequantize(t, codes, scales, len(x), f)
		}
		require.InEpsilon(t, c.want, -x[0], 5e-3)
	}
}

// TestFewSecondMomentsBecomeZero: a step divides by the root of such a number.
func TestFewSecondMomentsBecomeZero(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	v := make([]float32, 1<<17)
	for i := range v {
		v[i] = float32(math.Exp(3 * random.NormFloat64()))
	}
	zeros := func(book *codebook.Codebook) float64 {
		f := kernels.Format{Codebook: book, Block: 128}
		codes, scales, _ := quantize(t, v, f)
		count := 0
		for _, y := range dequantize(t, codes, scales, len(v), f) {
			if y == 0 {
				count++
			}
		}
		return float64(count) / float64(len(v))
	}
	require.InDelta(t, 0.01, zeros(codebook.Dynamic8Unsigned()), 0.005)
	require.Greater(t, zeros(codebook.Linear8()), 0.4)
}

// TestTheLargestSizes probes sizes that no test can hold: 2^31 + 5 elements and, with 32
// bits too, as many as an int can count.
func TestTheLargestSizes(t *testing.T) {
	eight := kernels.Format{Codebook: codebook.Dynamic8(), Block: 128}
	four := kernels.Format{Codebook: codebook.NF4(), Block: 100}
	whole := kernels.Format{Codebook: codebook.NF4(), Block: math.MaxInt}
	require.Equal(t, math.MaxInt/128+1, eight.Scales(math.MaxInt))
	require.Equal(t, math.MaxInt, eight.CodeBytes(math.MaxInt))
	require.Equal(t, math.MaxInt/100+1, four.Scales(math.MaxInt))
	require.Equal(t, math.MaxInt/2+1, four.CodeBytes(math.MaxInt))
	require.Equal(t, 1, whole.Scales(math.MaxInt))
	require.Equal(t, 1, whole.Scales(math.MaxInt-1))

	n := int64(1<<31 + 5)
	if int64(int(n)) == n {
		require.Equal(t, 1<<24+1, eight.Scales(int(n)))
		require.Equal(t, 1<<30+3, four.CodeBytes(int(n)))
	}
}

// TestSizesOfNoFormat: what tells the sizes of slices has an answer where Quantize has an error.
func TestSizesOfNoFormat(t *testing.T) {
	require.Equal(t, 0, kernels.Format{}.Scales(5))
	require.Equal(t, 5, kernels.Format{}.CodeBytes(5))
	_, err := kernels.Quantize(make([]uint8, 5), nil, make([]float32, 5), kernels.Format{})
	require.Error(t, err)
}
