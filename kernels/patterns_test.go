package kernels_test

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/cpufeature/cputest"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
	"github.com/stretchr/testify/require"
)

// TestPatterns compares every implementation of the conversions with the scalar rules on
// a sample of the 2^32 float32 patterns, or on all of them if LOWBIT_ALL_PATTERNS is set.
func TestPatterns(t *testing.T) {
	const chunk = 1 << 20
	chunks := uint32(1 << 12)
	stride := uint32(499) // of the chunks that are taken, each with all of its patterns
	if os.Getenv("LOWBIT_ALL_PATTERNS") != "" {
		stride = 1
	}
	conversions := map[string]struct {
		impls []kernels.Impl[kernels.RoundFunc]
		want  kernels.RoundFunc
	}{
		"nearest":    {kernels.OpRound.Impls, reference.Round},
		"truncate":   {kernels.OpTruncate.Impls, reference.Truncate},
		"stochastic": {stochastic(kernels.OpStochastic.Impls), stochastic(kernels.OpStochastic.Impls[len(kernels.OpStochastic.Impls)-1:])[0].Func},
	}
	for name, c := range conversions {
		for _, impl := range c.impls[:len(c.impls)-1] {
			t.Run(name+"/"+impl.Name, func(t *testing.T) {
				t.Parallel()
				cputest.Need(t, impl.Needs)
				src, got, want := make([]float32, chunk), make([]bf16.BF16, chunk), make([]bf16.BF16, chunk)
				for k := uint32(0); k < chunks; k += stride {
					for i := range src {
						src[i] = math.Float32frombits(k*chunk + uint32(i))
					}
					impl.Func(got, src)
					c.want(want, src)
					if !slices.Equal(want, got) {
						for i := range want {
							require.Equalf(t, want[i], got[i], "%08x", k*chunk+uint32(i))
						}
					}
				}
			})
		}
	}
}

func stochastic(impls []kernels.Impl[kernels.StochasticFunc]) []kernels.Impl[kernels.RoundFunc] {
	var list []kernels.Impl[kernels.RoundFunc]
	for _, impl := range impls {
		list = append(list, kernels.Impl[kernels.RoundFunc]{Name: impl.Name, Needs: impl.Needs, Func: func(dst []bf16.BF16, src []float32) {
			impl.Func(dst, src, kernels.Stream{Seed: 5, Step: 7, First: 3})
		}})
	}
	return list
}
