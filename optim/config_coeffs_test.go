package optim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNSCoeffs(t *testing.T) {
	const want = "a preset's name, a triple or a list of triples"
	for _, test := range []struct {
		document string
		want     NSCoeffs
		problem  string
	}{
		{`"jordan"`, NSCoeffs{Preset: "jordan"}, ""},
		{`[3.4445, -4.775, 2.0315]`, NSCoeffs{Triple: &[3]float64{3.4445, -4.775, 2.0315}}, ""},
		{`[[1, 2, 3]]`, NSCoeffs{List: [][3]float64{{1, 2, 3}}}, ""},
		{`[[1, 2, 3], [4, 5, 6]]`, NSCoeffs{List: [][3]float64{{1, 2, 3}, {4, 5, 6}}}, ""},
		{`"quintic"`, NSCoeffs{}, `optim: got "quintic", want jordan, dion, polar-express, polar-express-1.02, deepseek-v4, classic-cubic, classic-quintic or cubic5`},
		{`"polar-express:1e-4x6"`, NSCoeffs{}, `optim: got "polar-express:1e-4x6", want jordan, dion, polar-express, polar-express-1.02, deepseek-v4, classic-cubic, classic-quintic or cubic5`},
		{`""`, NSCoeffs{}, `optim: got "", want ` + want},
		{`5`, NSCoeffs{}, `optim: got 5, want ` + want},
		{`null`, NSCoeffs{}, `optim: got null, want ` + want},
		{`{"a": 1}`, NSCoeffs{}, `optim: got an object, want ` + want},
		{`[]`, NSCoeffs{}, `optim: got an array, want ` + want},
		{`[1, 2]`, NSCoeffs{}, `optim: got 2 elements, want 3`},
		{`[1, 2, "3"]`, NSCoeffs{}, `optim: [2]: got "3", want a number`},
		{`[[1, 2, 3], [4, 5]]`, NSCoeffs{}, `optim: [1]: got 2 elements, want 3`},
		{`[[1, 2, 3], [4, 5, null]]`, NSCoeffs{}, `optim: [1][2]: got null, want a number`},
		{`[[1, 2, 3], 4]`, NSCoeffs{}, `optim: [1]: got 4, want an array of 3 numbers`},
		{`[1, 2, 1e999]`, NSCoeffs{}, `optim: [2]: got 1e999, which is beyond float64`},
		{`[` + strings.Repeat(`[1, 2, 3], `, 99) + `[1, 2, 3]]`, NSCoeffs{}, `optim: got 100 triples, want 1 to 99`},
	} {
		var got NSCoeffs
		err := json.Unmarshal([]byte(test.document), &got)
		if test.document == "null" {
			err = got.UnmarshalJSON([]byte(test.document))
		}
		if test.problem != "" {
			require.EqualError(t, err, test.problem)
		} else {
			require.NoError(t, err, test.document)
		}
		require.Equal(t, test.want, got)
	}
}

func TestNSSteps(t *testing.T) {
	for _, test := range []struct {
		coeffs                string
		normally, least, most int
		name                  string
	}{
		{`"jordan"`, 5, 0, 99, "jordan"},
		{`"dion"`, 5, 0, 5, "dion"},
		{`"polar-express"`, 8, 0, 99, "polar-express"},
		{`"polar-express-1.02"`, 5, 0, 5, "polar-express-1.02"},
		{`"deepseek-v4"`, 10, 0, 10, "deepseek-v4"},
		{`"classic-cubic"`, 5, 0, 99, "classic-cubic"},
		{`"classic-quintic"`, 5, 0, 99, "classic-quintic"},
		{`"cubic5"`, 5, 5, 5, "cubic5"},
		{`[1.5, -0.5, 0]`, 5, 0, 99, ""},
		{`[[1.5, -0.5, 0]]`, 1, 0, 1, ""},
		{`[[1.5, -0.5, 0], [1.5, -0.5, 0], [1.875, -1.25, 0.375]]`, 3, 0, 3, ""},
	} {
		parse := func(steps any) (Config, error) {
			return ParseConfig(fmt.Appendf(nil, `{"type": "muon", "lr": 1, "ns_coeffs": %s, "ns_steps": %v}`, test.coeffs, steps))
		}
		c, err := parse("null")
		require.NoError(t, err)
		require.Equal(t, test.normally, c.(MuonConfig).nsSteps(), test.coeffs)
		for steps := -1; steps <= 100; steps++ {
			c, err := parse(steps)
			of := "ns_coeffs " + test.name
			if test.name == "" {
				of = "the list of ns_coeffs"
			}
			switch {
			case steps < 0 || steps > 99:
				require.EqualError(t, err, fmt.Sprintf("optim: ns_steps: got %d, want null or an integer in [0, 99]", steps))
			case test.least == test.most && steps != test.most:
				require.EqualError(t, err, fmt.Sprintf("optim: ns_steps: got %d, want %d, all that %s has", steps, test.most, of))
			case steps > test.most:
				require.EqualError(t, err, fmt.Sprintf("optim: ns_steps: got %d, want at most %d, all that %s has", steps, test.most, of))
			default:
				require.NoError(t, err, test.coeffs)
				require.Equal(t, steps, c.(MuonConfig).nsSteps())
			}
		}
	}
}
