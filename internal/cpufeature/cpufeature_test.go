package cpufeature

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	set, err := Parse(" AVX2, bf16 ,")
	require.NoError(t, err)
	require.Equal(t, AVX2|BF16, set)
	require.Equal(t, "avx2,bf16", set.String())
	set, err = Parse("avx2,sse9")
	require.EqualError(t, err, `unknown CPU feature "sse9", want some of avx2, fma, f16c, avx512, vbmi, bf16, neon`)
	require.Equal(t, AVX2, set)
}

func TestDisableTurnsOffNothingElse(t *testing.T) {
	off, err := Disabled()
	require.NoError(t, err, "LOWBIT_DISABLE")
	require.Equal(t, Detected&^off, Available)
}

func TestEveryFeatureHasAName(t *testing.T) {
	all := Set(1<<len(names) - 1)
	require.Equal(t, NEON<<1-1, all)
	parsed, err := Parse(all.String())
	require.NoError(t, err)
	require.Equal(t, all, parsed)
}
