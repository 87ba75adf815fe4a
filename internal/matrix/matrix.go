// Package matrix writes the table of operations and backends that the README shows.
package matrix

import (
	"fmt"
	"path"
	"strings"

	"github.com/lowbit-go/lowbit/kernels"
)

// backends are the columns: a word in the names of implementations.
var backends = []string{"reference", "avx2", "avx512", "avx512bf16", "neon", "cuda", "metal"}

// backend is the column of an implementation: AVX-512 with VBMI and without are one.
func backend(implementation string) string {
	return strings.TrimSuffix(path.Base(implementation), "vbmi")
}

// Markdown is the table: a row for each operation, and for each backend how many of its
// variants have an implementation there.
func Markdown() string {
	var names []string
	variants := map[string]int{}
	class := map[string]kernels.Class{}
	implemented := map[[2]string]int{}
	for _, row := range kernels.Table() {
		if variants[row.Name] == 0 {
			names = append(names, row.Name)
		}
		variants[row.Name]++
		class[row.Name] = row.Class
		there := map[string]bool{}
		for _, impl := range row.Implementations {
			there[backend(impl.Name)] = true
		}
		for name := range there {
			implemented[[2]string{row.Name, name}]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| operation | class | %s |\n|---|---|%s\n", strings.Join(backends, " | "), strings.Repeat("---|", len(backends)))
	for _, name := range names {
		fmt.Fprintf(&b, "| %s | %s |", name, class[name])
		for _, backend := range backends {
			fmt.Fprintf(&b, " %s |", cell(implemented[[2]string{name, backend}], variants[name]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func cell(have, want int) string {
	switch have {
	case 0:
		return "–"
	case want:
		return "✓"
	default:
		return fmt.Sprintf("%d of %d", have, want)
	}
}
