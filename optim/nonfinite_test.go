package optim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// unit is what is left alone as a whole.
type unit int

const (
	element unit = iota
	block        // of 32
	whole
)

var storages = []struct {
	name, options string
	shape         []int64
	unit          unit
	skips         bool // by default
}{
	{"float32", ``, []int64{100}, element, false},
	{"optax", `, "variant": "optax"`, []int64{100}, element, false},
	{"bfloat16", `, "moments_dtype": "bfloat16"`, []int64{100}, element, false},
	{"8-bit", `, "adam_8bit": true, "quant_block_size": 32`, []int64{100}, block, true},
	{"4-bit", `, "adam_4bit": true, "quant_block_size": 32`, []int64{100}, block, true},
	{"factored", `, "adam_4bit": true, "quant_block_size": 32`, []int64{10, 10}, whole, true},
}

// TestGradientsThatAreNotFinite: what is left alone is decided before anything changes, and
// is counted; everything else is updated as if alone.
func TestGradientsThatAreNotFinite(t *testing.T) {
	const n, at = 100, 70
	for _, storage := range storages {
		for _, policy := range []string{"", "skip", "propagate"} {
			for _, narrow := range []bool{false, true} {
				for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					t.Run(fmt.Sprint(storage.name, policy, narrow, bad), func(t *testing.T) {
						text := `{"lr": 0.01` + storage.options + `}`
						if policy != "" {
							text = `{"nonfinite": "` + policy + `", ` + text[1:]
						}
						opt, params := newOptimizer(t, text, optim.Param{Name: "w", Shape: storage.shape, Weights: numbers(n, 1, narrow)})
						twin, twinParams := newOptimizer(t, text, optim.Param{Name: "w", Shape: storage.shape, Weights: numbers(n, 1, narrow)})
						for step := range 2 {
							params[0].Gradients, twinParams[0].Gradients = numbers(n, uint64(step), narrow), numbers(n, uint64(step), narrow)
							if step == 1 {
								break
							}
							for _, o := range []*optim.Optimizer{opt, twin} {
								_, err := o.Step()
								require.NoError(t, err)
							}
						}
						before, state := widened(params[0].Weights), momentsOf(opt, "w", n)
						set(params[0].Gradients, at, float32(bad))
						r, err := opt.Step()
						require.NoError(t, err)
						_, err = twin.Step()
						require.NoError(t, err)

						lo, hi := at, at+1
						switch storage.unit {
						case block:
							lo, hi = at/32*32, at/32*32+32
						case whole:
							lo, hi = 0, n
						}
						after, now := widened(params[0].Weights), momentsOf(opt, "w", n)
						want := kernels.Counts{NonFinite: 1}
						if storage.unit == whole {
							want.NonFinite = 19 // a row and a column
						}
						if policy == "skip" || policy == "" && storage.skips {
							want.SkippedElements = int64(hi - lo)
							if storage.unit == block {
								want.SkippedBlocks = 1
							}
							require.Equal(t, storage.unit == whole, r.SkippedParameters == 1)
							require.Equal(t, before[lo:hi], after[lo:hi])
							for i := range state {
								require.Equal(t, state[i][lo:hi], now[i][lo:hi])
							}
						} else {
							if storage.unit == whole && bad != bad { // the rows' mean is NaN
								want.NonFinite = n
							}
							require.Zero(t, r.SkippedParameters)
							require.True(t, after[at] != after[at])
						}
						require.Equal(t, want, r.Counts)
						alone, aloneState := widened(twinParams[0].Weights), momentsOf(twin, "w", n)
						require.Equal(t, alone[:lo], after[:lo])
						require.Equal(t, alone[hi:], after[hi:])
						for i := range state {
							require.Equal(t, aloneState[i][:lo], now[i][:lo])
							require.Equal(t, aloneState[i][hi:], now[i][hi:])
						}
						require.Equal(t, int64(2), opt.Steps())
					})
				}
			}
		}
	}
}

func set(f kernels.Floats, i int, x float32) {
	if f.BF16 != nil {
		f.BF16[i] = rounded(kernels.Float32s([]float32{x})).BF16[0]
	} else {
		f.F32[i] = x
	}
}

// momentsOf lists the state's tensors, with the bits of the entry that each element uses.
func momentsOf(opt *optim.Optimizer, name string, n int) (list [][]uint32) {
	for _, tensor := range opt.State(name) {
		values := make([]uint32, n)
		for i := range values {
			switch {
			case len(tensor.F32) == n:
				values[i] = math.Float32bits(tensor.F32[i])
			case tensor.F32 != nil && tensor.Kind != "row" && tensor.Kind != "col":
				values[i] = math.Float32bits(tensor.F32[i/32])
			case tensor.F32 != nil: // of 10x10
				values[i] = math.Float32bits(tensor.F32[map[string]int{"row": i / 10, "col": i % 10}[tensor.Kind]])
			case tensor.BF16 != nil:
				values[i] = uint32(tensor.BF16[i])
			case len(tensor.U8) == n:
				values[i] = uint32(tensor.U8[i])
			default:
				values[i] = uint32(tensor.U8[i/2]) >> (4 * (i % 2)) & 15
			}
		}
		list = append(list, values)
	}
	return list
}

// TestWeightsAndMomentsThatOverflow: gradients are finite, and what they make is not.
func TestWeightsAndMomentsThatOverflow(t *testing.T) {
	const n, at = 100, 70
	for name, test := range map[string]struct{ weight, gradient float32 }{
		"weight":        {-math.MaxFloat32, 1},
		"second moment": {1, 1e22},
	} {
		for _, storage := range storages {
			for _, policy := range []string{"skip", "propagate"} {
				t.Run(fmt.Sprint(name, storage.name, policy), func(t *testing.T) {
					text := `{"lr": 1e37, "nonfinite": "` + policy + `"` + storage.options + `}`
					w := optim.Param{Name: "w", Shape: storage.shape, Weights: f32(n), Gradients: numbers(n, 2, false)}
					w.Weights.F32[at], w.Gradients.F32[at] = test.weight, test.gradient
					opt, params := newOptimizer(t, text, w)
					before, state := widened(params[0].Weights), momentsOf(opt, "w", n)
					r, err := opt.Step()
					require.NoError(t, err)
					require.Positive(t, r.NonFinite)
					after, now := widened(params[0].Weights), momentsOf(opt, "w", n)
					if policy == "propagate" {
						require.Zero(t, r.SkippedElements+r.SkippedBlocks+r.SkippedParameters)
						return
					}
					require.Positive(t, r.SkippedElements)
					require.Equal(t, before[at], after[at])
					for i := range state {
						if kind := opt.State("w")[i].Kind; kind != "row" && kind != "col" {
							require.Equal(t, state[i][at], now[i][at])
						}
					}
					for i, w := range after {
						require.False(t, w-w != 0, "element %d", i)
					}
				})
			}
		}
	}
}
