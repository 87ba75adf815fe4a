package lm

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	corpusCap = 4 << 20 // bytes; what lies past them is not read
	corpusMin = 2 << 10 // bytes of text, so that a held-out part means something
)

// Corpus is a text in two parts: one to train on, one to measure on.
type Corpus struct {
	Train, HeldOut []byte
}

//go:embed text.txt
var embedded []byte

// Embedded returns a text about low-precision training that is part of the package.
func Embedded() Corpus { return split(embedded) }

// LoadCorpus reads a file, or the text files of a folder and the folders below it in the
// order of their names. A file with a zero byte is no text: in a folder it is left out.
// Links inside a folder are not followed, and reading stops after 4 MiB.
func LoadCorpus(path string) (Corpus, error) {
	return load(path, func(fs.DirEntry) bool { return true })
}

// GoSource reads the source of the Go standard library that the go command belongs to,
// up to 4 MiB: its packages without tests, vendored code and the commands.
func GoSource() (Corpus, error) {
	cmd := exec.Command("go", "env", "GOROOT")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	if err != nil {
		return Corpus{}, fmt.Errorf("lm: go env GOROOT: %w", err)
	}
	root := strings.TrimSpace(string(out))
	if root == "" {
		return Corpus{}, errors.New("lm: go env GOROOT names no folder")
	}
	return load(filepath.Join(root, "src"), func(entry fs.DirEntry) bool {
		name := entry.Name()
		if entry.IsDir() {
			return name != "cmd" && name != "testdata" && name != "vendor"
		}
		return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
	})
}

// load reads the text at path; keep says which files and folders below a folder count.
func load(path string, keep func(fs.DirEntry) bool) (Corpus, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Corpus{}, fmt.Errorf("lm: %w", err)
	}
	var text []byte
	switch {
	case info.IsDir():
		text, err = readFolder(path, keep)
	case info.Mode().IsRegular():
		text, err = readText(path, corpusCap)
		if err == nil && isBinary(text) {
			return Corpus{}, fmt.Errorf("lm: %s holds zero bytes, want text", path)
		}
	default:
		return Corpus{}, fmt.Errorf("lm: %s is %s, want a file or a folder", path, info.Mode().Type())
	}
	if err != nil {
		return Corpus{}, fmt.Errorf("lm: %w", err)
	}
	if len(text) < corpusMin {
		return Corpus{}, fmt.Errorf("lm: %s holds %d bytes of text, want at least %d", path, len(text), corpusMin)
	}
	return split(text), nil
}

func readFolder(root string, keep func(fs.DirEntry) bool) ([]byte, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	var text []byte
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == root:
			return nil
		case entry.IsDir() && !keep(entry):
			return fs.SkipDir
		case !entry.Type().IsRegular() || !keep(entry): // a folder to enter is not regular either
			return nil
		case len(text) == corpusCap:
			return fs.SkipAll
		}
		more, err := readText(path, corpusCap-len(text))
		if err == nil && !isBinary(more) {
			text = append(text, more...)
		}
		return err
	})
	return text, err
}

// readText reads at most limit bytes of a file.
func readText(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)))
}

func isBinary(text []byte) bool { return bytes.IndexByte(text, 0) >= 0 }

// split holds out every tenth block of the text, so that both parts have something of
// everywhere in it.
func split(text []byte) Corpus {
	const of = 10
	block := min(4096, len(text)/of)
	var c Corpus
	for i := 0; len(text) > 0; i++ {
		n := min(block, len(text))
		if i%of == of-1 {
			c.HeldOut = append(c.HeldOut, text[:n]...)
		} else {
			c.Train = append(c.Train, text[:n]...)
		}
		text = text[n:]
	}
	return c
}
