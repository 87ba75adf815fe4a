//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lowbit-go/lowbit/internal/lm"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// TestTrainOffloadSignals stops the command itself while its states are on disk.
func TestTrainOffloadSignals(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		folder, scratch := t.TempDir(), t.TempDir()
		at := func(name string) string { return filepath.Join(folder, name) }
		args := train(100_000, append(offloadFlags(scratch), "--adam-8bit", "--out", at("out"), "--checkpoint", at("c"))...)
		var stderr bytes.Buffer
		c := command("", args...)
		c.Stderr = &stderr
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool { return len(names(t, folder)) > 0 }, time.Minute, time.Millisecond) // it begins to train
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, c.Process.Signal(signal))
		require.Error(t, c.Wait())
		require.Empty(t, names(t, scratch))
		if signal == os.Kill {
			continue
		}
		require.Equal(t, exitInterrupted, c.ProcessState.ExitCode())
		require.Regexp(t, `\Alowbit: .* holds step \d+ of 100000: --resume continues from there\nlowbit: interrupted\n\z`, stderr.String())
		require.Equal(t, []string{"c"}, names(t, folder))
	}
}

// TestTrainOffloadFullDisk: the step that cannot write its states is taken, so that the run can be saved and gone on
// with. A limit on the size of files stands in for a full disk.
func TestTrainOffloadFullDisk(t *testing.T) {
	sampler, err := lm.NewSampler(lm.Embedded().Train, batchRows, lm.Default.Context, 0)
	require.NoError(t, err)
	run := func(edit func(c *optim.AdamWConfig)) *trainRun {
		config := optim.DefaultAdamW()
		edit(&config)
		r, err := newTrainRun(&training{sampler: sampler, steps: 9}, choice{"x", config})
		require.NoError(t, err)
		return r
	}
	memory := run(func(*optim.AdamWConfig) {})
	disk := run(func(c *optim.AdamWConfig) {
		c.OptimizerStateOffload, c.OptimizerStateOffloadDir = "disk", t.TempDir()
	})
	defer disk.opt.Close()
	saved := func(r *trainRun) []byte {
		path := filepath.Join(t.TempDir(), "c")
		require.NoError(t, r.save(path))
		return read(t, path)
	}

	var usual syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &usual))
	limited := usual
	limited.Cur = 4096
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited))
	err = disk.takeStep()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &usual))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.False(t, disk.torn)
	for range 2 {
		require.NoError(t, memory.takeStep())
		require.Equal(t, saved(memory), saved(disk))
		require.NoError(t, disk.takeStep())
	}

	require.NoError(t, disk.opt.Close())
	require.Error(t, disk.takeStep())
	require.True(t, disk.torn)
}
