package optim_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// onDisk adds offload to a configuration.
func onDisk(text, folder string, batch int) string {
	keys := fmt.Sprintf(`{"optimizer_state_offload": "disk", "optimizer_state_offload_dir": %q, "optimizer_state_offload_batch_size": %d, `, folder, batch)
	return strings.Replace(strings.Replace(text, `{`, keys, 1), `, }`, `}`, 1)
}

// layers are parameters of some sizes, without gradients.
func layers(sizes ...int) (params []optim.Param) {
	for i, n := range sizes {
		params = append(params, optim.Param{Name: fmt.Sprint(i), Shape: []int64{int64(n)}, Weights: f32(n)})
	}
	return params
}

// requireNoFiles holds while an optimizer lives where its scratch file has no name.
func requireNoFiles(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// nameless systems have no name for a scratch file even while it is open.
var nameless = runtime.GOOS != "windows" && runtime.GOOS != "js" && runtime.GOOS != "wasip1" && runtime.GOOS != "plan9"

// requireSame compares two optimizers in everything that they show.
func requireSame(t *testing.T, a, b *optim.Optimizer, aParams, bParams []optim.Param) {
	t.Helper()
	require.Equal(t, a.Metrics(), b.Metrics())
	require.Equal(t, snapshot(a, aParams), snapshot(b, bParams))
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	bytes, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes
}

// trainUnevenly has steps in which some parameters have no gradients, and one of
// accumulated gradients.
func trainUnevenly(t *testing.T, opt *optim.Optimizer, params []optim.Param, from, to int, narrow bool) (results []optim.StepResult) {
	t.Helper()
	for step := from; step < to; step++ {
		for i := range params {
			params[i].Gradients = numbers(params[i].Weights.Len(), uint64(1000+100*step+i), narrow)
			if step%3 == 1 && i%2 == 0 {
				params[i].Gradients = kernels.Floats{}
			}
		}
		if step%3 == 2 {
			require.NoError(t, opt.Accumulate())
			require.NoError(t, opt.Accumulate())
		}
		r, err := opt.Step()
		require.NoError(t, err)
		results = append(results, r)
	}
	return results
}

// TestOffloadIsExact trains in memory and on disk side by side, and goes on from each
// other's checkpoints.
func TestOffloadIsExact(t *testing.T) {
	for name, text := range resumable {
		for _, narrow := range []bool{false, true} {
			for _, batch := range []int{1, 2, math.MaxInt} {
				t.Run(fmt.Sprint(name, " bf16 ", narrow, " batch ", batch), func(t *testing.T) {
					folder := t.TempDir()
					params := model(narrow)
					opt, err := optim.New(parse(t, text), params)
					if err != nil {
						require.ErrorContains(t, err, "master: got split")
						return
					}
					make := func() (*optim.Optimizer, []optim.Param) {
						return newOptimizer(t, onDisk(text, folder, batch), model(narrow)...)
					}
					disk, diskParams := make()
					defer disk.Close()
					requireSame(t, opt, disk, params, diskParams)
					want := trainUnevenly(t, opt, params, 0, 4, narrow)
					got := trainUnevenly(t, disk, diskParams, 0, 4, narrow)
					require.Equal(t, fmt.Sprint(want), fmt.Sprint(got)) // a norm may be NaN
					requireSame(t, opt, disk, params, diskParams)

					path, diskPath := saved(t, opt, optim.SaveOptions{Weights: true}), saved(t, disk, optim.SaveOptions{Weights: true})
					require.Equal(t, content(t, path), content(t, diskPath))
					resumed, resumedParams := make()
					defer resumed.Close()
					_, err = resumed.Load(path)
					require.NoError(t, err)
					again, againParams := newOptimizer(t, text, model(narrow)...)
					_, err = again.Load(diskPath)
					require.NoError(t, err)
					trainUnevenly(t, opt, params, 4, 6, narrow)
					trainUnevenly(t, resumed, resumedParams, 4, 6, narrow)
					trainUnevenly(t, again, againParams, 4, 6, narrow)
					requireSame(t, opt, resumed, params, resumedParams)
					requireSame(t, opt, again, params, againParams)

					_, err = disk.Load(path) // while it holds another state
					require.NoError(t, err)
					trainUnevenly(t, disk, diskParams, 4, 6, narrow)
					requireSame(t, opt, disk, params, diskParams)
					if nameless {
						requireNoFiles(t, folder)
					}
					require.NoError(t, disk.Close())
					require.NoError(t, resumed.Close())
					requireNoFiles(t, folder)
				})
			}
		}
	}
}

// TestOffloadLoadsInAnyOrder of the checkpoint's parameters.
func TestOffloadLoadsInAnyOrder(t *testing.T) {
	const text = `{"adam_8bit": true, "quant_block_size": 4}`
	turned := func(p []optim.Param) []optim.Param { p[0], p[1] = p[1], p[0]; return p }
	opt, params := small(t, text, 3, turned)
	disk, diskParams := small(t, onDisk(text, t.TempDir(), 1), 1, nil)
	defer disk.Close()
	_, err := disk.Load(saved(t, opt, optim.SaveOptions{Weights: true}))
	require.NoError(t, err)
	require.Equal(t, snapshot(opt, []optim.Param{params[1], params[0]}), snapshot(disk, diskParams))
}

// TestOffloadFailedLoad changes nothing and leaves nothing.
func TestOffloadFailedLoad(t *testing.T) {
	folder := t.TempDir()
	disk, params := small(t, onDisk(`{"adam_8bit": true}`, folder, 1), 2, nil)
	path := saved(t, disk, optim.SaveOptions{Weights: true})
	altered := content(t, path)
	altered[len(altered)-40] ^= 1
	before := snapshot(disk, params)
	_, err := disk.LoadBytes(altered)
	require.ErrorContains(t, err, "the checksum does not match")
	require.Equal(t, before, snapshot(disk, params))
	require.NoError(t, disk.Close())
	requireNoFiles(t, folder)
}

var errFull = errors.New("no space left on device")

// TestOffloadFullDisk: whichever writes fail, and for however many steps, the optimizer
// goes on as one in memory does.
func TestOffloadFullDisk(t *testing.T) {
	const text, steps = `{"adam_8bit": true, "quant_block_size": 16, "weight_decay": 0.1}`, 5
	for name, fails := range map[string]func(step, write int) bool{
		"first write":  func(step, write int) bool { return step == 1 && write == 0 },
		"middle write": func(step, write int) bool { return step == 1 && write == 2 },
		"last write":   func(step, write int) bool { return step == 2 && write == 5 },
		"a whole step": func(step, write int) bool { return step == 1 },
		"most steps":   func(step, write int) bool { return step < 4 },
		"every other":  func(step, write int) bool { return (step+write)%2 == 0 },
		"for good":     func(step, write int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			opt, params := newOptimizer(t, text, model(false)...)
			disk, diskParams := newOptimizer(t, onDisk(text, folder, 1), model(false)...)
			defer disk.Close()
			step, write := 0, 0
			disk.Scratch().BeforeWrite = func(int64) error {
				write++
				if fails(step, write-1) {
					return errFull
				}
				return nil
			}
			for ; step < steps; step++ {
				write = 0
				for i := range params {
					params[i].Gradients = numbers(params[i].Weights.Len(), uint64(100*step+i), false)
					diskParams[i].Gradients = params[i].Gradients
				}
				want, err := opt.Step()
				require.NoError(t, err)
				got, err := disk.Step()
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got)) // a norm may be NaN
				failed := []string{}
				for i, p := range params {
					if fails(step, i) {
						failed = append(failed, p.Name)
					}
				}
				require.Equal(t, len(params), write)
				require.Equal(t, len(failed), disk.KeptBatches())
				if len(failed) == 0 {
					require.NoError(t, err)
				} else {
					var trouble *optim.OffloadError
					require.ErrorAs(t, err, &trouble)
					require.ErrorIs(t, err, errFull)
					require.Equal(t, failed, trouble.Kept)
					require.Empty(t, trouble.Untouched)
				}
				requireSame(t, opt, disk, params, diskParams)
			}
			path := saved(t, disk, optim.SaveOptions{Weights: true})
			require.Equal(t, content(t, saved(t, opt, optim.SaveOptions{Weights: true})), content(t, path))
			if name == "for good" {
				_, err := disk.Load(path) // into another file
				require.NoError(t, err)
				require.Zero(t, disk.KeptBatches())
				requireSame(t, opt, disk, params, diskParams)
			}
		})
	}
}

