package fuzz

import (
	"math"
	"slices"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

// format is a format whose codebook the operation takes.
func (in *input) format(takes func(*codebook.Codebook) bool) kernels.Format {
	f := kernels.Format{Block: in.block(), Codebook: in.codebook(takes)}
	if f.Codebook.Bits() == 4 && in.chance(2) {
		f.Nibble = codebook.HighFirst
		in.note("high nibble first")
	}
	if in.chance(5) {
		f.Headroom = true
		in.note("headroom")
	}
	return f
}

// codebook is a built-in codebook or a caller's.
func (in *input) codebook(takes func(*codebook.Codebook) bool) *codebook.Codebook {
	builtIn := slices.DeleteFunc(codebook.All(), func(book *codebook.Codebook) bool { return !takes(book) })
	book := pick(in, builtIn)
	if in.chance(2) {
		if own := in.ownCodebook(book); takes(own) {
			book = own
		}
	}
	in.note("codebook %s", book.Name())
	return book
}

// ownCodebook is a caller's codebook with codes of the size of a built-in one's.
func (in *input) ownCodebook(like *codebook.Codebook) *codebook.Codebook {
	least, most := 17, 256
	if like.Bits() == 4 {
		least, most = 2, 16
	}
	n := least + in.below(most-least+1)
	var values []float32
	name := pick(in, []string{"copy", "spread", "magnitudes", "close", "logarithmic", "any size"})
	switch name {
	case "copy": // as a built-in one, but not known to be
		values = like.Values()
	case "spread":
		values = in.multiples(n, -2048, 0x1p-11)
	case "magnitudes":
		values = in.multiples(n, 0, 0x1p-12)
	case "any size":
		values = in.multiples(n, -2048, math.Ldexp(1, in.random.IntN(240)-140))
	case "close": // neighbours two steps of float32 apart
		for i := range n {
			values = append(values, 0.5+float32(i-n/2)*0x1p-22)
		}
	case "logarithmic":
		values = []float32{0}
		for i := range n - 1 {
			values = append(values, float32(math.Exp2(-float64(i)/3)))
		}
	}
	book, err := codebook.New("own "+name, values)
	if err != nil {
		panic(err) // the values above are distinct and far enough apart
	}
	return book
}

// multiples are n different multiples of a step, in any order.
func (in *input) multiples(n, first int, step float64) []float32 {
	values := make([]float32, n)
	for i, k := range in.random.Perm(4096)[:n] {
		values[i] = float32(float64(first+k) * step)
	}
	return values
}
