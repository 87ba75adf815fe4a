package scratchfile

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var openers = map[string]func(folder string) (*os.File, bool, error){"open": open}

func names(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestFile reads what it wrote, from several goroutines, and leaves nothing.
func TestFile(t *testing.T) {
	folder := t.TempDir()
	const size, part = 1 << 20, 1 << 16
	f, err := Create(folder, size)
	require.NoError(t, err)
	if runtime.GOOS != "windows" && runtime.GOOS != "js" && runtime.GOOS != "wasip1" && runtime.GOOS != "plan9" {
		require.Empty(t, names(t, folder))
	}
	written := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, part) }
	var all sync.WaitGroup
	for i := range size / part {
		all.Go(func() {
			if f.WriteAt(written(i), int64(i)*part) != nil {
				panic("a part was not written")
			}
		})
	}
	all.Wait()
	read := make([]byte, part)
	for i := range size / part {
		require.NoError(t, f.ReadAt(read, int64(i)*part))
		require.Equal(t, written(i), read)
	}
	err = f.ReadAt(read, size-1)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, folder+": scratch file: ")

	require.NoError(t, f.Close())
	require.Empty(t, names(t, folder))
	require.ErrorIs(t, f.ReadAt(read, 0), os.ErrClosed)
	require.ErrorIs(t, f.WriteAt(read, 0), os.ErrClosed)
	require.ErrorIs(t, f.Close(), os.ErrClosed)
}

func TestEmptyFile(t *testing.T) {
	f, err := Create(t.TempDir(), 0)
	require.NoError(t, err)
	require.NoError(t, f.ReadAt(nil, 0))
	require.NoError(t, f.WriteAt(nil, 0))
	require.NoError(t, f.Close())
}

// TestErrors name the folder and leave nothing in it.
func TestErrors(t *testing.T) {
	folder := t.TempDir()
	_, err := Create(filepath.Join(folder, "absent"), 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(folder, "absent")+": scratch file: ")
	var e *Error
	require.ErrorAs(t, err, &e)
	if runtime.GOOS == "linux" {
		_, err = Create(folder, 1<<62) // more than any disk has
		require.ErrorAs(t, err, &e)
	}
	require.Empty(t, names(t, folder))
}

// TestOpeners: whichever way a file is opened, it is gone with its handle.
func TestOpeners(t *testing.T) {
	for name, open := range openers {
		folder := t.TempDir()
		f, named, err := open(folder)
		require.NoError(t, err, name)
		require.Equal(t, named, len(names(t, folder)) == 1 && runtime.GOOS != "windows", name)
		_, err = f.WriteAt([]byte("x"), 100)
		require.NoError(t, err, name)
		require.NoError(t, (&File{f: f, folder: folder, named: named}).Close(), name)
		require.Empty(t, names(t, folder), name)
	}
}
