package kernels_test

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

func ExampleQuantize() {
	x := []float32{0.1, -0.2, 0.3, 4, 5, float32(math.Inf(1))}
	format := kernels.Format{Codebook: codebook.Dynamic8(), Block: 4}
	codes := make([]uint8, format.CodeBytes(len(x)))
	scales := make([]float32, format.Scales(len(x)))
	poisoned, err := kernels.Quantize(codes, scales, x, format)
	if err != nil {
		panic(err)
	}
	back := make([]float32, len(x))
	if err := kernels.Dequantize(back, codes, scales, format); err != nil {
		panic(err)
	}
	fmt.Printf("%.3f, blocks that are not finite: %d\n", back, poisoned)
	// Output: [0.102 -0.203 0.304 4.000 NaN NaN], blocks that are not finite: 1
}

func ExampleRound() {
	x := []float32{1, 3.14159, 1e-3}
	narrow := make([]uint16, len(x))
	if err := kernels.Round(narrow, x); err != nil {
		panic(err)
	}
	fmt.Printf("%04x\n", narrow)
	// Output: [3f80 4049 3a83]
}

func ExampleAdamW() {
	w, g := []float32{1, -1}, []float32{0.5, 0.25}
	m, v := make([]float32, 2), make([]float32, 2)
	scalars := kernels.AdamWHyper{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1}.Scalars()
	_, err := kernels.AdamW(&kernels.AdamWTensors{
		Weights: kernels.Float32s(w), Gradients: kernels.Float32s(g),
		M: kernels.Moment{Floats: kernels.Float32s(m)}, V: kernels.Moment{Floats: kernels.Float32s(v)},
	}, &scalars)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.2f\n", w)
	// Output: [0.90 -1.10]
}

func ExampleNewtonSchulz() {
	triples, safety, err := kernels.Polynomials("deepseek-v4", nil, false)
	if err != nil {
		panic(err)
	}
	plan := &kernels.NewtonSchulzPlan{Safety: safety}
	for _, t := range triples {
		plan.Steps = append(plan.Steps, [3]float32{float32(t[0]), float32(t[1]), float32(t[2])})
	}
	x := kernels.Stack{Data: kernels.Float32s([]float32{3, 0, 0, 0.5}), Count: 1, Rows: 2, Cols: 2, Stride: 2}
	work := make([]float32, plan.WorkSize(2, 2))
	if _, err := kernels.NewtonSchulz(x, x, plan, work); err != nil {
		panic(err)
	}
	fmt.Printf("%.3f\n", x.Data.F32)
	// Output: [1.000 0.000 0.000 1.000]
}
