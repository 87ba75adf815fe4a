package kernels_test

import (
	"testing"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

// BenchmarkAdamWSmall steps a parameter of 64 elements, whose time is mostly the door's.
func BenchmarkAdamWSmall(b *testing.B) {
	const n = 64
	s := kernels.AdamWHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, GradScale: 1, Step: 10}.Scalars()
	moment := func(book *codebook.Codebook) kernels.Moment {
		if book == nil {
			return kernels.Moment{Floats: kernels.Float32s(make([]float32, n))}
		}
		f := kernels.Format{Codebook: book, Block: 64}
		return kernels.Moment{Codes: make([]uint8, f.CodeBytes(n)), Scales: make([]float32, f.Scales(n)), Format: f}
	}
	for _, c := range []struct {
		name string
		m, v *codebook.Codebook
	}{{"float32", nil, nil}, {"8bit", codebook.Dynamic8(), codebook.Dynamic8Unsigned()}, {"4bit", codebook.DE4(), codebook.Linear4()}} {
		t := kernels.AdamWTensors{Weights: kernels.Float32s(make([]float32, n)), Gradients: kernels.Float32s(make([]float32, n)), M: moment(c.m), V: moment(c.v)}
		for i := range n {
			t.Gradients.F32[i] = float32(i-20) / 8
		}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := kernels.AdamW(&t, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/kernel", func(b *testing.B) {
			step := kernels.OpAdamW(&t).Impls[0].Func
			for b.Loop() {
				step(&t, &s)
			}
		})
	}
}
