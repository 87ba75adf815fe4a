package codebook

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
)

// Dynamic8 is the signed dynamic 8-bit map of Dettmers et al., "8-bit Optimizers via
// Block-wise Quantization" (2022), evaluated exactly: seven decades with 1, 2, … 64
// values a sign, 0 and 1. There is no -1: the first value is -0.99296874.
var Dynamic8 = sync.OnceValue(func() *Codebook { return builtIn("dynamic8", dynamic8(true)) })

// Dynamic8Unsigned is the dynamic 8-bit map for values that are never negative: seven
// decades with 2, 4, … 128 values, 0 and 1.
var Dynamic8Unsigned = sync.OnceValue(func() *Codebook { return builtIn("dynamic8u", dynamic8(false)) })

// Linear8 is k/127 for k = -127…127, with code k+127; code 255 has no value.
var Linear8 = sync.OnceValue(func() *Codebook {
	values := make([]float32, 255)
	for code := range values {
		values[code] = float32(float64(code-127) / 127)
	}
	return builtIn("linear8", values)
})

// DE4 is the signed dynamic-exponent 4-bit map of Li et al., "Memory Efficient
// Optimizers with 4-bit States" (2023), for first moments.
var DE4 = sync.OnceValue(func() *Codebook {
	return builtIn("de4", []float32{
		-0.8875, -0.6625, -0.4375, -0.2125, -0.0775, -0.0325, -0.0055,
		0, 0.0055, 0.0325, 0.0775, 0.2125, 0.4375, 0.6625, 0.8875, 1})
})

// Linear4 is k/16 for k = 1…16, without a zero, of the same paper, for second moments.
var Linear4 = sync.OnceValue(func() *Codebook {
	values := make([]float32, 16)
	for code := range values {
		values[code] = float32(code+1) / 16
	}
	return builtIn("linear4", values)
})

// NF4 is the 4-bit NormalFloat of Dettmers et al., "QLoRA" (2023).
var NF4 = sync.OnceValue(func() *Codebook {
	return builtIn("nf4", []float32{
		-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
		-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
		0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
		0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1})
})

// FP4 is bitsandbytes' 4-bit float: a sign bit, then eight magnitudes in its own order.
// Code 8 is a second zero that is read but never written.
var FP4 = sync.OnceValue(func() *Codebook {
	return builtIn("fp4", []float32{
		0, 0.0052083334885537624, 0.6666666865348816, 1,
		0.3333333432674408, 0.5, 0.1666666716337204, 0.25,
		0, -0.0052083334885537624, -0.6666666865348816, -1,
		-0.3333333432674408, -0.5, -0.1666666716337204, -0.25})
})

var all = []func() *Codebook{Dynamic8, Dynamic8Unsigned, Linear8, NF4, FP4, DE4, Linear4}

// All returns the built-in codebooks.
func All() []*Codebook {
	books := make([]*Codebook, len(all))
	for i, book := range all {
		books[i] = book()
	}
	return books
}

// ByName returns a built-in codebook: dynamic8, dynamic8u, linear8, nf4, fp4, de4 or
// linear4.
func ByName(name string) (*Codebook, error) {
	names := make([]string, len(all))
	for i, book := range All() {
		if book.name == name {
			return book, nil
		}
		names[i] = book.name
	}
	return nil, fmt.Errorf("unknown codebook %q, want one of %s", name, strings.Join(names, ", "))
}

// Resolve returns the built-in codebook of that name when it has exactly these values,
// so that a table read from a file gets the kernels made for it, and else a new one.
func Resolve(name string, values []float32) (*Codebook, error) {
	if book, err := ByName(name); err == nil && slices.Equal(book.Values(), values) {
		return book, nil
	}
	return New(name, values)
}

func builtIn(name string, values []float32) *Codebook {
	book, err := New(name, values)
	if err != nil {
		panic(err) // a built-in table is a constant, and tested
	}
	return book
}

// dynamic8 evaluates ±10^(i-6) * (1/10 + (9/10)(2k+1)/(2n)) as exact rationals, each
// rounded once.
func dynamic8(signed bool) []float32 {
	values := []float32{0, 1}
	scale := int64(1_000_000) // 10^(6-i)
	for i := range 7 {
		n := int64(1) << i
		if !signed {
			n *= 2
		}
		for k := range n {
			v, _ := big.NewRat(2*n+9*(2*k+1), 20*n*scale).Float32()
			values = append(values, v)
			if signed {
				values = append(values, -v)
			}
		}
		scale /= 10
	}
	slices.Sort(values)
	return values
}
