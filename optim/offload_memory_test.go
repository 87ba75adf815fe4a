//go:build !race

package optim_test

// The race detector allocates, and drops at random what pools hold.

import (
	"runtime"
	"testing"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// held is how many bytes are in use.
func held() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestOffloadMemory: the state is never in memory but for three batches, of whatever size
// their parameters are, and all that New, a step, Save and Load allocate together is these.
func TestOffloadMemory(t *testing.T) {
	const (
		n        = 1 << 18
		elements = 35*n/2 + 3
		other    = 384 << 10 // parameters, pieces of files, channels
	)
	for _, test := range []struct {
		config string
		batch  int
	}{
		{`{}`, 1},
		{`{}`, 3},
		{`{"moments_dtype": "bfloat16"}`, 2},
		{`{"adam_8bit": true}`, 2},
	} {
		params := layers(n, n/2, 3, n, n, n/2, n, n, n, n, n, n, n, n/2, n, n, n, n, n, n)
		config := parse(t, onDisk(test.config, t.TempDir(), test.batch))
		var disk *optim.Optimizer
		g := numbers(n, 1, true)
		bytes := allocated(func() {
			for i := range params {
				params[i].Gradients = g.Slice(0, params[i].Weights.Len())
			}
			var err error
			disk, err = optim.New(config, params)
			require.NoError(t, err)
			for range 3 {
				_, err = disk.Step()
				require.NoError(t, err)
			}
		})
		defer disk.Close()
		state := disk.Metrics()["state_total_bytes"]
		batches := 3 * disk.LargestBatch()
		require.Greater(t, state, batches)
		require.InEpsilon(t, state*int64(3*test.batch*n)/elements, batches, 0.01)
		require.InDelta(t, batches, bytes, other, "%s, batches of %d", test.config, test.batch)

		const pieces = 2 << 20 // in which Save reads and writes
		path := ""
		require.Less(t, allocated(func() { path = saved(t, disk, optim.SaveOptions{}) }), int64(other+pieces))
		require.Less(t, allocated(func() {
			_, err := disk.Load(path)
			require.NoError(t, err)
		}), batches+other+pieces)
	}
}

// TestOffloadAllocatesNothing in a step after the first.
func TestOffloadAllocatesNothing(t *testing.T) {
	for name, text := range resumable {
		narrow := text == resumable["split master"] || text == resumable["muon split"]
		disk, params := newOptimizer(t, onDisk(text, t.TempDir(), 2), model(narrow)...)
		defer disk.Close()
		for i := range params {
			params[i].Gradients = numbers(params[i].Weights.Len(), uint64(i), narrow)
		}
		require.Zero(t, testing.AllocsPerRun(10, func() {
			_, err := disk.Step()
			require.NoError(t, err)
		}), name)
	}
}

// TestOffloadMemoryIsGivenBack once the disk has room again.
func TestOffloadMemoryIsGivenBack(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n, count = 1 << 18, 20
	sizes := make([]int, count)
	for i := range sizes {
		sizes[i] = n
	}
	params := layers(sizes...)
	disk, _ := newOptimizer(t, onDisk(`{}`, t.TempDir(), 1), params...)
	defer disk.Close()
	g := numbers(n, 1, true)
	for i := range params {
		params[i].Gradients = g
	}
	usual := held()
	scratch := disk.Scratch()
	scratch.BeforeWrite = func(int64) error { return errFull }
	_, err := disk.Step()
	require.ErrorIs(t, err, errFull)
	require.Equal(t, count, disk.KeptBatches())
	require.InDelta(t, usual+count*disk.LargestBatch(), held(), 1<<20)
	scratch.BeforeWrite = nil
	for range 2 { // a worker remembers what it last worked on
		_, err = disk.Step()
		require.NoError(t, err)
	}
	require.InDelta(t, usual, held(), 1<<20)
}
