package optim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lowbit-go/lowbit/kernels"
)

// NSCoeffs are Newton-Schulz's coefficients: either the name of one of [kernels.PolynomialNames], polar-express:LxN for
// [PolarExpress] with lower bound L and N steps, or triples, of which a single one serves every step and several one step
// each. In JSON they are a string, an array of three numbers or an array of such arrays.
type NSCoeffs struct {
	Preset  string
	Triples []kernels.Triple
}

// Polynomials returns each step's triple and the safety that multiplies the norm, by the rules of
// [kernels.Polynomials]. polar-express:LxN has its safety in the triples too: 1.01, or 1.02 in bf16.
func (c NSCoeffs) Polynomials(steps *int, bfloat16 bool) (triples []kernels.Triple, safety float64, err error) {
	list, safety := c.Triples, 1.0
	switch {
	case strings.HasPrefix(c.Preset, polarExpressPrefix):
		if list, safety, err = polarExpressOf(c.Preset, bfloat16); err != nil {
			return nil, 0, err
		}
	case c.Preset != "" && !slices.Contains(kernels.PolynomialNames(), c.Preset):
		return nil, 0, fmt.Errorf("polynomial %q is not known, want one of %s, polar-express:LxN or triples", shorten(c.Preset), strings.Join(kernels.PolynomialNames(), ", "))
	case c.Preset != "":
		return kernels.Polynomials(c.Preset, steps, bfloat16)
	}
	triples, err = kernels.CustomPolynomials(list, steps)
	return triples, safety, err
}

func (c NSCoeffs) validate() error {
	if c.Preset != "" && c.Triples != nil {
		return problem("", "got preset %s and triples, want one of the two", c.Preset)
	}
	if _, _, err := c.Polynomials(nil, false); err != nil {
		return problem("", "%v", err)
	}
	return nil
}

// MarshalJSON writes the name, the triple or the list.
func (c NSCoeffs) MarshalJSON() ([]byte, error) {
	switch {
	case c.Preset != "":
		return json.Marshal(c.Preset)
	case len(c.Triples) == 1:
		return json.Marshal(c.Triples[0])
	}
	return json.Marshal(c.Triples)
}

// UnmarshalJSON reads a name, a triple or a list of triples.
func (c *NSCoeffs) UnmarshalJSON(data []byte) error {
	data, err := parse(data)
	if err != nil {
		return err
	}
	const want = "a preset's name, a triple or a list of triples"
	var read NSCoeffs
	var elements []json.RawMessage
	switch {
	case data[0] == '"':
		err = decode(data, reflect.ValueOf(&read.Preset).Elem(), want)
	case json.Unmarshal(data, &elements) != nil || len(elements) == 0:
		err = problem("", "got %s, want %s", found(data), want)
	case elements[0][0] == '[':
		err = decode(data, reflect.ValueOf(&read.Triples).Elem(), "")
	default:
		read.Triples = make([]kernels.Triple, 1)
		err = decode(data, reflect.ValueOf(&read.Triples[0]).Elem(), "")
	}
	if err == nil {
		err = read.validate()
	}
	if err != nil {
		return err
	}
	*c = read
	return nil
}
