package bf16_test

import (
	"fmt"

	"github.com/lowbit-go/lowbit/bf16"
)

// A number between two of bf16, a quarter of the way up.
func Example() {
	const x = 1 + 1.0/512
	fmt.Println(bf16.FromFloat32(x).Float32(), bf16.Truncate(x).Float32())

	seed := bf16.StreamSeed(1, 'w', "layer.weight")
	mean := 0.0
	for i := range uint64(10_000) {
		mean += float64(bf16.Stochastic(x, bf16.RandomBits(seed, 1, i)).Float32()) / 10_000
	}
	fmt.Printf("%.3f, want %.3f\n", mean, x)
	// Output:
	// 1 1
	// 1.002, want 1.002
}
