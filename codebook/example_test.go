package codebook_test

import (
	"fmt"

	"github.com/lowbit-go/lowbit/codebook"
)

// A caller's table. At a threshold, here -0.5, the lower value is taken.
func ExampleCodebook_Encode() {
	book, err := codebook.New("ternary", []float32{-1, 0, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range []float32{-0.9, -0.5, 0.2, 0.51} {
		code := book.Encode(r)
		fmt.Print(r, " is code ", code, ", ", book.Table()[code], "; ")
	}
	fmt.Println(book.Bits(), "bits")
	// Output: -0.9 is code 0, -1; -0.5 is code 0, -1; 0.2 is code 1, 0; 0.51 is code 2, 1; 4 bits
}
