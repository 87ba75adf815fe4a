package tensorfile_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name            string
		existing        bool
		overwrite, undo bool
		swept           int    // so often another process removes the temporary file
		want            string // the text under the name, none if there is no file
		err             error
	}{
		{"to a new name", false, false, false, 0, "new", nil},
		{"to a new name and back", false, false, true, 0, "", nil},
		{"to a new name that may exist", false, true, true, 0, "", nil},
		{"over a file", true, true, false, 0, "new", nil},
		{"over a file and back", true, true, true, 0, "old", nil},
		{"over a file that must stay", true, false, false, 0, "old", fs.ErrExist},
		{"to a new name, swept", false, false, false, 2, "new", nil},
		{"to a new name that may exist, swept", false, true, false, 1, "new", nil},
		{"over a file, swept", true, true, false, 2, "new", nil},
		{"over a file and back, swept", true, true, true, 1, "old", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "x")
			if c.existing {
				require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))
			}
			written := 0
			moved, err := tensorfile.Place(path, c.overwrite, func(temporary string) error {
				require.Equal(t, folder, filepath.Dir(temporary))
				require.NoError(t, os.WriteFile(temporary, []byte("new"), 0o666))
				if written++; written <= c.swept {
					require.NoError(t, os.Remove(temporary))
				}
				return nil
			})
			require.Equal(t, c.swept+1, written)
			require.ErrorIs(t, err, c.err)
			switch {
			case err != nil:
				require.ErrorContains(t, err, path)
				require.NotContains(t, err.Error(), ".tmp")
			case c.undo:
				other, err := tensorfile.Create(path, nil, nil, true) // which sweeps
				require.NoError(t, err)
				require.NoError(t, other.Abort())
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

// TestPlaceNamesTheOutput in what the file's writer says of the name that it was given.
func TestPlaceNamesTheOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, overwrite := range []bool{false, true} {
		_, err := tensorfile.Place(path, overwrite, func(temporary string) error {
			return fmt.Errorf("%s: tensor: %w", temporary, io.ErrShortWrite)
		})
		require.EqualError(t, err, path+": tensor: short write")
		require.ErrorIs(t, err, io.ErrShortWrite)
	}
	_, err := tensorfile.Place(filepath.Join(path, "in", "no", "folder"), true, func(temporary string) error {
		return os.WriteFile(temporary, nil, 0o666)
	})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), ".tmp")
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
