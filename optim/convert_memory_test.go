//go:build !race

package optim_test

import (
	"testing"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// TestConvertInLittleMemory: pieces of a parameter, whatever its size.
func TestConvertInLittleMemory(t *testing.T) {
	const rows, cols = 2048, 4096
	opt, _ := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{rows, cols}, Weights: b16(rows * cols)})
	in := saved(t, opt, optim.SaveOptions{Weights: true})
	for _, config := range []string{`{"adam_8bit": true}`, `{"adam_4bit": true}`, `{"moments_dtype": "bfloat16"}`} {
		var out string
		used := allocated(func() { out, _ = convert(t, in, "", parse(t, config)) })
		require.Less(t, used, int64(8<<20), config)
		used = allocated(func() { convert(t, out, "", parse(t, `{}`)) })
		require.Less(t, used, int64(8<<20), config)
	}
}
