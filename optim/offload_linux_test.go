package optim_test

import (
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

// directFile is a scratch file whose bytes go from memory to the disk and back past the
// page cache.
type directFile struct{ *os.File }

func openDirect(t testing.TB) directFile {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "direct"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o666)
	if err != nil {
		t.Skipf("opening a file past the page cache: %v", err)
	}
	return directFile{f}
}

// wholePages are what such a file takes: windows and batches begin and end at one.
func wholePages(p []byte) []byte { return p[:(len(p)+4095)&^4095] }

func (f directFile) ReadAt(p []byte, off int64) error {
	_, err := f.File.ReadAt(wholePages(p), off)
	return err
}

func (f directFile) WriteAt(p []byte, off int64) error {
	_, err := f.File.WriteAt(wholePages(p), off)
	return err
}

// BenchmarkOffloadDirect is BenchmarkOffload past the page cache, as it is for states that
// do not fit in there.
func BenchmarkOffloadDirect(b *testing.B) {
	benchmarkOffload(b, func(disk *optim.Optimizer) { require.NoError(b, disk.MoveTo(openDirect(b))) })
}
