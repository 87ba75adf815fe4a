package kernels_test

import (
	"fmt"
	"math"
	"slices"

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
	plan := kernels.PlanNewtonSchulz(triples, safety)
	x := kernels.Stack{Data: kernels.Float32s([]float32{3, 0, 0, 0.5}), Count: 1, Rows: 2, Cols: 2, Stride: 2}
	work := make([]float32, plan.WorkSize(2, 2))
	if _, err := kernels.NewtonSchulz(x, x, plan, work); err != nil {
		panic(err)
	}
	fmt.Printf("%.3f\n", x.Data.F32)
	// Output: [1.000 0.000 0.000 1.000]
}

// A plan and a workspace serve any number of matrices that are not larger.
func ExamplePlanNewtonSchulz() {
	triples, err := kernels.CustomPolynomials([]kernels.Triple{{1.5, -0.5, 0}}, new(20))
	if err != nil {
		panic(err)
	}
	plan := kernels.PlanNewtonSchulz(triples, 1)
	work := make([]float32, plan.WorkSize(2, 3))
	for _, matrices := range []kernels.Stack{
		{Data: kernels.Float32s([]float32{1, 0, 0, 0, 9, 0}), Count: 1, Rows: 2, Cols: 3, Stride: 3},
		{Data: kernels.Float32s([]float32{0, 5, -3, 0, 2, 0, 0, -2}), Count: 2, Rows: 2, Cols: 2, Stride: 2, Step: 4},
	} {
		poisoned, err := kernels.NewtonSchulz(matrices, matrices, plan, work)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%.2f, not finite: %d\n", matrices.Data.F32, poisoned)
	}
	// Output:
	// [1.00 0.00 0.00 0.00 1.00 0.00], not finite: 0
	// [0.00 1.00 -1.00 0.00 1.00 0.00 0.00 -1.00], not finite: 0
}

// The matrices of a model in one call: threads share them by their sizes.
func ExampleNewtonSchulzGroups() {
	triples, safety, err := kernels.Polynomials("deepseek-v4", nil, false)
	if err != nil {
		panic(err)
	}
	plan := kernels.PlanNewtonSchulz(triples, safety)
	groups := []kernels.Stack{
		{Data: kernels.Float32s([]float32{3, 0, 0, 0.5, 0, 2, 2, 0}), Count: 2, Rows: 2, Cols: 2, Stride: 2, Step: 4},
		{Data: kernels.Float32s([]float32{0, 0, -7}), Count: 1, Rows: 1, Cols: 3, Stride: 3},
		{Data: kernels.Float32s([]float32{0, 0, 4, 0, 0, 1}), Count: 1, Rows: 3, Cols: 2, Stride: 2},
	}
	work := make([]float32, kernels.NewtonSchulzGroupsWork(plan, groups)) // once, for all steps
	if _, err := kernels.NewtonSchulzGroups(groups, groups, plan, work); err != nil {
		panic(err)
	}
	for _, g := range groups {
		fmt.Printf("%d of %dx%d: %.2f\n", g.Count, g.Rows, g.Cols, g.Data.F32)
	}
	// Output:
	// 2 of 2x2: [1.00 0.00 0.00 1.00 0.00 1.00 1.00 0.00]
	// 1 of 1x3: [0.00 0.00 -1.00]
	// 1 of 3x2: [0.00 0.00 1.00 0.00 0.00 1.00]
}

