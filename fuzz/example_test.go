package fuzz_test

import (
	"fmt"

	"github.com/lowbit-go/lowbit/fuzz"
)

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
