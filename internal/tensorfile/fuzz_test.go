package tensorfile

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode checks that no file makes Decode panic, and that what it accepts, written again, decodes to the same.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, content []byte) {
		first, err := Decode(bytes.NewReader(content), int64(len(content)), "fuzz")
		if err != nil {
			require.Nil(t, first)
			return
		}
		laidOut, err := layOut(first.Metadata, first.Tensors)
		require.NoError(t, err)
		require.Equal(t, first.Tensors, laidOut)
		again, err := encodeHeader(first.Metadata, laidOut)
		require.NoError(t, err)
		for _, tensor := range first.Tensors {
			data := make([]byte, tensor.Bytes)
			require.NoError(t, first.ReadAt(tensor, data, 0))
			again = append(again, data...)
		}
		second, err := Decode(bytes.NewReader(again), int64(len(again)), "fuzz")
		require.NoError(t, err)
		require.Equal(t, first.Metadata, second.Metadata)
		require.Equal(t, first.Tensors, second.Tensors)
		require.Equal(t, content[first.data:], again[second.data:])
	})
}
