package main

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

// bitsandbytesMark stands between a tensor's name and its format in the name of the tensor that describes it.
const bitsandbytesMark = ".quant_state.bitsandbytes__"

const (
	nestedBlock         = 256
	maxQuantStateBytes  = 1 << 16
	bitsandbytesMinimum = 32 // blocks are powers of two from here
	bitsandbytesMaximum = 4096
)

// quantState describes a quantised tensor as bitsandbytes does.
type quantState struct {
	QuantType    string      `json:"quant_type"`
	Blocksize    int64       `json:"blocksize"`
	DType        string      `json:"dtype"`
	Shape        []int64     `json:"shape"`
	NestedBlock  int64       `json:"nested_blocksize,omitempty"`
	NestedDType  string      `json:"nested_dtype,omitempty"`
	NestedOffset json.Number `json:"nested_offset,omitempty"`
}

var (
	torchNames = map[tensorfile.DType]string{"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
	dtypes     = map[string]tensorfile.DType{"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
)

func (a *archive) readBitsandbytes() error {
	for _, t := range a.Tensors {
		name, format, found := strings.Cut(t.Name, bitsandbytesMark)
		if !found {
			continue
		}
		if err := a.readQuantState(t, name, format); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) readQuantState(t tensorfile.Tensor, name, format string) error {
	if t.DType != "U8" || t.Bytes > maxQuantStateBytes {
		return a.problem(t.Name, "it is %s with %d bytes, want U8 with at most %d", t.DType, t.Bytes, maxQuantStateBytes)
	}
	text := make([]byte, t.Bytes)
	if err := a.ReadAt(t, text, 0); err != nil {
		return err
	}
	var state quantState
	if err := json.Unmarshal(text, &state); err != nil {
		return a.problem(t.Name, "%v", err)
	}
	q := &quantised{name: name, dtype: dtypes[state.DType], shape: state.Shape, bytes: t.Bytes}
	switch {
	case format != "nf4" && format != "fp4" || state.QuantType != format:
		return a.problem(t.Name, "its quant_type is %.100q, want nf4 or fp4 as its name says", state.QuantType)
	case state.Blocksize < 1 || state.Blocksize > maxBlock:
		return a.problem(t.Name, "its blocksize is %d, want 1 to %d", state.Blocksize, maxBlock)
	case q.dtype == "":
		return a.problem(t.Name, "its dtype is %.100q, want float32, float16 or bfloat16", state.DType)
	case state.Shape == nil:
		return a.problem(t.Name, "it has no shape")
	}
	if err := checkShape(q.shape); err != nil {
		return a.problem(t.Name, "%v", err)
	}
	a.parts[t.Name] = true
	quantMap, err := a.part(q, name+".quant_map", "F32", 16)
	if err != nil {
		return err
	}
	book, err := a.resolve(quantMap, format)
	if err != nil {
		return err
	}
	q.format = kernels.Format{Codebook: book, Block: int(state.Blocksize), Nibble: codebook.HighFirst}
	if state.NestedBlock != 0 || state.NestedOffset != "" {
		if err := a.readNested(q, t.Name, state); err != nil {
			return err
		}
	}
	return a.finish(q)
}

func (a *archive) readNested(q *quantised, stateName string, state quantState) error {
	if state.NestedBlock < 1 || state.NestedBlock > maxBlock/state.Blocksize {
		return a.problem(stateName, "its nested_blocksize is %d, want 1 to %d for a blocksize of %d",
			state.NestedBlock, maxBlock/state.Blocksize, state.Blocksize)
	}
	if state.NestedDType != "float32" {
		return a.problem(stateName, "its nested_dtype is %.100q, want float32", state.NestedDType)
	}
	offset, err := state.NestedOffset.Float64()
	if err != nil || math.IsInf(float64(float32(offset)), 0) {
		return a.problem(stateName, "its nested_offset is %.100q, want a float32 number", state.NestedOffset)
	}
	quantMap, err := a.part(q, q.name+".nested_quant_map", "F32", 256)
	if err != nil {
		return err
	}
	book, err := a.resolve(quantMap, codebook.Dynamic8().Name())
	if err != nil {
		return err
	}
	q.nested = &nested{format: kernels.Format{Codebook: book, Block: int(state.NestedBlock)}, offset: float32(offset)}
	scales := blocks(blocks(q.elements(), q.format.Block), q.nested.format.Block)
	q.nested.absmax, err = a.part(q, q.name+".nested_absmax", "F32", scales)
	return err
}

// bitsandbytesLayout writes quantised tensors as bitsandbytes' loaders read them.
type bitsandbytesLayout struct{ doubleQuant bool }

func (l bitsandbytesLayout) add(o *output, t tensorfile.Tensor, f kernels.Format) targets {
	scales := blocks(t.Elements(), f.Block)
	to := targets{codes: o.tensor(t.Name, "U8", codeBytes(f, t.Elements()), 1)}
	if l.doubleQuant {
		to.nested = &kernels.Format{Codebook: codebook.Dynamic8(), Block: nestedBlock}
		to.absmax = o.tensor(t.Name+".absmax", "U8", scales)
		to.nestedAbsmax = o.tensor(t.Name+".nested_absmax", "F32", blocks(scales, nestedBlock))
		o.codebook(t.Name+".nested_quant_map", to.nested.Codebook)
	} else {
		to.absmax = o.tensor(t.Name+".absmax", "F32", scales)
	}
	o.codebook(t.Name+".quant_map", f.Codebook)
	name := t.Name + bitsandbytesMark + f.Codebook.Name()
	state := o.tensor(name, "U8", int64(len(l.state(t, f, 0))))
	to.describe = func(w *tensorfile.Writer, offset float32) error { return w.WriteAt(state, l.state(t, f, offset), 0) }
	return to
}

func (bitsandbytesLayout) finish(*output, *codebook.Codebook) {}

// state is the JSON of a tensor, of the same length for every offset.
func (l bitsandbytesLayout) state(t tensorfile.Tensor, f kernels.Format, offset float32) []byte {
	s := quantState{
		QuantType: f.Codebook.Name(), Blocksize: int64(f.Block), DType: torchNames[t.DType], Shape: append([]int64{}, t.Shape...)}
	if l.doubleQuant {
		s.NestedBlock, s.NestedDType = nestedBlock, "float32"
		s.NestedOffset = json.Number(strconv.FormatFloat(float64(offset), 'e', 16, 64)) // 17 digits give any float64 back
	}
	text, _ := json.Marshal(s) // numbers and strings do not fail
	return text
}
