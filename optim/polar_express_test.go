package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// compose is what the steps make of a singular value.
func compose(triples []kernels.Triple, x float64) float64 {
	for _, t := range triples {
		x = x * (t[0] + x*x*(t[1]+x*x*t[2]))
	}
	return x
}

// steepness is the derivative of compose.
func steepness(triples []kernels.Triple, x float64) float64 {
	product := 1.0
	for i, t := range triples {
		product *= t[0] + x*x*(3*t[1]+x*x*5*t[2])
		x = compose(triples[i:i+1], x)
	}
	return math.Abs(product)
}

func requireTriples(t *testing.T, want, got []kernels.Triple, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, triple := range want {
		for j, x := range triple {
			require.InEpsilon(t, x, got[i][j], tolerance, "row %d", i)
		}
	}
}

// TestPolarExpressTables: lower bound 1e-3 gives both published tables. The seventh row of
// the first is of so narrow an interval that the published method lost some digits there;
// the eighth is the limit, and what all later ones are.
func TestPolarExpressTables(t *testing.T) {
	plain, err := optim.PolarExpress(1e-3, 8, 1)
	require.NoError(t, err)
	eight := 8
	table, safety, err := kernels.Polynomials("polar-express", &eight, false)
	require.NoError(t, err)
	for i := range table[:7] { // which have the safety inside
		for j := range table[i] {
			table[i][j] *= math.Pow(safety, float64(2*j+1))
		}
	}
	requireTriples(t, table[:6], plain[:6], 1e-12)
	requireTriples(t, table[6:7], plain[6:7], 1e-10)
	requireTriples(t, table[7:], plain[7:], 1e-12)

	table, safety, err = kernels.Polynomials("polar-express-1.02", nil, false)
	require.NoError(t, err)
	requireTriples(t, table, optim.PolarExpressWithCushion(1e-3, 5, safety, 0.02), 1e-12)

	again, err := optim.PolarExpress(1e-3, 99, 1)
	require.NoError(t, err)
	requireTriples(t, []kernels.Triple{{1.875, -1.25, 0.375}}, again[98:], 1e-15)
}

// TestPolarExpressRange: what becomes of lower is as far below 1 as anything in [lower, 1]
// ends above or below it; without a safety just as far.
func TestPolarExpressRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		lower, steps, safety := math.Pow(10, -8*rng.Float64()), 1+rng.IntN(12), 1.0
		if rng.IntN(2) == 0 {
			safety += 0.05 * rng.Float64()
		}
		name := fmt.Sprintf("lower %g steps %d safety %g", lower, steps, safety)
		triples, err := optim.PolarExpress(lower, steps, safety)
		require.NoError(t, err)
		predicted := 1 - compose(triples, lower)
		require.GreaterOrEqual(t, predicted, -1e-14, name)
		least, most := math.Inf(1), 0.0
		const points = 4000
		for i := range points + 1 {
			y := compose(triples, math.Pow(lower, float64(i)/points))
			least, most = min(least, y), max(most, y)
		}
		require.InDelta(t, 1-predicted, least, 1e-12, name)
		rounding := 1e-12
		if safety == 1 { // 1 stays at the upper end of the intervals, which is steep
			rounding += 1e-15 * steepness(triples, 1)
			require.InDelta(t, 1+predicted, most, 1e-3*predicted+rounding, name)
		}
		require.LessOrEqual(t, most, 1+predicted+rounding, name)
	}
}

// TestPolarExpressIsBest: no polynomial near it is closer to 1 on the interval.
func TestPolarExpressIsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, lower := range []float64{0.03, 0.1, 0.5, 0.9, 0.99} {
		triples, err := optim.PolarExpress(lower, 1, 1)
		require.NoError(t, err)
		distance := func(p kernels.Triple) (worst float64) {
			for i := range 2001 {
				x := lower + (1-lower)*float64(i)/2000
				worst = max(worst, math.Abs(compose([]kernels.Triple{p}, x)-1))
			}
			return worst
		}
		best := distance(triples[0])
		for _, size := range []float64{1e-2, 1e-4, 1e-6} {
			for range 300 {
				p := triples[0]
				for j := range p {
					p[j] += size * rng.NormFloat64()
				}
				require.GreaterOrEqual(t, distance(p), best*(1-1e-4), "lower %v", lower) // the grid misses the extrema by that
			}
		}
	}
}

