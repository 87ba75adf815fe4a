package optim_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// A step whose parameters and memory are the last one's is taken without looking at them.
// These tests compare it with the same steps on gradients that move every time.

func moved(f kernels.Floats) kernels.Floats {
	if f.BF16 != nil {
		return kernels.Floats{BF16: append(f.BF16[:0:0], f.BF16...)}
	}
	return kernels.Float32s(append([]float32(nil), f.F32...))
}

func TestStepsOnTheSameMemory(t *testing.T) {
	for name, text := range resumable {
		for _, narrow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " bf16 ", narrow), func(t *testing.T) {
				config := parse(t, text)
				stay, move := model(narrow), model(narrow)
				steady, err := optim.New(config, stay)
				if err != nil {
					t.Log("needs bf16 weights")
					require.False(t, narrow)
					return
				}
				other, err := optim.New(config, move)
				require.NoError(t, err)
				path := filepath.Join(t.TempDir(), "state")
				for step := range 12 {
					for i := range stay {
						new := numbers(stay[i].Weights.Len(), uint64(100*step+i), narrow)
						if step == 0 {
							stay[i].Gradients = moved(new)
						}
						copy(stay[i].Gradients.F32, new.F32)
						copy(stay[i].Gradients.BF16, new.BF16)
						move[i].Gradients = new
					}
					switch step {
					case 4: // another format of one gradient
						wide := kernels.Float32s(make([]float32, stay[1].Weights.Len()))
						copy(wide.F32, numbers(len(wide.F32), 5, false).F32)
						stay[1].Gradients, move[1].Gradients = wide, moved(wide)
					case 5: // one without
						stay[1].Gradients, move[1].Gradients = kernels.Floats{}, kernels.Floats{}
					case 6:
						stay[1].Gradients = moved(move[1].Gradients)
						require.NoError(t, steady.Accumulate())
						require.NoError(t, other.Accumulate())
					case 8: // a state in other memory
						require.NoError(t, steady.Save(path, optim.SaveOptions{}))
					case 10:
						for _, o := range []*optim.Optimizer{steady, other} {
							_, err := o.Load(path)
							require.NoError(t, err)
						}
					}
					want, err := other.Step()
					require.NoError(t, err)
					got, err := steady.Step()
					require.NoError(t, err)
					require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
					require.Equal(t, snapshot(other, move), snapshot(steady, stay), "step %d", step)
				}
			})
		}
	}
}

// TestWrongSlicesAfterSteadySteps: what is wrong is found as in the first step.
func TestWrongSlicesAfterSteadySteps(t *testing.T) {
	opt, params := newOptimizer(t, `{}`, equal(3, false, 64)...)
	for range 3 {
		_, err := opt.Step()
		require.NoError(t, err)
	}
	before := snapshot(opt, params)
	params[1].Gradients.F32 = params[1].Gradients.F32[:63]
	_, err := opt.Step()
	require.EqualError(t, err, `optim: parameter "w1": 63 gradients, want 64 as weights`)
	require.Equal(t, before, snapshot(opt, params))
}

// TestThreadsShareParameters: any number of threads gives the same bits, with parameters
// below, at and above what a thread takes at a time.
func TestThreadsShareParameters(t *testing.T) {
	for _, text := range []string{`{}`, `{"moments_dtype": "bfloat16"}`, `{"adam_8bit": true}`, `{"adam_4bit": true}`} {
		var want []any
		for _, threads := range []int{1, 2, 7} {
			previous := runtime.GOMAXPROCS(threads)
			var params []optim.Param
			for i, n := range []int{1, 64, 0, 3000, 32<<10 - 1, 32 << 10, 32<<10 + 1, 5, 100_003, 7, 7} {
				vector, matrix := equal(1, false, n)[0], equal(1, false, n, 3)[0]
				vector.Name, matrix.Name = fmt.Sprint("w", i), fmt.Sprint("m", i)
				params = append(params, vector, matrix)
			}
			opt, _ := newOptimizer(t, text, params...)
			for range 3 {
				_, err := opt.Step()
				require.NoError(t, err)
			}
			runtime.GOMAXPROCS(previous)
			if got := snapshot(opt, params); want == nil {
				want = got
			} else {
				require.Equal(t, want, got, "%s, %d threads", text, threads)
			}
		}
	}
}
