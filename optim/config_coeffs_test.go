package optim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
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
		{`[3.4445, -4.775, 2.0315]`, NSCoeffs{Triples: []kernels.Triple{{3.4445, -4.775, 2.0315}}}, ""},
		{`[[1, 2, 3]]`, NSCoeffs{Triples: []kernels.Triple{{1, 2, 3}}}, ""},
		{`[[1, 2, 3], [4, 5, 6]]`, NSCoeffs{Triples: []kernels.Triple{{1, 2, 3}, {4, 5, 6}}}, ""},
		{`"quintic"`, NSCoeffs{}, `optim: polynomial "quintic" is not known, want one of classic-cubic, classic-quintic, cubic5, deepseek-v4, dion, jordan, polar-express, polar-express-1.02, polar-express:LxN or triples`},
		{`"polar-express:1e-4x6"`, NSCoeffs{Preset: "polar-express:1e-4x6"}, ""},
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
		{`[1, 2, 1e39]`, NSCoeffs{}, `optim: newton-schulz: coefficient c of polynomial 0 is 1e+39, want a finite float32`},
		{`[1, 2, 1e999]`, NSCoeffs{}, `optim: [2]: got 1e999, which is beyond float64`},
		{`[` + strings.Repeat(`[1, 2, 3], `, 99) + `[1, 2, 3]]`, NSCoeffs{}, `optim: newton-schulz: 100 steps, want 0 to 99`},
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
	}{
		{`"jordan"`, 5, 0, 99},
		{`"dion"`, 5, 0, 5},
		{`"polar-express"`, 8, 0, 99},
		{`"polar-express-1.02"`, 5, 0, 5},
		{`"deepseek-v4"`, 10, 0, 10},
		{`"classic-cubic"`, 5, 0, 99},
		{`"classic-quintic"`, 5, 0, 99},
		{`"cubic5"`, 5, 5, 5},
		{`[1.5, -0.5, 0]`, 5, 0, 99},
		{`[[1.5, -0.5, 0], [1.5, -0.5, 0], [1.875, -1.25, 0.375]]`, 3, 0, 3},
	} {
		steps := func(nsSteps any) (int, error) {
			c, err := ParseConfig(fmt.Appendf(nil, `{"type": "muon", "lr": 1, "ns_coeffs": %s, "ns_steps": %v}`, test.coeffs, nsSteps))
			if err != nil {
				return 0, err
			}
			triples, _, err := c.(MuonConfig).polynomials()
			return len(triples), err
		}
		n, err := steps("null")
		require.NoError(t, err)
		require.Equal(t, test.normally, n, test.coeffs)
		for asked := -1; asked <= 100; asked++ {
			n, err := steps(asked)
			switch {
			case asked < 0 || asked > 99:
				require.EqualError(t, err, fmt.Sprintf("optim: ns_steps: got %d, want null or an integer in [0, 99]", asked))
			case asked < test.least || asked > test.most:
				require.ErrorContains(t, err, fmt.Sprintf("%d steps, want ", asked))
				require.ErrorContains(t, err, "optim: ns_steps: newton-schulz: ")
			default:
				require.NoError(t, err, test.coeffs)
				require.Equal(t, asked, n)
			}
		}
	}
	_, err := ParseConfig([]byte(`{"type": "muon", "lr": 1, "ns_coeffs": "cubic5", "ns_steps": 4}`))
	require.EqualError(t, err, "optim: ns_steps: newton-schulz: polynomial cubic5: 4 steps, want exactly 5")
	c, err := ParseConfig([]byte(`{"type": "muon", "lr": 1, "ns_coeffs": "polar-express", "ns_dtype": "bfloat16"}`))
	require.NoError(t, err)
	_, safety, err := c.(MuonConfig).polynomials()
	require.NoError(t, err)
	require.Equal(t, 1.02, safety)
}