// TestOffloadUnreadable: parameters whose states cannot be read miss a step, as if they had
// no gradients.
func TestOffloadUnreadable(t *testing.T) {
	const text = `{"type": "muon", "lr": 0.1}`
	errBroken := errors.New("input/output error")
	for _, batch := range []int{1, 3} {
		opt, params := newOptimizer(t, text, model(false)...)
		disk, diskParams := newOptimizer(t, onDisk(text, t.TempDir(), batch), model(false)...)
		defer disk.Close()
		broken := disk.BatchAt("conv")
		untouched := map[int][]string{1: {"conv"}, 3: {"conv", "gain", "scalar"}}[batch]
		scratch := disk.Scratch()
		for step := range 4 {
			scratch.BeforeRead = func(off int64) error {
				if step%2 == 1 && off == broken {
					return errBroken
				}
				return nil
			}
			for i := range params {
				params[i].Gradients = numbers(params[i].Weights.Len(), uint64(100*step+i), false)
				diskParams[i].Gradients = params[i].Gradients
				for _, name := range untouched {
					if step%2 == 1 && params[i].Name == name {
						params[i].Gradients = kernels.Floats{}
					}
				}
			}
			want, err := opt.Step()
			require.NoError(t, err)
			got, err := disk.Step()
			require.Equal(t, fmt.Sprint(want), fmt.Sprint(got)) // a norm may be NaN
			if step%2 == 0 {
				require.NoError(t, err)
				continue
			}
			var trouble *optim.OffloadError
			require.ErrorAs(t, err, &trouble)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, untouched, trouble.Untouched)
			require.Empty(t, trouble.Kept)

			require.Nil(t, disk.State("conv"))
			require.NotNil(t, disk.State("w"))
			path := filepath.Join(t.TempDir(), "checkpoint")
			require.ErrorIs(t, disk.Save(path, optim.SaveOptions{}), errBroken)
			require.NoFileExists(t, path)
			scratch.BeforeRead = nil
			requireSame(t, opt, disk, params, diskParams)
		}
	}
}

