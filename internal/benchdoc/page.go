package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

//go:embed page.md
var text string

var page = template.Must(template.New("page").Parse(text))

// document is what page.md is filled with.
type document struct {
	Date, Go    string
	Machine     machine
	Versions    map[string]string
	Steps       []string
	Ours, Peers []row
}

// Threads are the numbers of threads that were measured on.
func (d document) Threads() (counts []int) {
	for _, r := range d.Ours {
		if !slices.Contains(counts, r.Threads) {
			counts = append(counts, r.Threads)
		}
	}
	slices.Sort(counts)
	return counts
}

// Vectors are the lines of a table of the operations on vectors.
func (d document) Vectors() []string {
	return d.lines(false, []string{"Gelem/s", "GB/s", "of limit"}, func(r row) []string {
		return []string{billions(r.ElementsPerS), billions(r.BytesPerS), percent(r.LimitFraction)}
	})
}

// Matrices are those of the operations on matrices.
func (d document) Matrices() []string {
	return d.lines(true, []string{"ms", "GFLOP/s", "of peak"}, func(r row) []string {
		return []string{fmt.Sprintf("%.3g", 1e3*r.Seconds), billions(r.Flops), percent(r.PeakFraction)}
	})
}

// lines have a group of columns for each number of threads.
func (d document) lines(matrices bool, titles []string, cells func(row) []string) []string {
	header := []string{"operation", "variant", "implementation"}
	for _, threads := range d.Threads() {
		for _, title := range titles {
			header = append(header, fmt.Sprintf("%s, %s", title, plural(threads, "thread")))
		}
	}
	table := []string{line(header), line(slices.Repeat([]string{"---"}, len(header)))}
	seen := map[string]bool{}
	for _, first := range d.Ours {
		if (first.Flops > 0) != matrices || seen[first.what()+first.with()] {
			continue
		}
		seen[first.what()+first.with()] = true
		columns := []string{first.Operation, first.variant(), first.with()}
		for _, threads := range d.Threads() {
			i := slices.IndexFunc(d.Ours, func(r row) bool {
				return r.what() == first.what() && r.with() == first.with() && r.Threads == threads
			})
			if i < 0 {
				columns = append(columns, slices.Repeat([]string{"–"}, len(titles))...)
			} else {
				columns = append(columns, cells(d.Ours[i])...)
			}
		}
		table = append(table, line(columns))
	}
	return table
}

// Beside are the lines of a table of other libraries' work, with how many times as fast
// each of our implementations does it.
func (d document) Beside() []string {
	header := []string{"operation", "variant", "library", "threads", "its rate", "ours, times as fast"}
	table := []string{line(header), line(slices.Repeat([]string{"---"}, len(header)))}
	for _, peer := range d.Peers {
		ours := []string{}
		for _, r := range d.Ours {
			if r.what() == peer.what() && r.Threads == peer.Threads {
				ours = append(ours, fmt.Sprintf("%s %.2f", r.with(), r.ElementsPerS/peer.ElementsPerS))
			}
		}
		rate := billions(peer.ElementsPerS) + " Gelem/s"
		if len(peer.Shape) > 1 {
			rate = fmt.Sprintf("%.3g ms", 1e3*peer.Seconds)
		}
		if len(ours) > 0 {
			table = append(table, line([]string{peer.Operation, peer.variant(), peer.Implementation, fmt.Sprint(peer.Threads), rate, strings.Join(ours, ", ")}))
		}
	}
	return table
}

// what is the work of a row: of vectors their length does not matter.
func (r row) what() string {
	if len(r.Shape) == 1 {
		return r.Operation + "/" + r.Variant
	}
	return fmt.Sprint(r.Operation, "/", r.Variant, r.Shape)
}

// with is the implementation, and the method where there are several.
func (r row) with() string {
	if r.Method == "gram" {
		return r.Implementation + " gram"
	}
	return r.Implementation
}

// variant is what distinguishes rows of an operation.
func (r row) variant() string {
	words := []string{}
	if r.Variant != "" {
		words = append(words, r.Variant)
	}
	if r.Format != "" {
		words = append(words, fmt.Sprintf("(%s, block %d)", r.Format, r.Block))
	}
	if len(r.Shape) > 1 {
		words = append(words, strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Shape), "[]"), " ", "×"))
	}
	return strings.Join(words, " ")
}

func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// billions has three digits.
func billions(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%.3g", x/1e9), ".") }

func percent(x float64) string {
	if x == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// GB, GFMA and GDot are the machine's rates in billions.
func (m machine) GB() float64   { return m.StreamBytesPerS / 1e9 }
func (m machine) GFMA() float64 { return m.FMAFlops / 1e9 }
func (m machine) GDot() float64 { return m.BF16DotFlops / 1e9 }
