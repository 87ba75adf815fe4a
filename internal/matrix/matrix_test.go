//go:build amd64 && !purego

package matrix

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table into the README")

const (
	readme = "../../README.md"
	begin  = "<!-- operations: go test ./internal/matrix -update -->\n"
	end    = "<!-- end of operations -->\n"
)

func TestReadmeShowsTheTable(t *testing.T) {
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "the README lacks %q", begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "the README lacks %q", end)
	want := before + begin + Markdown() + end + after
	if *update {
		require.NoError(t, os.WriteFile(readme, []byte(want), 0o644))
		return
	}
	require.True(t, want == string(text), "the table is another now:\n%s", Markdown())
}

// TestReadmeShowsTheExample, so that it compiles.
func TestReadmeShowsTheExample(t *testing.T) {
	example, err := os.ReadFile("../../examples/first/main.go")
	require.NoError(t, err)
	_, program, _ := strings.Cut(string(example), "\n")
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	require.Contains(t, string(text), "```go\n"+program+"```\n")
}

func TestEveryImplementationHasAColumn(t *testing.T) {
	for _, row := range kernels.Table() {
		for _, impl := range row.Implementations {
			require.Contains(t, backends, backend(impl.Name))
		}
	}
}