// TestPolarExpressNearOne: narrow intervals lose nothing.
func TestPolarExpressNearOne(t *testing.T) {
	for _, lower := range []float64{0.999, 1 - 1e-4, 1 - 1.1e-5, 1 - 1e-5, 1 - 1e-7, 1 - 1e-12, 1 - 0x1p-53, 1} {
		triples, err := optim.PolarExpress(lower, 1, 1)
		require.NoError(t, err)
		requireTriples(t, []kernels.Triple{{1.875, -1.25, 0.375}}, triples, 10*(1-lower)+1e-15)
		for i := range 101 {
			x := lower + (1-lower)*float64(i)/100
			width := 1 - lower
			require.InDelta(t, 1, compose(triples, x), width*width*width+1e-15)
		}
	}
}

func TestPolarExpressRefuses(t *testing.T) {
	for _, test := range []struct {
		lower  float64
		steps  int
		safety float64
		want   string
	}{
		{0, 5, 1, "polar express: lower bound 0, want a number above 0 and at most 1"},
		{-1, 5, 1, "polar express: lower bound -1, want a number above 0 and at most 1"},
		{1.5, 5, 1, "polar express: lower bound 1.5, want a number above 0 and at most 1"},
		{math.NaN(), 5, 1, "polar express: lower bound NaN, want a number above 0 and at most 1"},
		{0.1, 0, 1, "polar express: 0 steps, want 1 to 99"},
		{0.1, 100, 1, "polar express: 100 steps, want 1 to 99"},
		{0.1, 5, 0.9, "polar express: safety 0.9, want a number from 1 to 2"},
		{0.1, 5, math.Inf(1), "polar express: safety +Inf, want a number from 1 to 2"},
	} {
		_, err := optim.PolarExpress(test.lower, test.steps, test.safety)
		require.EqualError(t, err, test.want)
	}
	tiny, err := optim.PolarExpress(math.SmallestNonzeroFloat64, 99, 1)
	require.NoError(t, err)
	require.False(t, math.IsNaN(compose(tiny, 1)))
}

// TestPolarExpressOfAConfiguration: polar-express:LxN is a table with its safety inside.
func TestPolarExpressOfAConfiguration(t *testing.T) {
	coeffs := optim.NSCoeffs{Preset: "polar-express:1e-4x6"}
	for bfloat16, want := range map[bool]float64{false: 1.01, true: 1.02} {
		triples, safety, err := coeffs.Polynomials(nil, bfloat16)
		require.NoError(t, err)
		require.Equal(t, want, safety)
		made, err := optim.PolarExpress(1e-4, 6, want)
		require.NoError(t, err)
		require.Equal(t, made, triples)
		three := 3
		triples, _, err = coeffs.Polynomials(&three, bfloat16)
		require.NoError(t, err)
		require.Equal(t, made[:3], triples)
	}
	for text, want := range map[string]string{
		"polar-express:":        `ns_coeffs: polar express: "polar-express:", want a lower bound and a number of steps such as polar-express:1e-3x5`,
		"polar-express:1e-4":    `ns_coeffs: polar express: "polar-express:1e-4", want a lower bound and a number of steps such as polar-express:1e-3x5`,
		"polar-express:2x5":     `ns_coeffs: polar express: lower bound 2, want a number above 0 and at most 1`,
		"polar-express:1e-3x0":  `ns_coeffs: polar express: 0 steps, want 1 to 99`,
		"polar-express:NaNx3":   `ns_coeffs: polar express: lower bound NaN, want a number above 0 and at most 1`,
		"polar-express:1e-3x5x": `ns_coeffs: polar express: "polar-express:1e-3x5x", want a lower bound and a number of steps such as polar-express:1e-3x5`,
	} {
		_, err := optim.ParseConfig([]byte(`{"type": "muon", "lr": 1, "ns_coeffs": "` + text + `"}`))
		require.EqualError(t, err, "optim: "+want)
	}
	_, err := optim.ParseConfig([]byte(`{"type": "muon", "lr": 1, "ns_coeffs": "polar-express:1e-3x5", "ns_steps": 6}`))
	require.ErrorContains(t, err, "6 steps, want 0 to 5")
	_, err = optim.ParseConfig([]byte(`{"type": "muon", "lr": 1, "ns_coeffs": "polar-express:1e-3x5", "ns_method": "gram", "ns_dtype": "bfloat16"}`))
	require.ErrorContains(t, err, "ns_method: gram excludes")
	config := parse(t, `{"type": "muon", "lr": 1, "ns_coeffs": "polar-express:1e-3x5"}`)
	text, err := config.(optim.MuonConfig).MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, config, parse(t, string(text)))
}
