package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

const (
	lowbitKey      = "lowbit.tensors" // the metadata that describes the quantised tensors
	codebookPrefix = "lowbit.codebook."
)

// lowbitTensor describes a quantised tensor in the metadata.
type lowbitTensor struct {
	Format string           `json:"format"`
	Block  int64            `json:"block"`
	Nibble string           `json:"nibble"` // "low" or "high", and empty for 8-bit codes
	Shape  []int64          `json:"shape"`
	DType  tensorfile.DType `json:"dtype"`
}

func (a *archive) readLowbit() error {
	text, ok := a.Metadata[lowbitKey]
	if !ok {
		return nil
	}
	described := map[string]lowbitTensor{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&described)
	if err == nil && described == nil {
		err = fmt.Errorf("null, want an object")
	}
	if _, more := decoder.Token(); err == nil && more != io.EOF {
		err = fmt.Errorf("more than one value")
	}
	if err != nil {
		return badInput("%s: metadata %s: %w", a.Path, lowbitKey, err)
	}
	books := map[string]*codebook.Codebook{}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		d := described[name]
		if books[d.Format] == nil {
			if books[d.Format], err = a.codebook(name, d.Format); err != nil {
				return err
			}
		}
		q, err := d.quantised(name, books[d.Format])
		if err != nil {
			return a.problem(name, "metadata %s: %v", lowbitKey, err)
		}
		if err := a.finish(q); err != nil {
			return err
		}
	}
	return nil
}

// codebook reads the table of a format that the tensor of that name uses.
func (a *archive) codebook(name, format string) (*codebook.Codebook, error) {
	t, ok := a.Tensor(codebookPrefix + format)
	switch {
	case !ok:
		return nil, a.problem(name, "its format is %.100q, but there is no tensor %.100q", format, codebookPrefix+format)
	case t.DType != "F32" || t.Elements() < 2 || t.Elements() > 256:
		return nil, a.problem(t.Name, "it is %s with %d elements, want F32 with 2 to 256", t.DType, t.Elements())
	}
	a.parts[t.Name] = true
	a.books = append(a.books, t.Name)
	return a.resolve(t, format)
}

// resolve reads a codebook.
func (a *archive) resolve(t tensorfile.Tensor, format string) (*codebook.Codebook, error) {
	values := make([]float32, t.Elements())
	if err := a.ReadFloat32(t, values, 0); err != nil {
		return nil, err
	}
	book, err := codebook.Resolve(format, values)
	if err != nil {
		return nil, a.problem(t.Name, "%v", err)
	}
	return book, nil
}

func (d lowbitTensor) quantised(name string, book *codebook.Codebook) (*quantised, error) {
	nibble, known := map[string]codebook.Nibble{"low": codebook.LowFirst, "high": codebook.HighFirst}[d.Nibble]
	switch {
	case d.Block < 1 || d.Block > maxBlock:
		return nil, fmt.Errorf("its block is %d, want 1 to %d", d.Block, maxBlock)
	case book.Bits() == 4 && !known:
		return nil, fmt.Errorf("its nibble is %.100q, want low or high", d.Nibble)
	case book.Bits() == 8 && d.Nibble != "":
		return nil, fmt.Errorf("its nibble is %.100q, want none for 8-bit codes", d.Nibble)
	case d.Shape == nil:
		return nil, fmt.Errorf("it has no shape")
	case !isFloat(d.DType):
		return nil, fmt.Errorf("its dtype is %.100q, want F32, F16 or BF16", d.DType)
	}
	if err := checkShape(d.Shape); err != nil {
		return nil, err
	}
	return &quantised{
		name: name, dtype: d.DType, shape: d.Shape,
		format: kernels.Format{Codebook: book, Block: int(d.Block), Nibble: nibble},
	}, nil
}

// isFloat tells whether tensors of the dtype are quantised and rounded.
func isFloat(dtype tensorfile.DType) bool {
	return dtype == "F32" || dtype == "F16" || dtype == "BF16"
}

// lowbitLayout writes quantised tensors in the lowbit layout.
type lowbitLayout struct{ described map[string]lowbitTensor }

func (l lowbitLayout) add(o *output, t tensorfile.Tensor, f kernels.Format) targets {
	d := lowbitTensor{f.Codebook.Name(), int64(f.Block), "", append([]int64{}, t.Shape...), t.DType}
	if f.Codebook.Bits() == 4 {
		d.Nibble = f.Nibble.String()
	}
	l.described[t.Name] = d
	return targets{
		codes:  o.tensor(t.Name, "U8", codeBytes(f, t.Elements())),
		absmax: o.tensor(t.Name+".absmax", "F32", blocks(t.Elements(), f.Block)),
	}
}

func (l lowbitLayout) finish(o *output, book *codebook.Codebook) {
	if len(l.described) == 0 {
		return
	}
	text, _ := json.Marshal(l.described) // numbers and strings do not fail
	o.metadata = maps.Clone(o.metadata)
	o.metadata[lowbitKey] = string(text)
	o.codebook(codebookPrefix+book.Name(), book)
}
