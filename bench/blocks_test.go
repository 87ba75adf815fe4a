package bench

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

// BenchmarkBlocks works on a million elements in blocks of every usual size, on one thread.
func BenchmarkBlocks(b *testing.B) {
	const n = 1 << 20
	x, y := normal(n), make([]float32, n)
	for _, book := range []*codebook.Codebook{
		codebook.Dynamic8(), codebook.Dynamic8Unsigned(), codebook.Linear8(), codebook.NF4(), codebook.DE4(),
	} {
		for block := 32; block <= 4096; block *= 2 {
			f := kernels.Format{Codebook: book, Block: block}
			codes, scales := make([]uint8, f.CodeBytes(n)), make([]float32, f.Scales(n))
			run := func(op string, do func() error) {
				b.Run(fmt.Sprintf("op=%s/book=%s/block=%d", op, book.Name(), block), func(b *testing.B) {
					b.SetBytes(4 * n)
					for b.Loop() {
						require.NoError(b, do())
					}
				})
			}
			run("quantize", func() error { _, err := kernels.Quantize(codes, scales, x, f, kernels.Threads(1)); return err })
			run("dequantize", func() error { return kernels.Dequantize(y, codes, scales, f, kernels.Threads(1)) })
		}
	}
	for name, formats := range map[string][2]*codebook.Codebook{
		"adamw_8bit": {codebook.Dynamic8(), codebook.Dynamic8Unsigned()}, "adamw_4bit": {codebook.DE4(), codebook.Linear4()},
	} {
		for block := 32; block <= 4096; block *= 2 {
			moment := func(book *codebook.Codebook) kernels.Moment {
				f := kernels.Format{Codebook: book, Block: block}
				return kernels.Moment{Codes: make([]uint8, f.CodeBytes(n)), Scales: make([]float32, f.Scales(n)), Format: f}
			}
			t := kernels.AdamWTensors{Weights: kernels.Float32s(y), Gradients: kernels.Float32s(x), M: moment(formats[0]), V: moment(formats[1])}
			s := kernels.AdamWHyper{LR: 1e-6, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 3, GradScale: 1}.Scalars()
			b.Run(fmt.Sprintf("op=%s/block=%d", name, block), func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					_, err := kernels.AdamW(&t, &s, kernels.Threads(1))
					require.NoError(b, err)
				}
			})
		}
	}
}
