package fuzz

import (
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

func (q *quantizeInput) properties(t *testing.T, in *input) {
	n, f := len(q.x), q.f
	s := searchOf(f.Codebook)
	codes, scales, poisoned := quantized(t, q.x, f)
	single := unpacked(codes, f)
	wantPoisoned := int64(0)
	for b, lo := 0, 0; lo < n; b++ {
		hi := lo + min(f.Block, n-lo)
		scale, want, bad := s.encode(q.x[lo:hi], f.Headroom)
		sameScales(t, []float32{scale}, scales[b:b+1], "scale")
		require.Equal(t, want, single[lo:hi], "codes of block %d", b)
		if bad {
			wantPoisoned++
		} else {
			inOrder(t, q.x[lo:hi], want, f.Codebook)
		}
		lo = hi
	}
	require.Equal(t, wantPoisoned, poisoned)
	if len(single) > n {
		require.Equal(t, s.zero(), single[n], "the spare half of the last byte")
	}
	q.divides(t, in, scales)
	q.splits(t, in, codes, scales)
	q.repeats(t, codes, scales)
}

func quantized(t *testing.T, x []float32, f kernels.Format) (codes []uint8, scales []float32, poisoned int64) {
	t.Helper()
	codes, scales = filled(f.CodeBytes(len(x))), make([]float32, f.Scales(len(x)))
	poisoned, err := kernels.Quantize(codes, scales, x, f)
	require.NoError(t, err)
	return codes, scales, poisoned
}

func dequantized(t *testing.T, codes []uint8, scales []float32, n int, f kernels.Format) []float32 {
	t.Helper()
	dst := make([]float32, n)
	require.NoError(t, kernels.Dequantize(dst, codes, scales, f))
	return dst
}

// inOrder: a larger number never gets a smaller value.
func inOrder(t *testing.T, x []float32, codes []uint8, book *codebook.Codebook) {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case x[i] < x[j]:
			return -1
		case x[i] > x[j]:
			return 1
		}
		return 0
	})
	for k := range order[min(1, len(order)):] {
		below, above := order[k], order[k+1]
		if values := book.Table(); values[codes[below]] > values[codes[above]] {
			require.Failf(t, "order", "%v has value %v, but %v has %v", x[below], values[codes[below]], x[above], values[codes[above]])
		}
	}
}

// divides holds the quotient of properties against exact arithmetic.
func (q *quantizeInput) divides(t *testing.T, in *input, scales []float32) {
	for range min(len(q.x), 3) {
		i := in.below(len(q.x))
		scale := scales[i/q.f.Block]
		if scale == 0 || scale != scale {
			continue
		}
		quotient := new(big.Rat).Quo(new(big.Rat).SetFloat64(float64(q.x[i])), new(big.Rat).SetFloat64(float64(scale)))
		want, _ := quotient.Float32()
		require.Equal(t, want, div(q.x[i], scale)+0)
	}
}

// splits: pieces that begin at blocks and bytes are coded as the whole is.
func (q *quantizeInput) splits(t *testing.T, in *input, codes []uint8, scales []float32) {
	at := in.cut(len(q.x), q.align())
	firstCodes, firstScales, _ := quantized(t, q.x[:at], q.f)
	codes2, scales2, _ := quantized(t, q.x[at:], q.f)
	require.Equal(t, codes, append(firstCodes, codes2...), "split at %d", at)
	sameScales(t, scales, append(firstScales, scales2...), "scales of a split")
}

func (q *quantizeInput) align() int {
	if q.f.Codebook.Bits() == 4 && q.f.Block%2 == 1 && q.f.Block < 1<<20 {
		return 2 * q.f.Block
	}
	return q.f.Block
}

// repeats: what was decoded has the same codes again in a block whose scale comes back.
func (q *quantizeInput) repeats(t *testing.T, codes []uint8, scales []float32) {
	if !slices.Contains(codebook.All(), q.f.Codebook) || q.f.Headroom {
		return // a caller's values may be nearer to each other than the roundings
	}
	y := dequantized(t, codes, scales, len(q.x), q.f)
	codes2, scales2, _ := quantized(t, y, q.f)
	before, after := unpacked(codes, q.f), unpacked(codes2, q.f)
	for i := range y {
		if b := i / q.f.Block; scales[b] == scales2[b] && scales[b] > 0x1p-100 {
			require.Equal(t, before[i], after[i], "element %d, decoded to %v of scale %v", i, y[i], scales[b])
		}
	}
}

func (d *dequantizeInput) properties(t *testing.T, in *input) {
	y := dequantized(t, d.codes, d.scales, d.n, d.f)
	values := d.f.Codebook.Table()
	want := make([]float32, d.n)
	for i, code := range unpacked(d.codes, d.f)[:d.n] {
		want[i] = mul(values[code], d.scales[i/d.f.Block])
	}
	sameFloats(t, want, y, "decoded")
	at := in.cut(d.n, (&quantizeInput{f: d.f}).align())
	bytes, blocks := d.f.CodeBytes(at), d.f.Scales(at)
	first := dequantized(t, d.codes[:bytes], d.scales[:blocks], at, d.f)
	sameFloats(t, y, append(first, dequantized(t, d.codes[bytes:], d.scales[blocks:], d.n-at, d.f)...), "split")
}

// TestEveryValueKeepsItsCode codes whole codebooks.
func TestEveryValueKeepsItsCode(t *testing.T) {
	for _, book := range codebook.All() {
		for exponent := -100; exponent <= 120; exponent += 20 {
			s := searchOf(book)
			x := make([]float32, len(s.codes))
			for i, code := range s.codes {
				x[i] = float32(book.Values()[code]) * pow2(exponent)
			}
			f := kernels.Format{Codebook: book, Block: 256}
			codes, scales, _ := quantized(t, x, f)
			require.Equal(t, []float32{pow2(exponent)}, scales)
			require.Equal(t, s.codes, unpacked(codes, f)[:len(x)], book.Name())
		}
	}
}
