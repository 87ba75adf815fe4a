package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

const checkpointKey = "lowbit.optimizer" // the metadata that describes an optimizer's state

// checkpoint is what a checkpoint's metadata says of the optimizer's state.
type checkpoint struct {
	Representation string `json:"representation"`
	Step           int64  `json:"step"`
	Config         struct {
		Block int64 `json:"quant_block_size"`
	} `json:"config"`
	Parameters []struct {
		Name      string  `json:"name"`
		Shape     []int64 `json:"shape"`
		Precision string  `json:"precision"`
	} `json:"parameters"`
}

// readDescription returns nil for a file that is no checkpoint.
func readDescription(f *tensorfile.File) (*checkpoint, error) {
	text, ok := f.Metadata[checkpointKey]
	if !ok {
		return nil, nil
	}
	saved := &checkpoint{}
	if err := json.Unmarshal([]byte(text), saved); err != nil {
		return nil, badInput("%s: metadata %s: %v", f.Path, checkpointKey, err)
	}
	return saved, nil
}

// warnCheckpoint warns where tensors of a checkpoint are about to change.
func (e *env) warnCheckpoint(f *tensorfile.File) {
	if _, ok := f.Metadata[checkpointKey]; ok {
		e.warn("%s is an optimizer's checkpoint, and no optimizer resumes from what this makes of it; lowbit convert-state changes how moments are kept", f.Path)
	}
}

// refuseCodes refuses a checkpoint whose moments are codes: those of two cannot be compared.
func refuseCodes(f *tensorfile.File) error {
	saved, err := readDescription(f)
	if err != nil || saved == nil {
		return err
	}
	for _, p := range saved.Parameters {
		if strings.Contains(p.Precision, "-bit") {
			return badInput("%s: the moments of parameter %.100q are %s codes, and --against compares numbers: make them float32 by lowbit convert-state first", f.Path, p.Name, p.Precision)
		}
	}
	return nil
}

// describe fills in how the codes of moments are kept.
func (c *checkpoint) describe(records []*record) {
	precision := map[string]string{}
	for _, p := range c.Parameters {
		precision[p.Name] = p.Precision
	}
	for _, r := range records {
		kind, name, _ := strings.Cut(r.Name, "/")
		if r.DType == "U8" && (kind == "exp_avg" || kind == "exp_avg_sq") {
			r.Format, r.Block = precision[name], c.Config.Block
		}
	}
}

// secondMoment says how much of a parameter's second moment is zero: such elements take
// steps that eps alone bounds.
type secondMoment struct {
	Name     string `json:"name"`
	Elements int64  `json:"elements"`
	Zeros    int64  `json:"zeros"`
}

// secondMoments probes the second moments of an optimizer's checkpoint.
func secondMoments(f *tensorfile.File, saved *checkpoint) ([]secondMoment, error) {
	var list []secondMoment
	for _, p := range saved.Parameters {
		m := momentFile{f, p.Name, elements(p.Shape)}
		var count int64
		var err error
		_, factored := f.Tensor("col/" + p.Name)
		_, whole := f.Tensor("exp_avg_sq/" + p.Name)
		switch {
		case m.elements < 0:
			err = badInput("%s: metadata %s: parameter %.100q has shape %v, want one of at most 2^62 elements", f.Path, checkpointKey, p.Name, p.Shape)
		case !factored && !whole:
			continue
		case m.elements == 0:
		case factored: // zero where the factor of its row or its column is
			count, err = m.factoredZeros(p.Shape)
		case whole && p.Precision == "4-bit": // its codes have no zero: where the scale is
			block := min(max(saved.Config.Block, 1), m.elements)
			count, err = m.zeros("exp_avg_sq_absmax/", (m.elements-1)/block+1)
			count = min(count*block, m.elements)
		default: // code 0 of the unsigned dynamic table is zero, as in numbers
			count, err = m.zeros("exp_avg_sq/", m.elements)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, secondMoment{p.Name, m.elements, count})
	}
	return list, nil
}

// elements is the number of elements of a shape, or -1 for what is none.
func elements(shape []int64) int64 {
	n := int64(1)
	for _, size := range shape {
		if size < 0 || size > 0 && n > 1<<62/size {
			return -1
		}
		n *= size
	}
	return n
}

// momentFile is a checkpoint with one parameter of it.
type momentFile struct {
	*tensorfile.File
	name     string
	elements int64
}

func (f momentFile) factoredZeros(shape []int64) (int64, error) {
	rows := int64(1)
	if len(shape) > 0 {
		rows = max(shape[0], 1)
	}
	cols := f.elements / rows
	emptyRows, err := f.zeros("row/", rows)
	if err != nil {
		return 0, err
	}
	emptyCols, err := f.zeros("col/", cols)
	return emptyRows*cols + emptyCols*rows - emptyRows*emptyCols, err
}

// zeros counts the zeros of one of the parameter's tensors, of numbers or codes.
func (f momentFile) zeros(kind string, n int64) (count int64, err error) {
	t, ok := f.Tensor(kind + f.name)
	switch {
	case !ok:
		return 0, badInput("%s: the checkpoint lacks tensor %.100q", f.Path, kind+f.name)
	case t.Elements() != n:
		return 0, badInput("%s: tensor %.100q has %d elements, want %d", f.Path, t.Name, t.Elements(), n)
	case t.DType != "U8" && !isFloat(t.DType):
		return 0, badInput("%s: tensor %.100q is %.100q, want numbers or codes", f.Path, t.Name, t.DType)
	}
	const piece = 1 << 16
	codes, numbers := make([]byte, piece), make([]float32, piece)
	for first := int64(0); first < t.Elements(); first += piece {
		n := min(piece, t.Elements()-first)
		if t.DType == "U8" {
			err = f.ReadAt(t, codes[:n], first)
			for _, code := range codes[:n] {
				if code == 0 {
					count++
				}
			}
		} else {
			err = f.ReadFloat32(t, numbers[:n], first)
			for _, x := range numbers[:n] {
				if x == 0 {
					count++
				}
			}
		}
		if err != nil {
			return 0, err
		}
	}
	return count, nil
}

func (e *env) printSecondMoments(list []secondMoment) error {
	if len(list) == 0 {
		return nil
	}
	rows := [][]string{{"SECOND MOMENT OF", "ELEMENTS", "ZERO", "SHARE"}}
	for _, s := range list {
		rows = append(rows, []string{printable(s.Name), fmt.Sprint(s.Elements), fmt.Sprint(s.Zeros),
			fmt.Sprintf("%.2f %%", 100*float64(s.Zeros)/float64(max(s.Elements, 1)))})
	}
	if _, err := fmt.Fprintln(e.stdout); err != nil {
		return err
	}
	return printTable(e.stdout, rows)
}
