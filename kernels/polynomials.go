package kernels

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Triple holds the coefficients a, b, c of a Newton-Schulz step's polynomial
// a*x + b*x³ + c*x⁵.
type Triple [3]float64

const (
	defaultSteps = 5
	maxSteps     = 99
)

// preset is a table of polynomials and how many steps may be taken with it.
type preset struct {
	table      []Triple
	safety     float64
	safetyBF16 float64 // not 0: in bf16; and safety goes into every row but the last
	repeatLast bool
	exact      bool // as many steps as rows
}

var presets = map[string]preset{
	// Jordan et al., Muon (2024).
	"jordan": {table: []Triple{jordan}, safety: 1},
	// optax 0.2.8, contrib.muon; known as quintic elsewhere.
	"dion": {safety: 1, table: []Triple{
		{4.0848, -6.8946, 2.9270},
		{3.9505, -6.3029, 2.6377},
		{3.7418, -5.5913, 2.3037},
		{2.8769, -3.1427, 1.2046},
		{2.8366, -3.0525, 1.2012},
	}},
	// Amsel, Persson, Musco and Gower, "The Polar Express" (2025).
	"polar-express": {safety: 1.01, safetyBF16: 1.02, repeatLast: true, table: []Triple{
		{8.28721201814563, -23.595886519098837, 17.300387312530933},
		{4.107059111542203, -2.9478499167379106, 0.5448431082926601},
		{3.9486908534822946, -2.908902115962949, 0.5518191394370137},
		{3.3184196573706015, -2.488488024314874, 0.51004894012372},
		{2.300652019954817, -1.6689039845747493, 0.4188073119525673},
		{1.891301407787398, -1.2679958271945868, 0.37680408948524835},
		{1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
		{1.875, -1.25, 0.375},
	}},
	// The same with 1.02 in the rows, as in Microsoft's dion and the NanoGPT speedrun.
	"polar-express-1.02": {safety: 1.02, table: []Triple{
		{8.156554524902461, -22.48329292557795, 15.878769915207462},
		{4.042929935166739, -2.808917465908714, 0.5000178451051316},
		{3.8916678022926607, -2.772484153217685, 0.5060648178503393},
		{3.285753657755655, -2.3681294933425376, 0.46449024233003106},
		{2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
	}},
	// DeepSeek-V4: eight fast steps, then two that converge to 1.
	"deepseek-v4":     {safety: 1, table: append(slices.Repeat([]Triple{jordan}, 8), slices.Repeat([]Triple{{2, -1.5, 0.5}}, 2)...)},
	"classic-cubic":   {safety: 1, table: []Triple{{1.5, -0.5, 0}}},
	"classic-quintic": {safety: 1, table: []Triple{{1.875, -1.25, 0.375}}},
	// Cubic steps that fit each other in this number and order only.
	"cubic5": {safety: 1, exact: true, table: []Triple{
		{3.3656576, -3.3420992, 0},
		{2.5744352, -1.4957376, 0},
		{2.5368962, -1.4312570, 0},
		{2.4418906, -1.2764040, 0},
		{2.2230472, -0.9630650, 0},
	}},
}

var jordan = Triple{3.4445, -4.7750, 2.0315}

// PolynomialNames lists the presets of Polynomials, sorted.
func PolynomialNames() []string { return slices.Sorted(maps.Keys(presets)) }

// Polynomials returns one triple for each Newton-Schulz step of a named preset, and the
// safety: the matrix is divided by safety times its norm, 1 for most. polar-express has,
// as published, its safety in the triples too; it is 1.01, or 1.02 where bfloat16 says
// that the steps are taken in bf16.
//
// steps nil means the table's length, or 5 for a table of one triple. A table of one
// triple is repeated, 0 to 99 times; of a longer one 0 steps to all are taken, from the
// first. polar-express repeats its last row as often as asked, and cubic5 takes exactly
// its 5.
func Polynomials(name string, steps *int, bfloat16 bool) ([]Triple, float64, error) {
	p, ok := presets[name]
	if !ok {
		return nil, 0, fmt.Errorf("newton-schulz: polynomial %q is not known, want one of %q", name, PolynomialNames())
	}
	triples, err := p.take(steps)
	if err != nil {
		return nil, 0, fmt.Errorf("newton-schulz: polynomial %s: %w", name, err)
	}
	safety := p.safety
	if p.safetyBF16 != 0 {
		if bfloat16 {
			safety = p.safetyBF16
		}
		for i := range min(len(triples), len(p.table)-1) {
			triples[i] = triples[i].divideArgument(safety)
		}
	}
	return triples, safety, nil
}

// CustomPolynomials returns one triple for each Newton-Schulz step from a caller's list,
// by the rules of Polynomials: a single triple is repeated, of several the first steps
// are taken. The coefficients must be finite as float32.
func CustomPolynomials(list []Triple, steps *int) ([]Triple, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("newton-schulz: the list of polynomials is empty, want one triple or more")
	}
	for i, t := range list {
		for j, x := range t {
			if math.IsNaN(x) || math.Abs(x) > math.MaxFloat32 {
				return nil, fmt.Errorf("newton-schulz: coefficient %c of polynomial %d is %v, want a finite float32", "abc"[j], i, x)
			}
		}
	}
	triples, err := preset{table: list}.take(steps)
	if err != nil {
		return nil, fmt.Errorf("newton-schulz: %w", err)
	}
	return triples, nil
}

// PlanNewtonSchulz makes the plan of these steps in float32, without an eps, in the
// standard form: of what Polynomials returns, or of a list from CustomPolynomials or
// optim.PolarExpress, whose safety, 1 where it has none, must be given again because it
// divides the matrix too. Its other fields may be set before it is used.
func PlanNewtonSchulz(triples []Triple, safety float64) *NewtonSchulzPlan {
	plan := &NewtonSchulzPlan{Safety: safety, Steps: make([][3]float32, len(triples))}
	for i, t := range triples {
		plan.Steps[i] = [3]float32{float32(t[0]), float32(t[1]), float32(t[2])}
	}
	return plan
}

// take returns a copy of the rows for the steps.
func (p preset) take(steps *int) ([]Triple, error) {
	least, most := 0, len(p.table)
	switch {
	case p.exact:
		least = most
	case p.repeatLast || most == 1:
		most = maxSteps
	}
	n := len(p.table)
	if n == 1 {
		n = defaultSteps
	}
	if steps != nil {
		n = *steps
	}
	if n < least || n > min(most, maxSteps) {
		return nil, fmt.Errorf("%d steps, want %s", n, wanted(least, min(most, maxSteps)))
	}
	triples := make([]Triple, n)
	for i := range triples {
		triples[i] = p.table[min(i, len(p.table)-1)]
	}
	return triples, nil
}

func wanted(least, most int) string {
	if least == most {
		return fmt.Sprintf("exactly %d", most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// divideArgument returns the polynomial of x/s.
func (t Triple) divideArgument(s float64) Triple {
	cube := s * s * s
	return Triple{t[0] / s, t[1] / cube, t[2] / (cube * s * s)}
}
