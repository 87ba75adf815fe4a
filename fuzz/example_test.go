package fuzz_test

import (
	"fmt"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/fuzz"
)

// A function that truncates where it should round to nearest is found out by the corpus.
func ExampleTrial_CheckFunc() {
	truncate := func(dst []bf16.BF16, src []float32) {
		for i, x := range src {
			dst[i] = bf16.Truncate(x)
		}
	}
	for _, trial := range fuzz.TrialsOf("bf16_round") {
		wrong := 0
		for _, data := range trial.Corpus() {
			if trial.CheckFunc(truncate, data).Mismatches > 0 {
				wrong++
			}
		}
		fmt.Println(trial.Row().Name, "is wrong:", wrong > 0)
	}
	// Output: bf16_round is wrong: true
}

// Every implementation that this processor can run is held against the reference.
func ExampleTrial_Check() {
	for _, trial := range fuzz.Trials() {
		for _, implementation := range trial.Row().Implementations {
			if !implementation.Available {
				continue
			}
			cases := 0
			for data := range fuzz.Cases(1) {
				if result := trial.Check(implementation.Name, data); result.Mismatches > 0 {
					fmt.Println(result.First)
				}
				if cases++; cases == 5 {
					break
				}
			}
		}
	}
	fmt.Println("done")
	// Output: done
}
