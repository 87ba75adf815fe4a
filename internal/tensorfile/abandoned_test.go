//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows

package tensorfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAbandonedFilesAreRemoved: those of the same output, which nobody writes.
func TestAbandonedFilesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x")
	for _, name := range []string{
		temporaryPrefix(path) + "KILLED.tmp",
		temporaryPrefix(path) + "KILLEDTOO.tmp",
		temporaryPrefix("another") + "KILLED.tmp",
		".lowbit-notes",
		"x.tmp",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("half a file"), 0o666))
	}
	first, err := Create(path, map[string]string{"writer": "first"}, nil, true)
	require.NoError(t, err)
	second, err := Create(path, map[string]string{"writer": "second"}, nil, true)
	require.NoError(t, err)
	require.Len(t, entries(t, folder), 3+2)
	require.NoError(t, first.Commit())
	third, err := Create(path, nil, nil, true)
	require.NoError(t, err)
	require.NoError(t, second.Commit())
	require.NoError(t, third.Abort())
	require.Equal(t, []string{temporaryPrefix("another") + "KILLED.tmp", ".lowbit-notes", "x", "x.tmp"}, entries(t, folder))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, "second", f.Metadata["writer"])
}

// TestTemporariesOfATemporary are swept with it.
func TestTemporariesOfATemporary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	require.Equal(t, temporaryPrefix(path), temporaryPrefix(temporaryPath(path)))
	for _, name := range []string{".lowbit-0123456789abcdef-.tmp", ".lowbit-notes-A.tmp", "a.lowbit-0123456789abcdef-A.tmp"} {
		require.NotEqual(t, ".lowbit-0123456789abcdef-", temporaryPrefix(name))
	}
}

// TestSyncedOnce: what Finish has synced Commit does not sync again, unless something was
// written since.
func TestSyncedOnce(t *testing.T) {
	for _, changed := range []bool{false, true} {
		w, err := Create(filepath.Join(t.TempDir(), "x"), nil, []Tensor{{Name: "a", DType: "U8", Shape: []int64{1}}}, false)
		require.NoError(t, err)
		require.NoError(t, w.WriteAt(0, []byte{1}, 0))
		require.NoError(t, w.Finish())
		if changed {
			require.NoError(t, w.WriteAt(0, []byte{2}, 0))
		}
		require.NoError(t, w.f.Close()) // what is closed cannot be synced
		if err := w.Finish(); changed {
			require.ErrorIs(t, err, os.ErrClosed)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, w.Abort())
	}
}

func TestTheLongestName(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
	w, err := Create(path, nil, nil, false)
	require.NoError(t, err)
	require.NoError(t, w.Commit())
}

func entries(t *testing.T, folder string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}
