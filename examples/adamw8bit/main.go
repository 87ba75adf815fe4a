// Adamw8bit fits a linear model with 8-bit AdamW and shows what the optimizer's state
// takes.
package main

import (
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

func main() {
	const features, examples, steps = 1024, 64, 300
	rng := rand.New(rand.NewPCG(1, 1))
	target := random(rng, features)
	weights, gradient := make([]float32, features), make([]float32, features)

	config, err := optim.ParseConfig([]byte(`{
		"adam_8bit": true,
		"lr": {"type": "cosine", "peak": 0.05, "total": 300}
	}`))
	if err != nil {
		log.Fatal(err)
	}
	opt, err := optim.New(config, []optim.Param{{
		Name: "weights", Shape: []int64{features},
		Weights: kernels.Float32s(weights), Gradients: kernels.Float32s(gradient),
	}})
	if err != nil {
		log.Fatal(err)
	}
	for step := range steps {
		clear(gradient)
		loss := 0.0
		for range examples {
			x := random(rng, features)
			miss := dot(x, weights) - dot(x, target)
			loss += float64(miss * miss)
			for i := range gradient {
				gradient[i] += 2 * miss * x[i] / examples
			}
		}
		if _, err := opt.Step(); err != nil {
			log.Fatal(err)
		}
		if step%60 == 0 || step == steps-1 {
			fmt.Printf("step %3d  loss %8.3f\n", step, loss/examples)
		}
	}
	fmt.Printf("state: %d bytes for %d parameters\n", opt.Metrics()["adam8_total_bytes"], features)
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func dot(x, y []float32) float32 {
	sum := float32(0)
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}
