package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/lowbit/optim"
)

// plannedModel is a model's parameters by their shapes.
type plannedModel struct {
	source  string
	params  []optim.PlannedParam
	skipped []string
}

func (c *planCmd) model() (*plannedModel, error) {
	if c.Shapes != "" {
		return modelOfShapes(c.Shapes)
	}
	if info, err := os.Stat(c.File); err == nil && info.IsDir() {
		return nil, badInput("%s: a folder, want a file such as its model.safetensors, model.safetensors.index.json or config.json", c.File)
	}
	text, err := jsonText(c.File)
	if err != nil {
		return nil, inputError{err}
	}
	if text == nil {
		m := &plannedModel{source: c.File}
		return m, m.addFile(c.File, nil)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, badInput("%s: %w", c.File, err)
	}
	if index := keys["weight_map"]; index != nil {
		return modelOfIndex(c.File, index)
	}
	params, err := decoderParams(text)
	if err != nil {
		return nil, badInput("%s: %w", c.File, err)
	}
	return &plannedModel{source: c.File, params: params}, nil
}

// jsonText reads a file that begins as a JSON object, which a safetensors file does not: its
// first 8 bytes are a length. It returns nil for others.
func jsonText(path string) ([]byte, error) {
	const most = 100 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := make([]byte, 8)
	n, _ := io.ReadFull(f, start)
	start = start[:n]
	if trimmed := bytes.TrimLeft(start, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || bytes.Contains(start, []byte{0}) {
		return nil, nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || len(rest) == most {
		return nil, fmt.Errorf("%s: more than %d bytes of JSON, or unreadable: %v", path, most, err)
	}
	return append(start, rest...), nil
}

var shapePattern = regexp.MustCompile(`^[0-9]+(x[0-9]+)*$`)

func modelOfShapes(list string) (*plannedModel, error) {
	m := &plannedModel{source: "--shapes"}
	for i, text := range strings.Split(list, ",") {
		if !shapePattern.MatchString(text) {
			return nil, badInput("--shapes: %.100q is no shape, want sizes such as 4096x4096", text)
		}
		p := optim.PlannedParam{Name: fmt.Sprintf("%d:%s", i, text)}
		for _, size := range strings.Split(text, "x") {
			n, err := strconv.ParseInt(size, 10, 64)
			if err != nil {
				return nil, badInput("--shapes: size %.100q, want one below 2^63", size)
			}
			p.Shape = append(p.Shape, n)
		}
		m.params = append(m.params, p)
	}
	return m, nil
}

// addFile adds a file's tensors, or those that wanted names.
func (m *plannedModel) addFile(path string, wanted map[string]bool) error {
	f, err := openInput(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := refuseQuantised(f); err != nil {
		return err
	}
	if _, state := f.Metadata["lowbit.optimizer"]; state {
		return badInput("%s: it holds an optimizer's state, want a model's weights", path)
	}
	for _, t := range f.Tensors {
		if wanted != nil && !wanted[t.Name] {
			continue
		}
		delete(wanted, t.Name)
		if !isFloat(t.DType) {
			m.skipped = append(m.skipped, t.Name)
			continue
		}
		m.params = append(m.params, optim.PlannedParam{Name: t.Name, Shape: t.Shape, BFloat16: t.DType != "F32"})
	}
	return nil
}

// modelOfIndex is the model of the files beside an index, which maps tensors to them.
func modelOfIndex(path string, index []byte) (*plannedModel, error) {
	var files map[string]string
	if err := json.Unmarshal(index, &files); err != nil {
		return nil, badInput("%s: weight_map: %w", path, err)
	}
	tensors := map[string]map[string]bool{}
	for tensor, file := range files {
		if !filepath.IsLocal(file) {
			return nil, badInput("%s: weight_map: %.100q, want the name of a file beside it", path, file)
		}
		if tensors[file] == nil {
			tensors[file] = map[string]bool{}
		}
		tensors[file][tensor] = true
	}
	m := &plannedModel{source: path}
	for _, file := range sortedKeys(tensors) {
		at := filepath.Join(filepath.Dir(path), file)
		if err := m.addFile(at, tensors[file]); err != nil {
			return nil, err
		}
		for _, missing := range sortedKeys(tensors[file]) {
			return nil, badInput("%s: it has no tensor %.100q, which %s says is there", at, missing, path)
		}
	}
	return m, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := []string{}
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

var tokenEmbedding = regexp.MustCompile(`(^|[./])(embedding|embed_tokens|embed_in|token_embedding|tok_embeddings|word_embeddings|wte)(\.weight)?$`)

func isTokenEmbedding(p optim.PlannedParam) bool {
	return len(p.Shape) == 2 && tokenEmbedding.MatchString(p.Name)
}
