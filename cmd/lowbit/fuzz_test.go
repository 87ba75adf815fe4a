package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/stretchr/testify/require"
)

// FuzzArchive reads any bytes as a quantised file: it is one, or bad input.
func FuzzArchive(f *testing.F) {
	for _, flags := range [][]string{{"nf4"}, {"linear8"}, {"fp4", "--layout", "bitsandbytes"}, {"nf4", "--layout", "bitsandbytes", "--double-quant"}} {
		folder := f.TempDir()
		in, out := filepath.Join(folder, "in"), filepath.Join(folder, "out")
		header := `{"w":{"dtype":"F32","shape":[3,7],"data_offsets":[0,84]},"i":{"dtype":"I64","shape":[],"data_offsets":[84,92]}}`
		require.NoError(f, os.WriteFile(in, headed(header, 92), 0o666))
		require.Zero(f, lowbit(append([]string{"quantize", in, out, "--format"}, flags...)...).code)
		data, err := os.ReadFile(out)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := tensorfile.Decode(bytes.NewReader(data), int64(len(data)), "in")
		if err != nil {
			return
		}
		a, err := readArchive(file)
		if err != nil {
			require.Equal(t, exitBadInput, exitCode(err), "%v", err)
			return
		}
		for _, q := range a.quantised {
			var s scratch
			if err := q.read(a, make([]float32, q.elements()), 0, &s, 1); err != nil {
				require.Equal(t, exitBadInput, exitCode(err), "%v", err)
			}
		}
	})
}