// Two steps of one parameter with 8-bit moments: the moments are kept, and each step has
// scalars of its own.
func ExampleAdamW_codes() {
	const n = 256
	signed := kernels.Format{Codebook: codebook.Dynamic8(), Block: 128}
	unsigned := kernels.Format{Codebook: codebook.Dynamic8Unsigned(), Block: 128}
	moment := func(f kernels.Format) kernels.Moment {
		m := kernels.Moment{Format: f, Codes: make([]uint8, f.CodeBytes(n)), Scales: make([]float32, f.Scales(n))}
		for i := range m.Codes {
			m.Codes[i] = f.Codebook.Zero()
		}
		return m
	}
	weights, gradients := make([]float32, n), make([]float32, n)
	tensors := &kernels.AdamWTensors{
		Weights: kernels.Float32s(weights), Gradients: kernels.Float32s(gradients),
		M: moment(signed), V: moment(unsigned),
	}
	hyper := kernels.AdamWHyper{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, GradScale: 1}
	for step := range 2 {
		gradients[0], gradients[200] = 2, float32(math.NaN()) // the backward pass
		hyper.Step = int64(step) + 1
		scalars := hyper.Scalars()
		scalars.SkipNonFinite = true
		counts, err := kernels.AdamW(tensors, &scalars)
		if err != nil {
			panic(err)
		}
		fmt.Printf("w[0] %.3f, blocks left alone: %d\n", weights[0], counts.SkippedBlocks)
	}
	// Output:
	// w[0] -0.010, blocks left alone: 1
	// w[0] -0.020, blocks left alone: 1
}

// C = A·Bᵀ, of which B is stored as [n, k] rows.
func ExampleGemm() {
	a := kernels.Matrix{Data: kernels.Float32s([]float32{1, 2, 3, 4, 5, 6}), Rows: 2, Cols: 3, Stride: 3}
	b := kernels.Matrix{Data: kernels.Float32s([]float32{1, 0, 1, 0, 1, 0}), Rows: 2, Cols: 3, Stride: 3}
	c := kernels.Matrix{Data: kernels.Float32s(make([]float32, 4)), Rows: 2, Cols: 2, Stride: 2}
	if err := kernels.Gemm(c, a, false, b, true, 1, 0); err != nil {
		panic(err)
	}
	fmt.Println(c.Data.F32)

	fmt.Println(kernels.Gemm(c, a, false, b, false, 1, 0))
	// Output:
	// [4 2 10 5]
	// gemm: A is 2x3 and B 2x3, want the inner sizes equal
}

func ExampleSyrk() {
	a := kernels.Matrix{Data: kernels.Float32s([]float32{1, 2, 3, 4, 5, 6}), Rows: 2, Cols: 3, Stride: 3}
	c := kernels.Matrix{Data: kernels.Float32s([]float32{1, 0, 0, 1}), Rows: 2, Cols: 2, Stride: 2}
	if err := kernels.Syrk(c, a, 1, -1); err != nil { // A·Aᵀ - C
		panic(err)
	}
	fmt.Println(c.Data.F32)
	// Output: [13 32 32 76]
}

func ExampleDot() {
	x, y := []float32{1, 1e20, 3}, []float32{2, 1e20, 4}
	dot, err := kernels.Dot(x, y) // in float64, so that 1e40 is no infinity
	fmt.Printf("%.3g %v, norm %.3g\n", dot, err, kernels.Norm(kernels.Float32s(x)))

	_, err = kernels.Dot(x, y[:2])
	fmt.Println(err)
	// Output:
	// 1e+40 <nil>, norm 1e+20
	// dot: y has length 2, want 3 as x
}

// Rounding at random keeps the mean, and pieces that say where they begin get the bits that
// the whole would get.
func ExampleStochastic() {
	x := make([]float32, 10_000)
	for i := range x {
		x[i] = 1 + 1.0/512 // a quarter of the way from 1 to the next bf16
	}
	whole, pieces := make([]uint16, len(x)), make([]uint16, len(x))
	stream := kernels.Stream{Seed: 7, Step: 1}
	if err := kernels.Stochastic(whole, x, stream); err != nil {
		panic(err)
	}
	for first := 0; first < len(x); first += 1000 {
		stream.First = int64(first)
		if err := kernels.Stochastic(pieces[first:first+1000], x[first:first+1000], stream); err != nil {
			panic(err)
		}
	}
	up := 0
	for _, b := range whole {
		if b == 0x3f81 {
			up++
		}
	}
	fmt.Printf("%.2f up, the same in pieces: %v\n", float64(up)/float64(len(x)), slices.Equal(whole, pieces))
	// Output: 0.25 up, the same in pieces: true
}
