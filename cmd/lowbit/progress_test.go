package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		visible, shown bool
		since          time.Duration
	}{
		"long":         {true, true, time.Minute},
		"short":        {true, false, 0},
		"not terminal": {false, false, time.Minute},
	} {
		var w bytes.Buffer
		p := newProgress(&w, c.visible, 100)
		p.start = p.start.Add(-c.since)
		p.describe("work")
		p.add(30)
		require.Equal(t, c.shown, bytes.Contains(w.Bytes(), []byte("work ")), "%s: %q", name, w.String())
		p.end()
	}
	require.False(t, isTerminal(&bytes.Buffer{}))
	file, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isTerminal(file))
}
