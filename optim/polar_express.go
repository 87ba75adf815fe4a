package optim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lowbit-go/lowbit/kernels"
)

const (
	polarExpressPrefix = "polar-express:"
	maxPolarSteps      = 99
	// paperCushion is the cushion of the paper's table, which is kernels' polar-express.
	paperCushion = 0.02407327424182761
)

// PolarExpress returns the polynomials of that many Newton-Schulz steps, each the odd one of
// degree 5 that brings what the steps before leave of [lower, 1] closest to 1. It is the
// method of Amsel, Persson, Musco and Gower, "The Polar Express" (2025), with their cushion
// of 0.0241: a step does not count on intervals whose lower end is less than that of the
// upper one. Singular values in [lower, 1] end up between v and 2-v, where v is what becomes
// of lower.
//
// safety, 1 or a little more, keeps rounding from leading outside the intervals: every
// polynomial but the last is that of x/safety. A matrix is to be divided by safety times its
// norm, too: kernels.PlanNewtonSchulz takes both. In a [MuonConfig] the preset
// polar-express:LxN does (see [NSCoeffs]).
//
// lower that is not in (0, 1], steps that are not 1 to 99 and safety that is not in [1, 2]
// are errors.
//
// lower 1e-3 and 8 steps give kernels' table polar-express; its polar-express-1.02 has a
// cushion of 0.02.
func PolarExpress(lower float64, steps int, safety float64) ([]kernels.Triple, error) {
	switch {
	case !(lower > 0 && lower <= 1):
		return nil, fmt.Errorf("polar express: lower bound %v, want a number above 0 and at most 1", lower)
	case steps < 1 || steps > maxPolarSteps:
		return nil, fmt.Errorf("polar express: %d steps, want 1 to %d", steps, maxPolarSteps)
	case !(safety >= 1 && safety <= 2):
		return nil, fmt.Errorf("polar express: safety %v, want a number from 1 to 2", safety)
	}
	return polarExpress(lower, steps, safety, paperCushion), nil
}

// polarExpressOf reads "polar-express:LxN" and returns also the safety, the paper's, that is
// in the polynomials and multiplies the norm.
func polarExpressOf(preset string, bfloat16 bool) (triples []kernels.Triple, safety float64, err error) {
	bound, count, _ := strings.Cut(strings.TrimPrefix(preset, polarExpressPrefix), "x")
	lower, errBound := strconv.ParseFloat(bound, 64)
	steps, errCount := strconv.Atoi(count)
	if errBound != nil || errCount != nil {
		return nil, 0, fmt.Errorf("polar express: %q, want a lower bound and a number of steps such as polar-express:1e-3x5", shorten(preset))
	}
	safety = 1.01
	if bfloat16 {
		safety = 1.02
	}
	triples, err = PolarExpress(lower, steps, safety)
	return triples, safety, err
}

func polarExpress(lower float64, steps int, safety, cushion float64) []kernels.Triple {
	triples := make([]kernels.Triple, steps)
	upper := 1.0
	for i := range triples {
		t := scaleArgument(bestQuintic(max(lower/upper, cushion)), upper)
		if lower < cushion*upper { // then it is not centred: lower ends further below 1 than upper above
			scale := 2 / (evaluate(t, lower) + evaluate(t, upper))
			t = kernels.Triple{scale * t[0], scale * t[1], scale * t[2]}
		}
		if i < steps-1 {
			t = scaleArgument(t, safety)
		}
		triples[i] = t
		lower = evaluate(t, lower)
		upper = 2 - lower
	}
	return triples
}

func evaluate(t kernels.Triple, x float64) float64 {
	y := x * x
	return x * (t[0] + y*(t[1]+y*t[2]))
}

// scaleArgument returns the polynomial of x/s.
func scaleArgument(t kernels.Triple, s float64) kernels.Triple {
	return kernels.Triple{t[0] / s, t[1] / (s * s * s), t[2] / (s * s * s * s * s)}
}

// bestQuintic is the odd polynomial of degree 5 whose largest distance from 1 on [low, 1] is
// least, by Remez: at four nodes it is equally far below and above 1 in turn, and these move
// to its extrema until the distance grows no more.
func bestQuintic(low float64) kernels.Triple {
	width := 1 - low
	nodes := [4]float64{low, low + width/4, low + width*3/4, 1} // right in the limit
	best, distance := alternating(nodes)
	const narrow, point = 1e-5, 1e-8 // there float64 does not resolve the distance, nor the nodes
	if width < point {
		middle := low + width/2
		best, distance = alternating([4]float64{middle, middle, middle, middle})
	}
	for width > narrow {
		a, b, c := best[0], best[1], best[2]
		root := math.Sqrt(9*b*b - 20*a*c)
		nodes[1], nodes[2] = math.Sqrt((-3*b-root)/(10*c)), math.Sqrt((-3*b+root)/(10*c))
		t, d := alternating(nodes)
		if !(d > distance) {
			break
		}
		best, distance = t, d
	}
	return best
}

// alternating is the odd polynomial of degree 5 with values 1-d, 1+d, 1-d, 1+d at four nodes.
// It interpolates (1±d)/x as a function of x² in Newton's form, where the divided differences
// of 1/x are known without a subtraction: nodes may be close together.
func alternating(x [4]float64) (t kernels.Triple, d float64) {
	y := [4]float64{x[0] * x[0], x[1] * x[1], x[2] * x[2], x[3] * x[3]}
	gap := func(i, j int) float64 { return (x[i] - x[j]) * (x[i] + x[j]) }
	sum3 := x[0] + x[1] + x[2]
	pairs3 := (x[0] + x[1]) * (x[0] + x[2]) * (x[1] + x[2])
	product3 := x[0] * x[1] * x[2]
	second := -1 / (x[0] * x[1] * (x[0] + x[1]))
	third := sum3 / (product3 * pairs3)
	// The elementary symmetric polynomials of all four, for the fourth.
	e1 := sum3 + x[3]
	e2 := x[0]*x[1] + x[0]*x[2] + x[1]*x[2] + x[3]*sum3
	e3 := product3 + x[3]*(x[0]*x[1]+x[0]*x[2]+x[1]*x[2])
	fourth := -(e1*e2 - e3) / (product3 * x[3] * pairs3 * (x[0] + x[3]) * (x[1] + x[3]) * (x[2] + x[3]))
	// Those of -1/x, 1/x, -1/x, 1/x.
	var sign2, sign3, sign4 float64
	if x[0] < x[3] {
		s := [4]float64{-1 / x[0], 1 / x[1], -1 / x[2], 1 / x[3]}
		sign2 = (s[1] - s[0]) / gap(1, 0)
		sign3 = ((s[2]-s[1])/gap(2, 1) - sign2) / gap(2, 0)
		sign4 = ((((s[3]-s[2])/gap(3, 2) - (s[2]-s[1])/gap(2, 1)) / gap(3, 1)) - sign3) / gap(3, 0)
		d = -fourth / sign4
	}
	zeroth := (1 - d) / x[0]
	second, third = second+d*sign2, third+d*sign3
	return kernels.Triple{
		zeroth - second*y[0] + third*y[0]*y[1],
		second - third*(y[0]+y[1]),
		third,
	}, d
}