// TestOffloadFailedUpdate: an update that fails ends the step, and what was updated before
// it stays so, as in memory.
func TestOffloadFailedUpdate(t *testing.T) {
	const text = `{"moments_dtype": "bfloat16", "moments_rounding": "stochastic"}`
	errUpdate := errors.New("an error")
	for _, p := range model(true) {
		opt, params := newOptimizer(t, text, model(true)...)
		disk, diskParams := newOptimizer(t, onDisk(text, t.TempDir(), 2), model(true)...)
		defer disk.Close()
		scratch := disk.Scratch()
		for _, writable := range []bool{true, false} {
			scratch.BeforeWrite = func(int64) error {
				if writable {
					return nil
				}
				return errFull
			}
			for i := range params {
				params[i].Gradients = numbers(params[i].Weights.Len(), uint64(i), true)
				diskParams[i].Gradients = params[i].Gradients
			}
			end, endDisk := opt.FailUpdate(p.Name, errUpdate), disk.FailUpdate(p.Name, errUpdate)
			_, want := opt.Step()
			_, got := disk.Step()
			end()
			endDisk()
			require.ErrorIs(t, got, errUpdate)
			require.Contains(t, got.Error(), want.Error())
			require.Equal(t, !writable, errors.Is(got, errFull))
			requireSame(t, opt, disk, params, diskParams)
		}
	}
}

// TestOffloadClosed: after Close a step is refused and changes nothing.
func TestOffloadClosed(t *testing.T) {
	folder := t.TempDir()
	disk, params := small(t, onDisk(`{}`, folder, 1), 1, nil)
	weights := widened(params[0].Weights)
	require.NoError(t, disk.Close())
	require.NoError(t, disk.Close())
	_, err := disk.Step()
	require.EqualError(t, err, "optim: the optimizer is closed")
	path := filepath.Join(folder, "checkpoint")
	err = disk.Save(path, optim.SaveOptions{})
	require.EqualError(t, err, "optim: the optimizer is closed")
	require.ErrorIs(t, err, os.ErrClosed)
	require.Nil(t, disk.State("w"))
	require.Equal(t, weights, widened(params[0].Weights))
	require.Equal(t, int64(1), disk.Steps())
	requireNoFiles(t, folder)

	opt, _ := small(t, `{}`, 1, nil)
	require.NoError(t, opt.Close())
	_, err = opt.Step()
	require.NoError(t, err)
}

// TestOffloadFolder that is not there, is a file, or takes no files.
func TestOffloadFolder(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	sealed := filepath.Join(folder, "sealed")
	require.NoError(t, os.Mkdir(sealed, 0o555))
	for path, is := range map[string]error{filepath.Join(folder, "absent"): fs.ErrNotExist, file: nil, sealed: fs.ErrPermission} {
		if path == sealed && (os.Getuid() == 0 || runtime.GOOS == "windows") {
			continue // root and Windows write there; TestOffloadReadOnlyDisk is about one that root cannot write to
		}
		_, err := optim.New(parse(t, onDisk(`{}`, path, 1)), model(false))
		require.ErrorContains(t, err, "optim: optimizer_state_offload_dir: "+path+": scratch file: ")
		if is != nil {
			require.ErrorIs(t, err, is)
		}
	}
}

// TestOffloadLeavesNoGoroutines between steps.
func TestOffloadLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	disk, _ := small(t, onDisk(`{}`, t.TempDir(), 1), 3, nil)
	defer disk.Close()
	for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() { // one that has ended may still be counted
		require.Less(t, time.Since(start), time.Minute)
	}
}
