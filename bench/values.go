package bench

import (
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/roofs"
	"github.com/lowbit-go/lowbit/kernels"
)

// noise is what all values are made of: drawing it takes longer than most calls.
var noise = sync.OnceValue(func() []float32 {
	random := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 1<<20)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	return x
})

// room is n elements, in memory that the streams of package roofs can go through.
func room[T any](n int) []T {
	return make([]T, (n-1)/roofs.StepElements*roofs.StepElements+roofs.StepElements)[:n]
}

// bases are the addresses of arrays.
type bases = []*byte

func base[T any](x []T) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(x))) }

func floatsBase(x kernels.Floats) *byte {
	if x.BF16 != nil {
		return base(x.BF16)
	}
	return base(x.F32)
}

// momentBases are those of what has a number an element.
func momentBases(moments ...kernels.Moment) (list bases) {
	for _, m := range moments {
		switch {
		case m.Quantized():
			list = append(list, base(m.Codes))
		case m.Len() > 0:
			list = append(list, floatsBase(m.Floats))
		}
	}
	return list
}

// normal is n normal numbers, which repeat after a million.
func normal(n int) []float32 {
	x := room[float32](n)
	for filled := 0; filled < n; {
		filled += copy(x[filled:], noise())
	}
	return x
}

func narrow(n int) []bf16.BF16 {
	x := room[bf16.BF16](n)
	must(kernels.Round(x, normal(n)))
	return x
}

func floats(n int, inBF16 bool) kernels.Floats {
	if inBF16 {
		return kernels.BF16s(narrow(n))
	}
	return kernels.Float32s(normal(n))
}

func dtype(inBF16 bool) string {
	if inBF16 {
		return "bfloat16"
	}
	return "float32"
}

// quantized is n numbers in a format.
func quantized(x []float32, f kernels.Format) (codes []uint8, scales []float32) {
	codes, scales = room[uint8](len(x))[:f.CodeBytes(len(x))], make([]float32, f.Scales(len(x)))
	_, err := kernels.Quantize(codes, scales, x, f)
	must(err)
	return codes, scales
}

func must(err error) {
	if err != nil {
		panic(err) // the sizes are made here
	}
}

// formatOf is the usual format of codes of a codebook.
func formatOf(book *codebook.Codebook) kernels.Format {
	blocks := map[*codebook.Codebook]int{codebook.NF4(): 64, codebook.DE4(): 128, codebook.Linear4(): 128}
	if block, ok := blocks[book]; ok {
		return kernels.Format{Codebook: book, Block: block}
	}
	return kernels.Format{Codebook: book, Block: 256}
}

// storage makes a moment of n elements.
type storage func(n int) kernels.Moment

func plain(inBF16 bool) storage {
	return func(n int) kernels.Moment {
		if inBF16 {
			return kernels.Moment{Floats: kernels.BF16s(room[bf16.BF16](n))}
		}
		return kernels.Moment{Floats: kernels.Float32s(room[float32](n))}
	}
}

func coded(book *codebook.Codebook) storage {
	return func(n int) (m kernels.Moment) {
		m.Format = formatOf(book)
		m.Codes, m.Scales = quantized(squares(n), m.Format)
		return m
	}
}

// squares are of normal numbers: second moments.
func squares(n int) []float32 {
	x := normal(n)
	for i, v := range x {
		x[i] = v * v
	}
	return x
}

func factored(n int) kernels.Moment {
	return kernels.Moment{Row: squares((n-1)/columns(n) + 1), Col: squares(columns(n))}
}

// columns is the width of a matrix of n elements.
func columns(n int) int { return min(1024, max(n/16, 1)) }

// pairs are the formats of weights and gradients: whether in bf16.
var pairs = []struct{ weights, gradients bool }{{false, false}, {true, true}, {true, false}, {false, true}}
