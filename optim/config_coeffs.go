package optim

import (
	"encoding/json"
	"reflect"

	"github.com/lowbit-go/lowbit/kernels"
)

// NSCoeffs are Newton-Schulz's coefficients: either the name of one of [kernels.PolynomialNames], or triples, of which
// a single one serves every step and several one step each. In JSON they are a string, an array of three numbers or an
// array of such arrays.
type NSCoeffs struct {
	Preset  string
	Triples []kernels.Triple
}

// polynomials returns each step's triple and the safety that multiplies the norm; nil steps are the table's own.
func (c NSCoeffs) polynomials(steps *int, bfloat16 bool) (triples []kernels.Triple, safety float64, err error) {
	if c.Preset != "" {
		return kernels.Polynomials(c.Preset, steps, bfloat16)
	}
	triples, err = kernels.CustomPolynomials(c.Triples, steps)
	return triples, 1, err
}

func (c NSCoeffs) validate() error {
	if c.Preset != "" && c.Triples != nil {
		return problem("", "got preset %s and triples, want one of the two", c.Preset)
	}
	if _, _, err := c.polynomials(nil, false); err != nil {
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
