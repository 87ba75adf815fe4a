package optim

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// bitsandbytesBlock is the number of elements that share a scale in bitsandbytes'
// optimizers.
const bitsandbytesBlock = 256

// exported is a parameter's state as another system names its tensors.
type exported struct {
	name    string
	file    *stateFile
	tensors map[string]tensorfile.Tensor
}

// exportLayout is how a system's tensors are called.
type exportLayout struct {
	system  string
	kinds   []string // that a parameter may have
	moments func(e *exported) (m, v *storedMoment, err error)
}

var (
	torchTensors = exportLayout{"torch", []string{"exp_avg", "exp_avg_sq", "step"}, func(e *exported) (m, v *storedMoment, err error) {
		if m, err = e.numbers("exp_avg"); err == nil {
			v, err = e.numbers("exp_avg_sq")
		}
		return m, v, err
	}}
	bitsandbytesTensors = exportLayout{"bitsandbytes", []string{"state1", "state2", "absmax1", "absmax2", "qmap1", "qmap2", "step"}, func(e *exported) (m, v *storedMoment, err error) {
		if m, err = e.codes("1"); err == nil {
			v, err = e.codes("2")
		}
		return m, v, err
	}}
)

// importTensors reads tensors that are called by a parameter's name, a dot and what they
// are.
func (s *SavedState) importTensors(layout exportLayout) error {
	if _, ours := s.file.Metadata[checkpointKey]; ours {
		return s.errorf("it is a checkpoint of lowbit, want a state of %s", layout.system)
	}
	params := map[string]*exported{}
	for _, t := range s.file.Tensors {
		dot := strings.LastIndexByte(t.Name, '.')
		kind := t.Name[dot+1:]
		if dot < 1 || !slices.Contains(layout.kinds, kind) {
			return s.errorf("tensor %q, want names of parameters followed by one of .%s as in an exported state of %s",
				t.Name, strings.Join(layout.kinds, " ."), layout.system)
		}
		name := t.Name[:dot]
		if params[name] == nil {
			params[name] = &exported{name, s.file, map[string]tensorfile.Tensor{}}
		}
		params[name].tensors[kind] = t
	}
	if len(params) == 0 {
		return s.errorf("it holds no tensors, want a state of %s", layout.system)
	}
	names := []string{}
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p, err := params[name].parameter(layout)
		if err != nil {
			return err
		}
		s.params = append(s.params, p)
		s.step = max(s.step, p.Step)
		if p.m.book != nil || p.v.book != nil {
			s.Block = bitsandbytesBlock
		}
	}
	return nil
}

func (e *exported) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: parameter %q: "+format, append([]any{e.file.Path, e.name}, args...)...)
}

func (e *exported) tensor(kind string) (tensorfile.Tensor, error) {
	t, ok := e.tensors[kind]
	if !ok {
		return t, e.errorf("tensor %q is missing", e.name+"."+kind)
	}
	return t, nil
}

func (e *exported) parameter(layout exportLayout) (p savedParameter, err error) {
	if p.m, p.v, err = layout.moments(e); err != nil {
		return p, err
	}
	if !slices.Equal(p.m.values.Shape, p.v.values.Shape) {
		return p, e.errorf("moments have shapes %v and %v, want one", p.m.values.Shape, p.v.values.Shape)
	}
	if p.Step, err = e.step(); err != nil {
		return p, err
	}
	p.Name, p.Shape, p.Optimizer = e.name, p.m.values.Shape, "adamw"
	return p, nil
}

// numbers is a moment in F32, BF16 or F16.
func (e *exported) numbers(kind string) (*storedMoment, error) {
	t, err := e.tensor(kind)
	if err != nil {
		return nil, err
	}
	if t.DType != "F32" && t.DType != "BF16" && t.DType != "F16" {
		return nil, e.errorf("tensor %q is %s, want F32, BF16 or F16", t.Name, t.DType)
	}
	return &storedMoment{from: e.file, values: t}, nil
}

// codes is a moment of bitsandbytes, which keeps small parameters' in F32.
func (e *exported) codes(number string) (*storedMoment, error) {
	t, err := e.tensor("state" + number)
	if err != nil || t.DType != "U8" {
		m, err := e.numbers("state" + number)
		if err == nil && e.tensors["absmax"+number].Name != "" {
			err = e.errorf("tensor %q is %s and has scales, want U8", t.Name, t.DType)
		}
		return m, err
	}
	scales, err := e.tensor("absmax" + number)
	if err != nil {
		return nil, err
	}
	if want := ceilDiv(t.Elements(), bitsandbytesBlock); scales.DType != "F32" || scales.Elements() != want {
		return nil, e.errorf("tensor %q is %s %v, want %d scales in F32 for %d codes in blocks of %d",
			scales.Name, scales.DType, scales.Shape, want, t.Elements(), bitsandbytesBlock)
	}
	table, err := e.tensor("qmap" + number)
	if err != nil {
		return nil, err
	}
	book, err := readCodebook(e.file.File, table, "qmap"+number)
	if err != nil {
		return nil, err
	}
	values := book.Values()
	if len(values) != 256 {
		return nil, e.errorf("tensor %q has %d values, want 256", table.Name, len(values))
	}
	for i, x := range values[1:] {
		if x <= values[i] {
			return nil, e.errorf("tensor %q: element %d is %v after %v, want increasing values", table.Name, i+1, x, values[i])
		}
	}
	if number == "2" && values[0] < 0 {
		return nil, e.errorf("tensor %q: element 0 is %v, want values of 0 or more, which second moments have", table.Name, values[0])
	}
	return &storedMoment{from: e.file, values: t, book: book, block: bitsandbytesBlock, scales: scales}, nil
}

// step is a whole number of any dtype that torch stores it in.
func (e *exported) step() (int64, error) {
	t, err := e.tensor("step")
	if err != nil {
		return 0, err
	}
	raw := make([]byte, 8)
	size := t.DType.Bits() / 8
	if t.Elements() != 1 || size > 8 {
		return 0, e.errorf("tensor %q is %s %v, want one number", t.Name, t.DType, t.Shape)
	}
	if err := e.file.ReadAt(t, raw[:size], 0); err != nil {
		return 0, err
	}
	var step float64
	switch t.DType {
	case "F32":
		step = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	case "F64":
		step = math.Float64frombits(binary.LittleEndian.Uint64(raw))
	case "I32":
		return e.countedStep(int64(int32(binary.LittleEndian.Uint32(raw))))
	case "I64":
		return e.countedStep(int64(binary.LittleEndian.Uint64(raw)))
	default:
		return 0, e.errorf("tensor %q is %s, want F32, F64, I32 or I64", t.Name, t.DType)
	}
	if !(step >= 0 && step <= maxImportedStep) || step != math.Trunc(step) {
		return 0, e.errorf("step %v, want a whole number from 0 to 2^53", step)
	}
	return int64(step), nil
}

func (e *exported) countedStep(step int64) (int64, error) {
	if step < 0 || step > maxImportedStep {
		return 0, e.errorf("step %d, want a whole number from 0 to 2^53", step)
	}
	return step, nil
}

// maxImportedStep is how far a float64 counts, in which others compute with it.
const maxImportedStep = 1 << 53
