package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

// iterate applies the steps to a singular value.
func iterate(steps []kernels.Triple, x float64) float64 {
	for _, s := range steps {
		x *= s[0] + x*x*(s[1]+x*x*s[2])
	}
	return x
}

func TestPolynomialRanges(t *testing.T) {
	for _, c := range []struct {
		name                    string
		steps                   int
		bfloat16                bool
		least, most             float64 // on [0.01, 1]
		largest                 float64 // on [0, 1]
		tolerated, notTolerated float64 // singular values
	}{
		{"jordan", 5, false, 0.682, 1.134, 1.2024, 1.263, 1.264},
		{"dion", 5, false, 0.978, 1.032, 1.145, 1.324, 1.325},
		{"polar-express", 5, false, 0.870, 1.124, 1.124, 1.0109, 1.011},
		{"polar-express", 8, false, 1, 1, 1, 1.0109, 1.011},
		{"polar-express", 12, false, 1, 1, 1, 1.0109, 1.011},
		{"polar-express", 5, true, 0.864, 1.124, 1.124, 1.0218, 1.022},
		{"polar-express-1.02", 5, false, 0.859, 1.141, 1.141, 1.0218, 1.022},
		{"deepseek-v4", 10, false, 1, 1.0005, 1.002, 1.263, 1.264},
		{"cubic5", 5, false, 0.774, 1.3, 1.3, 1.003, 1.004},
		{"classic-cubic", 5, false, 0.076, 1, 1, 1.7, 1.733},
	} {
		steps, safety, err := kernels.Polynomials(c.name, &c.steps, c.bfloat16)
		require.NoError(t, err)
		require.Len(t, steps, c.steps)
		least, most, largest := math.Inf(1), 0.0, 0.0
		const points = 20_000
		for i := range points + 1 {
			x := iterate(steps, math.Pow(100, float64(i)/points-1)/safety)
			least, most = min(least, x), max(most, x)
			largest = max(largest, iterate(steps, float64(i)/points/safety))
		}
		require.InDelta(t, c.least, least, 6e-4, c)
		require.InDelta(t, c.most, most, 6e-4, c)
		require.InDelta(t, c.largest, largest, 6e-4, c)
		inRange := func(x float64) bool { y := iterate(steps, x); return y > 0 && y < 2 }
		require.True(t, inRange(c.tolerated), c)
		require.False(t, inRange(c.notTolerated), c)
	}
}

// Without its safety polar-express turns the rounding of a norm into 6e20.
func TestPolarExpressNeedsItsSafety(t *testing.T) {
	steps, safety, err := kernels.Polynomials("polar-express", new(5), false)
	require.NoError(t, err)
	require.Equal(t, 1.01, safety)
	raw := make([]kernels.Triple, len(steps))
	for i, s := range steps {
		raw[i] = kernels.Triple{s[0] * safety, s[1] * math.Pow(safety, 3), s[2] * math.Pow(safety, 5)}
	}
	require.InEpsilon(t, 8.28721201814563, raw[0][0], 1e-15)
	require.Greater(t, math.Abs(iterate(raw, 1.001)), 1e20)
	require.Less(t, math.Abs(iterate(steps, 1.001)), 1.2)
}

func TestPolynomialSteps(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps *int
		want  int
		err   string
	}{
		{"jordan", nil, 5, ""},
		{"jordan", new(0), 0, ""},
		{"jordan", new(99), 99, ""},
		{"jordan", new(100), 0, "newton-schulz: polynomial jordan: 100 steps, want 0 to 99"},
		{"jordan", new(-1), 0, "newton-schulz: polynomial jordan: -1 steps, want 0 to 99"},
		{"classic-quintic", new(12), 12, ""},
		{"dion", nil, 5, ""},
		{"dion", new(3), 3, ""},
		{"dion", new(6), 0, "newton-schulz: polynomial dion: 6 steps, want 0 to 5"},
		{"polar-express", nil, 8, ""},
		{"polar-express", new(5), 5, ""},
		{"polar-express", new(11), 11, ""},
		{"polar-express-1.02", nil, 5, ""},
		{"deepseek-v4", nil, 10, ""},
		{"deepseek-v4", new(11), 0, "newton-schulz: polynomial deepseek-v4: 11 steps, want 0 to 10"},
		{"cubic5", nil, 5, ""},
		{"cubic5", new(1), 0, "newton-schulz: polynomial cubic5: 1 steps, want exactly 5"},
		{"cubic5", new(4), 0, "newton-schulz: polynomial cubic5: 4 steps, want exactly 5"},
		{"cubic5", new(6), 0, "newton-schulz: polynomial cubic5: 6 steps, want exactly 5"},
		{"quintic", nil, 0, `newton-schulz: polynomial "quintic" is not known, want one of ["classic-cubic" "classic-quintic" "cubic5" "deepseek-v4" "dion" "jordan" "polar-express" "polar-express-1.02"]`},
	} {
		steps, _, err := kernels.Polynomials(c.name, c.steps, false)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Len(t, steps, c.want, c.name)
	}
}

