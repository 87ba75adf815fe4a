package lm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files writes a folder of files and returns its path.
func files(t *testing.T, contents map[string]string) string {
	root := t.TempDir()
	for name, content := range contents {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	return root
}

// numbered is a text of n lines that differ.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("x", i%7))
		b.WriteString(" line\n")
	}
	return b.String()
}

func TestLoadCorpus(t *testing.T) {
	text := numbered(1000)
	root := files(t, map[string]string{
		"b.txt": text, "a/z.txt": strings.ToUpper(text), "a/empty": "",
		"a/binary": "\x00" + text, "c": strings.Repeat("c", corpusCap),
	})
	whole := append([]byte(strings.ToUpper(text)+text), bytes.Repeat([]byte("c"), corpusCap-2*len(text))...)
	for name, want := range map[string][]byte{"": whole, "b.txt": []byte(text), "a": []byte(strings.ToUpper(text))} {
		got, err := LoadCorpus(filepath.Join(root, name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(split(want).Train, got.Train), "training part of %q", name)
		require.True(t, bytes.Equal(split(want).HeldOut, got.HeldOut), "held-out part of %q", name)
	}
}

func TestLoadCorpusRefuses(t *testing.T) {
	root := files(t, map[string]string{"empty/none": "", "short": "too short", "binary": numbered(900) + "\x00", "only/binary": "\x00" + numbered(900)})
	for name, want := range map[string]string{
		"missing": "missing",
		"empty":   "holds 0 bytes of text, want at least 2048",
		"only":    "holds 0 bytes of text, want at least 2048",
		"short":   "holds 9 bytes of text, want at least 2048",
		"binary":  "holds zero bytes, want text",
	} {
		_, err := LoadCorpus(filepath.Join(root, name))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, name)
	}
}

func TestSplit(t *testing.T) {
	for _, n := range []int{corpusMin, corpusMin + 1, 40_959, 40_960, 40_961, 100_000} {
		text := []byte(numbered(n))[:n]
		c := split(text)
		require.Equal(t, n, len(c.Train)+len(c.HeldOut))
		require.InDelta(t, 0.1, float64(len(c.HeldOut))/float64(n), 0.03, "%d bytes", n)
		require.True(t, bytes.HasPrefix(text, c.Train[:len(text)/10]))
	}
}

func TestEmbedded(t *testing.T) {
	c := Embedded()
	require.Greater(t, len(c.Train)+len(c.HeldOut), 30_000)
	require.Greater(t, len(c.HeldOut), 3_000)
	require.False(t, isBinary(c.Train))
	require.False(t, bytes.ContainsRune(c.Train, '\r'), "line ends were converted")
}

func TestGoSource(t *testing.T) {
	c, err := GoSource()
	if _, missing := exec.LookPath("go"); missing != nil {
		require.ErrorContains(t, err, "go env GOROOT")
		return
	}
	require.NoError(t, err)
	require.Equal(t, corpusCap, len(c.Train)+len(c.HeldOut))
	require.Contains(t, string(c.Train), "\npackage bufio\n")
}
