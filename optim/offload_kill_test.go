//go:build !js && !wasip1

package optim_test

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// TestKilledWhileOffloaded stops a process that trains with its states on disk and saves
// now and then, at random moments: the checkpoint is one of a run in memory each time,
// and no scratch file is left. LOWBIT_KILLS says how many times.
func TestKilledWhileOffloaded(t *testing.T) {
	if folder := os.Getenv(killFolder); folder != "" {
		trainForever(t, folder)
	}
	folder := t.TempDir()
	scratch := filepath.Join(folder, "scratch")
	require.NoError(t, os.Mkdir(scratch, 0o777))
	opt, params := newOptimizer(t, offloadedText, offloadedModel()...)
	signals := []os.Signal{os.Kill, syscall.SIGTERM, os.Interrupt}
	if runtime.GOOS == "windows" {
		signals = signals[:1]
	}
	saving := 0
	for i := range kills(t) {
		killAfter(t, folder, i%3, signals[i%len(signals)])
		requireNoFiles(t, scratch)
		if len(unfinished(t, folder)) > 0 {
			saving++
		}
		again, againParams := newOptimizer(t, offloadedText, offloadedModel()...)
		if _, err := again.Load(filepath.Join(folder, "checkpoint")); i == 0 && errors.Is(err, os.ErrNotExist) {
			continue
		} else {
			require.NoError(t, err)
		}
		for opt.Steps() < again.Steps() {
			offloadedStep(t, opt, params)
		}
		require.Equal(t, snapshot(opt, params), snapshot(again, againParams))
	}
	t.Logf("%d steps, %d processes were stopped while saving", opt.Steps(), saving)
	require.Greater(t, opt.Steps(), int64(kills(t)/2))
}

const offloadedText = `{"adam_8bit": true, "lr": 0.01, "weight_decay": 0.1}`

func offloadedModel() []optim.Param { return layers(20_000, 50_000, 1000, 80_000, 3000) }

// offloadedStep has gradients that depend on the step and the weights.
func offloadedStep(t *testing.T, opt *optim.Optimizer, params []optim.Param) {
	t.Helper()
	for i, p := range params {
		g := make([]float32, p.Weights.Len())
		for k, w := range p.Weights.F32 {
			g[k] = w - float32((k+int(opt.Steps()))%17)
		}
		params[i].Gradients = kernels.Float32s(g)
	}
	_, err := opt.Step()
	require.NoError(t, err)
}

// trainForever resumes from what the last process left.
func trainForever(t *testing.T, folder string) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt) // which a process in the background may have been told to ignore
	go func() {
		<-interrupts
		os.Exit(1)
	}()
	path := filepath.Join(folder, "checkpoint")
	opt, params := newOptimizer(t, onDisk(offloadedText, filepath.Join(folder, "scratch"), 1), offloadedModel()...)
	if _, err := opt.Load(path); err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	for {
		for range 10 { // which take as long as saving them
			offloadedStep(t, opt, params)
		}
		require.NoError(t, opt.Save(path, optim.SaveOptions{Weights: true}))
		os.Stdout.WriteString(".")
	}
}
