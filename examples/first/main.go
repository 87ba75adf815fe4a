// First is the README's example: one step of 8-bit AdamW.
package main

import (
	"fmt"
	"log"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

func main() {
	weights, gradients := make([]float32, 1<<20), make([]float32, 1<<20)
	config, err := optim.ParseConfig([]byte(`{"adam_8bit": true, "lr": 1e-3, "weight_decay": 0.01}`))
	if err != nil {
		log.Fatal(err)
	}
	opt, err := optim.New(config, []optim.Param{{Name: "w", Shape: []int64{1024, 1024},
		Weights: kernels.Float32s(weights), Gradients: kernels.Float32s(gradients)}})
	if err != nil {
		log.Fatal(err)
	}
	gradients[0] = 1 // what a backward pass does
	if _, err := opt.Step(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(weights[0], opt.Save("state.safetensors", optim.SaveOptions{}))
}