func TestPolynomialRows(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    int
		row      int
		bfloat16 bool
		want     kernels.Triple
	}{
		{"jordan", 9, 8, false, kernels.Triple{3.4445, -4.7750, 2.0315}},
		{"dion", 3, 2, false, kernels.Triple{3.7418, -5.5913, 2.3037}},
		{"deepseek-v4", 10, 7, false, kernels.Triple{3.4445, -4.7750, 2.0315}},
		{"deepseek-v4", 10, 8, false, kernels.Triple{2, -1.5, 0.5}},
		{"polar-express", 5, 4, false, kernels.Triple{2.300652019954817 / 1.01, -1.6689039845747493 / (1.01 * 1.01 * 1.01), 0.4188073119525673 / (1.01 * 1.01 * 1.01 * 1.01 * 1.01)}},
		{"polar-express", 7, 6, true, kernels.Triple{1.8750014808534479 / 1.02, -1.2500016453999487 / (1.02 * 1.02 * 1.02), 0.3750001645474248 / (1.02 * 1.02 * 1.02 * 1.02 * 1.02)}},
		{"polar-express", 8, 7, true, kernels.Triple{1.875, -1.25, 0.375}},
		{"polar-express", 20, 19, false, kernels.Triple{1.875, -1.25, 0.375}},
		{"polar-express-1.02", 5, 0, true, kernels.Triple{8.156554524902461, -22.48329292557795, 15.878769915207462}},
	} {
		steps, _, err := kernels.Polynomials(c.name, &c.steps, c.bfloat16)
		require.NoError(t, err)
		for i, want := range c.want {
			require.InEpsilon(t, want, steps[c.row][i], 1e-15, "%v", c)
		}
	}
}

func TestPolynomialsGivesACopy(t *testing.T) {
	steps, _, err := kernels.Polynomials("dion", nil, false)
	require.NoError(t, err)
	steps[0][0] = 0
	again, _, err := kernels.Polynomials("dion", nil, false)
	require.NoError(t, err)
	require.Equal(t, 4.0848, again[0][0])
}

func TestCustomPolynomials(t *testing.T) {
	one, two := kernels.Triple{3, -3, 1}, kernels.Triple{2, -1.5, 0.5}
	for _, c := range []struct {
		list  []kernels.Triple
		steps *int
		want  []kernels.Triple
		err   string
	}{
		{[]kernels.Triple{one}, nil, []kernels.Triple{one, one, one, one, one}, ""},
		{[]kernels.Triple{one}, new(2), []kernels.Triple{one, one}, ""},
		{[]kernels.Triple{one, two}, nil, []kernels.Triple{one, two}, ""},
		{[]kernels.Triple{one, two}, new(1), []kernels.Triple{one}, ""},
		{[]kernels.Triple{one, two}, new(0), []kernels.Triple{}, ""},
		{[]kernels.Triple{one, two}, new(3), nil, "newton-schulz: 3 steps, want 0 to 2"},
		{make([]kernels.Triple, 100), nil, nil, "newton-schulz: 100 steps, want 0 to 99"},
		{nil, nil, nil, "newton-schulz: the list of polynomials is empty, want one triple or more"},
		{[]kernels.Triple{one, {1, math.NaN(), 1}}, nil, nil, "newton-schulz: coefficient b of polynomial 1 is NaN, want a finite float32"},
		{[]kernels.Triple{{1, 1, 1e39}}, nil, nil, "newton-schulz: coefficient c of polynomial 0 is 1e+39, want a finite float32"},
	} {
		got, err := kernels.CustomPolynomials(c.list, c.steps)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

func ExamplePolynomials() {
	steps, safety, err := kernels.Polynomials("polar-express", new(2), false)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.4f, X / (%v * norm)\n", steps, safety)
	// Output: [[8.2052 -22.9019 16.4607] [4.0664 -2.8612 0.5184]], X / (1.01 * norm)
}
