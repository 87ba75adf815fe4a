package bf16_test

import (
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/stretchr/testify/require"
)

// The answers were computed with Python's hashlib from the rule in the documentation.
func TestStreamSeed(t *testing.T) {
	require.Equal(t, uint64(0x11ef88029e3945b5), bf16.StreamSeed(0, 'w', ""))
	require.Equal(t, uint64(0xac244143df8fc339), bf16.StreamSeed(42, 'w', "layers.0.weight"))
	require.Equal(t, uint64(0xec256531091b213a), bf16.StreamSeed(1<<64-1, 'm', "größe"))
}
