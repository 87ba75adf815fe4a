package fuzz

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed testdata/fuzz
var files embed.FS

// Corpus returns the inputs of the operation's fuzz corpus, which have for every row
// everything noteworthy: lengths around what kernels unroll, from empty to beyond 4096
// (of matrix products more rows and columns than a tile has), the usual blocks and odd
// ones, and every kind of special value.
func (t Trial) Corpus() (inputs [][]byte) {
	target := "Fuzz" + strings.ReplaceAll(t.row.Name, "_", "")
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.EqualFold(path.Base(path.Dir(name)), target) {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		data, err := parseCorpusFile(string(text))
		inputs = append(inputs, data)
		return err
	})
	if err != nil {
		panic(err) // they are embedded, and a test reads every one
	}
	return inputs
}

// parseCorpusFile reads a file of go test's corpora that holds one []byte.
func parseCorpusFile(text string) ([]byte, error) {
	literal, begins := strings.CutPrefix(text, "go test fuzz v1\n[]byte(")
	literal, ends := strings.CutSuffix(literal, ")\n")
	if !begins || !ends {
		return nil, fmt.Errorf("got %q, want one []byte", text)
	}
	data, err := strconv.Unquote(literal)
	return []byte(data), err
}
