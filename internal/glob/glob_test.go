package glob_test

import (
	"testing"

	"github.com/lowbit-go/lowbit/internal/glob"
	"github.com/stretchr/testify/require"
)

func TestCompile(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		matches       bool
	}{
		{"*", "", true},
		{"*", "a.b/c d\n", true},
		{"*.weight", "layers.0/attn.weight", true},
		{"*.weight", "layers.0.weight.absmax", false},
		{"layers.?.w", "layers.1.w", true},
		{"layers.?.w", "layers.11.w", false},
		{"?", "é", true},
		{"l[0-2]", "l1", true},
		{"l[!0-2]", "l1", false},
		{"l[^0-2]", "l3", true},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{"a.b", "axb", false},
	} {
		re, err := glob.Compile(c.pattern)
		require.NoError(t, err, c.pattern)
		require.Equal(t, c.matches, re.MatchString(c.name), "%q against %q", c.pattern, c.name)
	}
	for pattern, want := range map[string]string{
		"a[b":    `malformed pattern "a[b": [ needs characters and a ]`,
		"a[!]b":  `malformed pattern "a[!]b": [ needs characters and a ]`,
		`a\`:     `malformed pattern "a\\": \ needs a character after it`,
		"a[z-a]": `malformed pattern "a[z-a]": invalid character class range`,
	} {
		_, err := glob.Compile(pattern)
		require.EqualError(t, err, want)
	}
}
