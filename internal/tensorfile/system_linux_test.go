package tensorfile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

func TestPipesAndDevices(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	require.NoError(t, os.Chmod(pipe, 0o644))
	link := filepath.Join(folder, "link")
	require.NoError(t, os.Symlink(pipe, link))
	for _, path := range []string{pipe, link} {
		_, err := tensorfile.Open(path)
		require.EqualError(t, err, path+": not a regular file (prw-r--r--), want a safetensors file")
	}
	_, err := tensorfile.Open("/dev/zero")
	require.ErrorContains(t, err, "/dev/zero: not a regular file (Dc")
	for _, path := range []string{pipe, link} {
		_, err := tensorfile.Create(path, nil, nil, true)
		require.EqualError(t, err, pipe+": not a regular file (prw-r--r--), want a file to replace or a new name")
	}
	require.Equal(t, []string{"link", "pipe"}, names(t, folder))
}

func TestOutputThroughALink(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	link, target := filepath.Join(folder, "link"), filepath.Join(other, "target")
	require.NoError(t, os.WriteFile(target, nil, 0o666))
	require.NoError(t, os.Symlink(target, link))
	w, err := tensorfile.Create(link, nil, nil, true)
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	require.Equal(t, []string{"link"}, names(t, folder))
	f, err := tensorfile.Open(target)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	require.NoError(t, os.Remove(target))
	_, err = tensorfile.Create(link, nil, nil, true)
	require.ErrorContains(t, err, "want a file to replace or a new name")
	require.Empty(t, names(t, other))
}

func TestSparseFileOf8GiB(t *testing.T) {
	const elements = 2 << 30
	path := filepath.Join(t.TempDir(), "x")
	w, err := tensorfile.Create(path, nil, []tensorfile.Tensor{{Name: "a", DType: "F32", Shape: []int64{2, elements / 2}}}, false)
	require.NoError(t, err)
	defer w.Abort()
	require.NoError(t, w.WriteFloat32(0, []float32{7, 8, 9}, elements-3))
	require.ErrorContains(t, w.Commit(), `tensor "a": bytes 0 to 8589934580 were never written`)

	require.NoError(t, os.WriteFile(path, file(`{`+x("F32", "[2147483648]", "[0,8589934592]")+`}`, 0), 0o666))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()+4*elements))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := tensorfile.Open(path)
	require.NoError(t, err)
	defer f.Close()
	last := []float32{1, 2, 3}
	require.NoError(t, f.ReadFloat32(f.Tensors[0], last, elements-3))
	runtime.ReadMemStats(&after)
	require.Equal(t, []float32{0, 0, 0}, last)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// A limit on the size of files stands in for a full disk.
func TestFullDiskLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	small := limit
	small.Cur = 1 << 20
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)) }()

	path := filepath.Join(folder, "x")
	w, err := tensorfile.Create(path, nil, []tensorfile.Tensor{{Name: "a", DType: "F32", Shape: []int64{1 << 19}}}, false)
	require.NoError(t, err)
	err = w.WriteFloat32(0, make([]float32, 1<<19), 0)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.EqualError(t, err, path+`: tensor "a": file too large`)
	require.ErrorContains(t, w.Commit(), "were never written")
	require.Empty(t, names(t, folder))

	_, err = tensorfile.Create(path, map[string]string{"a": string(make([]byte, 1<<20))}, nil, false)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.EqualError(t, err, path+": file too large")
	require.Empty(t, names(t, folder))
}

// TestPlaceOverALockedFile, which is its user's to lock, does not wait for the lock.
func TestPlaceOverALockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	moved, err := tensorfile.Place(path, true, func(temporary string) error { return os.WriteFile(temporary, []byte("new"), 0o666) })
	require.NoError(t, err)
	moved.Keep()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(content))
	require.Equal(t, []string{"state"}, names(t, filepath.Dir(path)))
}
