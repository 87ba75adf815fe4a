package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/lowbit/internal/lm"
)

// corpus is a text with what identifies it.
type corpus struct {
	lm.Corpus
	id corpusID
}

type corpusID struct {
	Source string `json:"source"` // of --corpus; empty is the Go standard library
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const embeddedText = "embedded"

// loadCorpus reads the text that the value of --corpus names.
func (e *env) loadCorpus(source string) (corpus, error) {
	switch source {
	case "":
		text, err := lm.GoSource()
		if err == nil {
			return newCorpus(text, source), nil
		}
		e.warn("no source of the Go standard library (%v): training on the embedded text", err)
		return newCorpus(lm.Embedded(), embeddedText), nil
	case embeddedText:
		return newCorpus(lm.Embedded(), embeddedText), nil
	}
	text, err := lm.LoadCorpus(source)
	if err != nil {
		return corpus{}, badInput("--corpus: %s", strings.TrimPrefix(err.Error(), "lm: "))
	}
	path, err := filepath.Abs(source)
	if err != nil {
		return corpus{}, err
	}
	return newCorpus(text, path), nil
}

func newCorpus(text lm.Corpus, source string) corpus {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %d\n", len(text.Train), len(text.HeldOut))
	sum.Write(text.Train)
	sum.Write(text.HeldOut)
	return corpus{text, corpusID{source, len(text.Train) + len(text.HeldOut), hex.EncodeToString(sum.Sum(nil))}}
}

func (c corpusID) name() string {
	switch c.Source {
	case "":
		return "the source of the Go standard library"
	case embeddedText:
		return "the embedded text"
	}
	return c.Source
}

// String names the text and what is in it.
func (c corpusID) String() string {
	return fmt.Sprintf("%s (%d bytes, sha256 %s)", c.name(), c.Bytes, c.SHA256)
}
