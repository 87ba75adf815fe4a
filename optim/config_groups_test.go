package optim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGlob(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		matches       bool
	}{
		{"*", "", true},
		{"*", "layers.0/w", true},
		{"w", "w", true},
		{"w", "ww", false},
		{"w", "layers.w", false},
		{"*.weight", "layers.0.attention.weight", true},
		{"*.weight", "weight", false},
		{"*.weight", "a.weights", false},
		{"layers.*.w", "layers.0/1.2.w", true},
		{"layers.*", "layersX0", false},
		{"layers.?.w", "layers.3.w", true},
		{"layers.?.w", "layers.10.w", false},
		{"?", "é", true},
		{"?", "/", true},
		{"a**b", "ab", true},
		{"*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
		{"h[0-2]", "h1", true},
		{"h[0-2]", "h3", false},
		{"h[^0-2]", "h3", true},
		{"h[!0-2]", "h1", false},
		{"h[!0-2]", "h", false},
		{"h[ab-]", "h-", true},
		{"h[a^!]", "h^", true},
		{"h[&~:]", "h~", true},
		{`h[\]]`, "h]", true},
		{`h[a\-c]`, "hb", false},
		{`h[a\-c]`, "h-", true},
		{`h[\d]`, "hd", true},
		{`h[\d]`, "h1", false},
		{"[[:alpha:]]", "a]", true},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{`a\[0]`, "a[0]", true},
		{"a]", "a]", true},
		{"a.b", "axb", false},
		{"(a|b)+$", "(a|b)+$", true},
		{"(a|b)+$", "a", false},
		{"a b\n*", "a b\nc\nd", true},
		{"a", "a\n", false},
	} {
		glob, err := compileGlob(test.pattern)
		require.NoError(t, err, test.pattern)
		require.Equal(t, test.matches, glob.MatchString(test.name), "%q against %q", test.pattern, test.name)
	}
	for pattern, want := range map[string]string{
		"[":      `[ needs characters and a ]`,
		"a[b":    `[ needs characters and a ]`,
		"a[]":    `[ needs characters and a ]`,
		"a[^]":   `[ needs characters and a ]`,
		"a[!]b":  `[ needs characters and a ]`,
		`a[b\]`:  `[ needs characters and a ]`,
		`a\`:     `\ needs a character after it`,
		"a[z-a]": `invalid character class range`,
	} {
		_, err := compileGlob(pattern)
		require.ErrorContains(t, err, want, pattern)
	}
}

func TestMatchGroups(t *testing.T) {
	names := []string{"emb", "layers.0.w", "layers.0.norm", "layers.1.w", "layers.1.norm"}
	groups := []ParamGroup{
		{Params: []string{"*.norm", "emb"}, WeightDecay: new(0.0), StatePrecision: "float32"},
		{Params: []string{"layers.*"}, LRScale: new(0.5), Optimizer: "muon"},
		{Params: []string{"layers.1.*"}, LRScale: new(0.0), StatePrecision: "int8", Role: "matrix"},
		{Params: []string{"*.norm"}, Optimizer: "adamw", WeightDecay: new(0.1)},
	}
	got, err := matchGroups(groups, names)
	require.NoError(t, err)
	require.Equal(t, []ParamGroup{
		{WeightDecay: new(0.0), StatePrecision: "fp32"},
		{LRScale: new(0.5), Optimizer: "muon"},
		{LRScale: new(0.5), WeightDecay: new(0.1), StatePrecision: "fp32", Optimizer: "adamw"},
		{LRScale: new(0.0), Role: "matrix", StatePrecision: "8bit", Optimizer: "muon"},
		{LRScale: new(0.0), WeightDecay: new(0.1), Role: "matrix", StatePrecision: "8bit", Optimizer: "adamw"},
	}, got)

	got, err = matchGroups(nil, names)
	require.NoError(t, err)
	require.Equal(t, make([]ParamGroup, len(names)), got)

	_, err = matchGroups([]ParamGroup{{Params: []string{"emb"}}, {Params: []string{"layers.*", "head*"}}}, names)
	require.EqualError(t, err, `optim: param_groups[1].params[1]: "head*" matches none of 5 parameters`)
	_, err = matchGroups([]ParamGroup{{Params: []string{"["}}}, names)
	require.EqualError(t, err, `optim: param_groups[0].params[0]: malformed pattern "[": [ needs characters and a ]`)
}
