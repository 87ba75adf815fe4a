//go:build !js && !wasip1

package optim_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

const killFolder = "LOWBIT_KILL_FOLDER"

// TestKilledWhileSaving kills a process that saves in a loop, at random moments: the file
// is whole each time, and what was left unfinished is gone after the next save.
// LOWBIT_KILLS says how many times.
func TestKilledWhileSaving(t *testing.T) {
	if folder := os.Getenv(killFolder); folder != "" {
		saveForever(t, folder)
	}
	kills := kills(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "checkpoint")
	step, leftovers := int64(0), 0
	for i := range kills {
		killAfter(t, folder, 1+i%3, os.Kill) // so often it has saved

		opt, params := killed(t)
		metadata, err := opt.Load(path)
		require.NoError(t, err)
		require.Equal(t, strconv.FormatInt(opt.Steps(), 10), metadata["steps"])
		require.Greater(t, opt.Steps(), step)
		step = opt.Steps()
		for _, x := range params[0].Weights.F32 {
			require.Equal(t, float32(step), x)
		}
		leftovers += len(unfinished(t, folder))
	}
	require.Positive(t, leftovers, "no process was killed while it was saving")
	opt, _ := killed(t)
	require.NoError(t, opt.Save(path, optim.SaveOptions{Weights: true}))
	require.Empty(t, unfinished(t, folder))
}

func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LOWBIT_KILLS")
	if text == "" {
		return 20
	}
	kills, err := strconv.Atoi(text)
	require.NoError(t, err)
	return kills
}

// killAfter runs the calling test in a process of its own until that has printed so many
// bytes, and a little longer.
func killAfter(t *testing.T, folder string, bytes int, signal os.Signal) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), killFolder+"="+folder)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	err = child.Start()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated process cannot start another")
	}
	require.NoError(t, err)
	_, err = io.ReadFull(out, make([]byte, bytes))
	require.NoError(t, err)
	time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
	require.NoError(t, child.Process.Signal(signal))
	require.Error(t, child.Wait())
}

// killed makes the optimizer that the processes save: its weights are all the step's number.
func killed(t *testing.T) (*optim.Optimizer, []optim.Param) {
	t.Helper()
	const n = 100_000
	opt, params := newOptimizer(t, `{"adam_8bit": true}`, optim.Param{Name: "w", Shape: []int64{n}, Weights: f32(n)})
	return opt, params
}

// saveForever resumes from what the last process left.
func saveForever(t *testing.T, folder string) {
	path := filepath.Join(folder, "checkpoint")
	opt, params := killed(t)
	if _, err := opt.Load(path); err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	for {
		_, err := opt.Step() // without gradients: only the counter moves
		require.NoError(t, err)
		for i := range params[0].Weights.F32 {
			params[0].Weights.F32[i] = float32(opt.Steps())
		}
		require.NoError(t, opt.Save(path, optim.SaveOptions{Weights: true, Metadata: map[string]string{"steps": strconv.FormatInt(opt.Steps(), 10)}}))
		os.Stdout.WriteString(".")
	}
}

func unfinished(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".tmp") {
			names = append(names, entry.Name())
		}
	}
	return names
}
