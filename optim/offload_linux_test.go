package optim_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mount makes a file system in memory, for the test.
func mount(t *testing.T, flags uintptr, options string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", flags, options); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(folder, 0)) })
	return folder
}

// TestOffloadSmallDisk: a disk without room for the states is found by New, which leaves
// nothing on it; one with room for them alone is enough.
func TestOffloadSmallDisk(t *testing.T) {
	const n = 1 << 16
	folder := mount(t, 0, "size=1M")
	file := filepath.Join(folder, "other")
	require.NoError(t, os.WriteFile(file, make([]byte, n), 0o666))
	params := []optim.Param{
		{Name: "a", Shape: []int64{n}, Weights: f32(n), Gradients: f32(n)}, {Name: "b", Shape: []int64{n}, Weights: f32(n), Gradients: f32(n)},
	}
	config := parse(t, onDisk(`{}`, folder, 1)) // 1 MiB
	_, err := optim.New(config, params)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.EqualError(t, err, "optim: optimizer_state_offload_dir: "+folder+": scratch file: no space left on device")

	require.NoError(t, os.Remove(file))
	disk, err := optim.New(config, params)
	require.NoError(t, err)
	require.Error(t, os.WriteFile(file, make([]byte, n), 0o666)) // the disk is full
	for range 3 {
		_, err = disk.Step()
		require.NoError(t, err)
	}
	require.NoError(t, disk.Close())
	require.NoError(t, os.WriteFile(file, make([]byte, n), 0o666))
}

func TestOffloadReadOnlyDisk(t *testing.T) {
	folder := mount(t, unix.MS_RDONLY, "")
	_, err := optim.New(parse(t, onDisk(`{}`, folder, 1)), model(false))
	require.ErrorIs(t, err, unix.EROFS)
	require.EqualError(t, err, "optim: optimizer_state_offload_dir: "+folder+": scratch file: read-only file system")
}

// BenchmarkOffloadCold is BenchmarkOffload with nothing of the file in the page cache before,
// and everything on the disk after it, as it is for states that do not fit in there.
func BenchmarkOffloadCold(b *testing.B) {
	benchmarkOffload(b, func(disk *optim.Optimizer) (before, after func() error) {
		f := plainFile{openFile(b, 0)}
		require.NoError(b, disk.MoveTo(f))
		return func() error {
			return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		}, f.Sync
	})
}

// BenchmarkOffloadDirect is BenchmarkOffload past the page cache.
func BenchmarkOffloadDirect(b *testing.B) {
	benchmarkOffload(b, func(disk *optim.Optimizer) (before, after func() error) {
		f := directFile{openFile(b, unix.O_DIRECT)}
		require.NoError(b, disk.MoveTo(f))
		return f.Sync, f.Sync
	})
}

func openFile(b *testing.B, flag int) *os.File {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "states"), os.O_RDWR|os.O_CREATE|flag, 0o666)
	if err != nil {
		b.Skipf("opening a file past the page cache: %v", err)
	}
	return f
}

// plainFile and directFile are scratch files.
type plainFile struct{ *os.File }

func (f plainFile) ReadAt(p []byte, off int64) error {
	_, err := f.File.ReadAt(p, off)
	return err
}

func (f plainFile) WriteAt(p []byte, off int64) error {
	_, err := f.File.WriteAt(p, off)
	return err
}

// directFile is one whose bytes go from memory to the disk and back.
type directFile struct{ *os.File }

// wholePages are what such a file takes: windows and batches begin and end at one.
func wholePages(p []byte) []byte { return p[:(len(p)+4095)&^4095] }

func (f directFile) ReadAt(p []byte, off int64) error {
	return plainFile(f).ReadAt(wholePages(p), off)
}

func (f directFile) WriteAt(p []byte, off int64) error {
	return plainFile(f).WriteAt(wholePages(p), off)
}
