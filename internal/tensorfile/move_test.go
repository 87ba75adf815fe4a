package tensorfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

func TestMove(t *testing.T) {
	for _, c := range []struct {
		name            string
		existing        bool
		overwrite, undo bool
		want            string // the text under the name, none if there is no file
		err             error
	}{
		{"to a new name", false, false, false, "new", nil},
		{"to a new name and back", false, false, true, "", nil},
		{"to a new name that may exist", false, true, true, "", nil},
		{"over a file", true, true, false, "new", nil},
		{"over a file and back", true, true, true, "old", nil},
		{"over a file that must stay", true, false, false, "old", fs.ErrExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "x")
			if c.existing {
				require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))
			}
			from := tensorfile.Temporary(path)
			require.NoError(t, os.WriteFile(from, []byte("new"), 0o666))
			moved, err := tensorfile.Move(from, path, c.overwrite)
			require.ErrorIs(t, err, c.err)
			switch {
			case err != nil:
				require.NoError(t, os.Remove(from))
			case c.undo:
				require.NoError(t, moved.Undo())
			default:
				moved.Keep()
			}
			entries, err := os.ReadDir(folder)
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, entries)
				return
			}
			require.Len(t, entries, 1, "something else was left behind")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, c.want, string(text))
		})
	}
}

// Of several writers of a new file one succeeds, and the others say that it exists.
func TestOneWriterOfANewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	writers := make([]*tensorfile.Writer, 8)
	for i := range writers {
		w, err := tensorfile.Create(path, nil, nil, false)
		require.NoError(t, err)
		writers[i] = w
	}
	var done sync.WaitGroup
	var succeeded atomic.Int64
	for _, w := range writers {
		done.Go(func() {
			if err := w.Commit(); err == nil {
				succeeded.Add(1)
			} else if !os.IsExist(err) {
				t.Error(err)
			}
		})
	}
	done.Wait()
	require.EqualValues(t, 1, succeeded.Load())
}
