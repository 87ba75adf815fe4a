package optim

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
)

// NSCoeffs are the coefficients (a, b, c) of Newton-Schulz's polynomial a*x + b*x^3 + c*x^5, given in one of three
// ways: a preset's name, one triple for every step, or a triple for each step. In JSON these are a string, an array of
// three numbers and an array of such arrays.
type NSCoeffs struct {
	Preset string
	Triple *[3]float64
	List   [][3]float64
}

const mostNSSteps = 99

// nsPresets are the tables that have names: the steps they take by default, at least and at most.
var nsPresets = []struct {
	name                  string
	normally, least, most int
}{
	{"jordan", 5, 0, mostNSSteps},
	{"dion", 5, 0, 5},
	{"polar-express", 8, 0, mostNSSteps},
	{"polar-express-1.02", 5, 0, 5},
	{"deepseek-v4", 10, 0, 10},
	{"classic-cubic", 5, 0, mostNSSteps},
	{"classic-quintic", 5, 0, mostNSSteps},
	{"cubic5", 5, 5, 5},
}

// steps returns how many steps the coefficients take by default, at least and at most.
func (c NSCoeffs) steps() (normally, least, most int) {
	for _, p := range nsPresets {
		if p.name == c.Preset {
			return p.normally, p.least, p.most
		}
	}
	if c.Triple != nil {
		return 5, 0, mostNSSteps
	}
	return len(c.List), 0, len(c.List)
}

func (c NSCoeffs) checkSteps(n int) error {
	_, least, most := c.steps()
	if least <= n && n <= most {
		return nil
	}
	of := "the list of ns_coeffs"
	if c.Preset != "" {
		of = "ns_coeffs " + c.Preset
	}
	if least == most {
		return problem("", "got %d, want %d, all that %s has", n, most, of)
	}
	return problem("", "got %d, want at most %d, all that %s has", n, most, of)
}

func (c NSCoeffs) validate() error {
	ways := 0
	for _, given := range []bool{c.Preset != "", c.Triple != nil, c.List != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return problem("", "got %d of preset, triple and list, want one", ways)
	}
	if c.Triple != nil {
		return checkTriple(*c.Triple)
	}
	if c.List != nil && (len(c.List) == 0 || len(c.List) > mostNSSteps) {
		return problem("", "got %d triples, want 1 to %d", len(c.List), mostNSSteps)
	}
	for i, triple := range c.List {
		if err := checkTriple(triple); err != nil {
			return at(index(i), err)
		}
	}
	if c.Preset == "" {
		return nil
	}
	var names []string
	for _, p := range nsPresets {
		names = append(names, p.name)
	}
	if !slices.Contains(names, c.Preset) {
		return problem("", "got %q, want %s", shorten(c.Preset), wanted(reflect.TypeFor[string](), strings.Join(names, "|")))
	}
	return nil
}

func checkTriple(triple [3]float64) error {
	for i, x := range triple {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return problem(index(i), "got %s, want a finite number", number(x))
		}
	}
	return nil
}

// MarshalJSON writes the string, triple or list.
func (c NSCoeffs) MarshalJSON() ([]byte, error) {
	switch {
	case c.Triple != nil:
		return json.Marshal(c.Triple)
	case c.List != nil:
		return json.Marshal(c.List)
	}
	return json.Marshal(c.Preset)
}

// UnmarshalJSON reads a string, a triple or a list of triples.
func (c *NSCoeffs) UnmarshalJSON(data []byte) error {
	data, err := parse(data)
	if err != nil {
		return err
	}
	var read NSCoeffs
	var elements []json.RawMessage
	const want = "a preset's name, a triple or a list of triples"
	switch {
	case data[0] == '"':
		err = decode(data, reflect.ValueOf(&read.Preset).Elem(), want)
	case json.Unmarshal(data, &elements) != nil || len(elements) == 0:
		err = problem("", "got %s, want %s", found(data), want)
	case elements[0][0] == '[':
		err = decode(data, reflect.ValueOf(&read.List).Elem(), "")
	default:
		err = decode(data, reflect.ValueOf(&read.Triple).Elem(), "")
	}
	if err != nil {
		return err
	}
	if err := read.validate(); err != nil {
		return err
	}
	*c = read
	return nil
}
