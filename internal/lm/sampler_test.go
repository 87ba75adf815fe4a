package lm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSamplerSeeks(t *testing.T) {
	text := Embedded().Train
	sampler := func(seed uint64) *Sampler {
		s, err := NewSampler(text, 3, 16, seed)
		require.NoError(t, err)
		return s
	}
	forward := sampler(1)
	batches := []Batch{}
	for k := range uint64(20) {
		batches = append(batches, forward.Batch(k))
	}
	for _, k := range []uint64{19, 3, 3, 0, 11} {
		require.Equal(t, batches[k], sampler(1).Batch(k))
	}
	require.NotEqual(t, batches[0], batches[1])
	require.NotEqual(t, batches[0], sampler(2).Batch(0))
	require.NotEqual(t, batches[0], forward.Batch(1<<32), "the high half of the number counts")
	require.NotEqual(t, batches[0], sampler(1<<32+1).Batch(0), "the high half of the seed counts")
}

// Every start is drawn, the first and the last included.
func TestSamplerReachesAllOfTheText(t *testing.T) {
	text := []byte("abcdefgh")
	s, err := NewSampler(text, 4, 5, 1)
	require.NoError(t, err)
	seen := map[string]int{}
	for k := range uint64(300) {
		for _, row := range s.Batch(k) {
			seen[string(row)]++
		}
	}
	require.Len(t, seen, 3)
	for _, row := range []string{"abcdef", "bcdefg", "cdefgh"} {
		require.InDelta(t, 400, seen[row], 80, row)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		rows int
		want []string
	}{
		{1, []string{"abc"}},
		{2, []string{"abc", "fgh"}},
		{3, []string{"abc", "cde", "fgh"}},
	} {
		batch, err := Spread([]byte("abcdefgh"), c.rows, 2)
		require.NoError(t, err)
		got := []string{}
		for _, row := range batch {
			got = append(got, string(row))
		}
		require.Equal(t, c.want, got)
	}
}

func TestBatchesRefuse(t *testing.T) {
	for _, c := range []struct {
		text          string
		rows, context int
		want          string
	}{
		{"", 1, 4, "lm: the text has 0 bytes, want at least 5 for one row"},
		{"abcd", 1, 4, "lm: the text has 4 bytes, want at least 5 for one row"},
		{"abcd", 0, 2, "lm: 0 rows of 2 bytes, want at least one of each"},
		{"abcd", 1, 0, "lm: 1 rows of 0 bytes, want at least one of each"},
	} {
		_, err := NewSampler([]byte(c.text), c.rows, c.context, 1)
		require.EqualError(t, err, c.want)
		_, err = Spread([]byte(c.text), c.rows, c.context)
		require.EqualError(t, err, c.want)
	}
}
