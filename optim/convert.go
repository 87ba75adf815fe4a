package optim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// SavedState is an optimizer's state in a file: a checkpoint, or what another system's
// optimizer exported. Convert writes it in any representation.
type SavedState struct {
	// Config is the configuration of the checkpoint, nil for other systems' states.
	Config Config
	// Block is the number of elements that share a scale, 0 where the file holds no codes.
	Block int
	// Metadata is what the checkpoint was saved with. Convert writes it too.
	Metadata map[string]string

	file   *stateFile
	step   int64
	params []savedParameter
	work   convertWork
}

type savedParameter struct {
	checkpointParameter
	precision   string // 8bit or fp32 where one was given for the parameter
	m, v        *storedMoment
	low, weight *tensorfile.Tensor
}

// OpenState opens a checkpoint, of which it checks the description and every byte. from is
// lowbit, or empty, for one that Save or Convert wrote, or torch or bitsandbytes, whose
// export docs/convert.md describes. A second moment or a scale below 0 is an error. The file
// stays open until Close.
func OpenState(path, from string) (*SavedState, error) {
	f, err := tensorfile.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := readState(f, from)
	if err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the file. The state is of no use then.
func (s *SavedState) Close() error { return s.file.Close() }

func readState(f *tensorfile.File, from string) (*SavedState, error) {
	s := &SavedState{file: &stateFile{File: f}}
	var err error
	switch from {
	case "", "lowbit":
		err = s.readCheckpoint()
	case "torch":
		err = s.importTensors(torchTensors)
	case "bitsandbytes":
		err = s.importTensors(bitsandbytesTensors)
	default:
		return nil, fmt.Errorf("optim: state from %q, want lowbit, torch or bitsandbytes", from)
	}
	if err == nil {
		err = s.checkValues()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *SavedState) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{s.file.Path}, args...)...)
}

// readCheckpoint finds the tensors of a checkpoint of ours.
func (s *SavedState) readCheckpoint() error {
	saved, err := parseCheckpoint(s.file.File)
	if err != nil {
		return err
	}
	if s.Config, err = ParseConfig(saved.Config); err != nil {
		return s.errorf("the checkpoint's configuration: %w", err)
	}
	if err := verifyChecksum(s.file.File); err != nil {
		return err
	}
	s.step = saved.Step
	s.Metadata = maps.Clone(s.file.Metadata)
	delete(s.Metadata, checkpointKey)
	books, err := readCodebooks(s.file.File)
	if err != nil {
		return err
	}
	planned, explicit, err := s.planSaved(saved.Parameters)
	if err != nil {
		return err
	}
	for i, p := range planned {
		param := savedParameter{checkpointParameter: saved.Parameters[i], precision: explicit[i]}
		if p.describe().Optimizer != param.Optimizer || p.storage.String() != param.Precision {
			return s.errorf("parameter %q: checkpoint holds %s %s, its configuration says %s %s",
				p.Name, param.Optimizer, param.Precision, p.describe().Optimizer, p.storage)
		}
		if param.Step < 0 || param.Step > s.step {
			return s.errorf("parameter %q: step %d, want 0 to %d", p.Name, param.Step, s.step)
		}
		if err := s.findTensors(&param, p, books); err != nil {
			return err
		}
		s.params = append(s.params, param)
	}
	return nil
}

// planSaved settles the parameters by the checkpoint's configuration. Where the precision is
// another than it says, one was given for the parameter.
func (s *SavedState) planSaved(saved []checkpointParameter) (planned []*parameter, explicit []string, err error) {
	list := make([]PlannedParam, len(saved))
	for i, p := range saved {
		low := holds(s.file.File, "low/"+p.Name)
		list[i] = PlannedParam{Name: p.Name, Shape: p.Shape, Role: p.Role, BFloat16: low}
	}
	explicit = make([]string, len(saved))
	if planned, err = planParameters(s.Config, list); err != nil {
		return nil, nil, s.errorf("%w", err)
	}
	for i, p := range planned {
		if p.storage.String() != saved[i].Precision {
			explicit[i] = map[string]string{"8-bit": "8bit", "float32": "fp32"}[saved[i].Precision]
			list[i].StatePrecision = explicit[i]
		}
	}
	if planned, err = planParameters(s.Config, list); err != nil {
		return nil, nil, s.errorf("%w", err)
	}
	return planned, explicit, nil
}

// findTensors finds those of a parameter of the planned layout.
func (s *SavedState) findTensors(param *savedParameter, p *parameter, books map[string]*codebook.Codebook) error {
	n, _ := p.checkShape()
	found := map[string]tensorfile.Tensor{}
	for _, size := range p.layout.sizes(p.Shape, n) {
		name := size.kind + "/" + p.Name
		t, ok := s.file.Tensor(name)
		if !ok {
			return s.errorf("checkpoint lacks tensor %q", name)
		}
		if t.DType != size.dtype || len(t.Shape) != 1 || t.Shape[0] != size.elements {
			return s.errorf("tensor %q is %s %v, want %s [%d]", name, t.DType, t.Shape, size.dtype, size.elements)
		}
		found[size.kind] = t
	}
	moment := func(kind string, l momentLayout) (*storedMoment, error) {
		m := &storedMoment{from: s.file, values: found[kind]}
		if !l.quantized() {
			return m, nil
		}
		m.scales, m.block, m.book = found[kind+"_absmax"], int64(l.format.Block), books[l.format.Codebook.Name()]
		if m.book == nil {
			return nil, s.errorf("checkpoint lacks tensor %q", "codebook/"+l.format.Codebook.Name())
		}
		s.Block = l.format.Block
		return m, nil
	}
	var err error
	if param.m, err = moment("exp_avg", p.layout.m); err != nil {
		return err
	}
	switch {
	case p.layout.factored:
		param.v = &storedMoment{from: s.file, factored: true, row: found["row"], col: found["col"]}
	case p.layout.v.held:
		if param.v, err = moment("exp_avg_sq", p.layout.v); err != nil {
			return err
		}
	}
	if low, ok := found["low"]; ok {
		param.low = &low
	}
	if weight, ok := s.file.Tensor("weight/" + p.Name); ok {
		param.weight = &weight
	}
	return nil
}

// readCodebooks reads the tables that a checkpoint's codes were made with.
func readCodebooks(f *tensorfile.File) (map[string]*codebook.Codebook, error) {
	const prefix = "codebook/"
	books := map[string]*codebook.Codebook{}
	for _, t := range f.Tensors {
		if name, ok := strings.CutPrefix(t.Name, prefix); ok {
			book, err := readCodebook(f, t, name)
			if err != nil {
				return nil, err
			}
			books[name] = book
		}
	}
	return books, nil
}

func readCodebook(f *tensorfile.File, t tensorfile.Tensor, name string) (*codebook.Codebook, error) {
	if n := t.Elements(); t.DType != "F32" || n < 2 || n > 256 {
		return nil, fmt.Errorf("%s: tensor %q is %s %v, want 2 to 256 values in F32", f.Path, t.Name, t.DType, t.Shape)
	}
	values := make([]float32, t.Elements())
	if err := f.ReadFloat32(t, values, 0); err != nil {
		return nil, err
	}
	book, err := codebook.Resolve(name, values)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", f.Path, t.Name, err)
	}
	return book, nil
}

// verifyChecksum reads the whole file.
func verifyChecksum(f *tensorfile.File) error {
	last := len(f.Tensors) - 1
	if last < 0 || f.Tensors[last].Name != checksumTensor || f.Tensors[last].Bytes != checksum.Bytes {
		return fmt.Errorf("%s: the last tensor is no %s, want a checkpoint", f.Path, checksumTensor)
	}
	sum := newChecksum(f.Metadata, f.Tensors)
	buffer := make([]byte, pieceBytes)
	for i, t := range f.Tensors {
		for off := int64(0); off < t.Bytes; off += pieceBytes {
			chunk := buffer[:min(pieceBytes, t.Bytes-off)]
			if err := f.ReadAt(t, chunk, off); err != nil {
				return err
			}
			if i < last {
				sum.Write(chunk)
			} else if !bytes.Equal(chunk, sum.Sum(nil)) {
				return fmt.Errorf("%s: the checksum does not match: the checkpoint was altered", f.Path)
			}
		}
	}
	return nil
}

// ConvertOptions are how Convert writes.
type ConvertOptions struct {
	Overwrite bool                       // replaces a file of that name, which is an error otherwise
	Progress  func(written, total int64) // called now and then with bytes, or nil
}

// Converted says what became of a parameter's state.
type Converted struct {
	Name  string
	Shape []int64
	// How each moment was kept and is now, such as "float32", "dynamic8 block 128" or "factors";
	// V is empty where there is no second moment.
	FromM, FromV, ToM, ToV string
	// KeptM and KeptV say that codes and scales are the same as before, or the numbers.
	KeptM, KeptV bool
	// NonFinite counts the numbers, scales of blocks and factors written that are not finite.
	NonFinite int64
}

// Convert writes the state as a checkpoint of a configuration, from which an optimizer of
// that configuration, with the same parameters and roles, resumes. What is the same kind of
// state is kept bit for bit, weights and split masters too; else moments are rounded to
// nearest or quantised anew. Codes of the same block whose codebook differs by a few units in the
// last place, as bitsandbytes' does from ours, are kept, and stand for our values then.
//
// A second moment becomes factors by the means of its rows and columns, which are those that
// a run with factors has when it gets the same gradients; factors become their products.
//
// Adam's state does not become Muon's, nor the other way around, and masters are not made:
// such configurations are an error, and so is one that gives a parameter another optimizer.
// The file appears whole or not at all. It is worked on in pieces, whatever its size.
func (s *SavedState) Convert(ctx context.Context, path string, config Config, options ConvertOptions) ([]Converted, error) {
	planned, err := s.planTarget(config)
	if err != nil {
		return nil, err
	}
	metadata := map[string]string{}
	maps.Copy(metadata, s.Metadata)
	o := &Optimizer{config: config, common: config.common(), params: planned, step: s.step}
	description, err := json.Marshal(o.describe())
	if err != nil {
		return nil, err
	}
	metadata[checkpointKey] = string(description)
	var tensors []checkpointTensor
	for _, p := range o.codebookPieces() {
		tensors = append(tensors, p.checkpointTensor(&cursor{}))
	}
	report := make([]Converted, len(planned))
	for i, p := range planned {
		c := s.converter(p, &s.params[i], &report[i])
		tensors = append(tensors, c.tensors()...)
	}
	for _, p := range s.params {
		if p.weight != nil {
			tensors = append(tensors, s.copied(*p.weight))
		}
	}
	w := checkpointWriter{path, metadata, options.Overwrite, options.Progress}
	return report, w.write(ctx, tensors)
}

// Check reports what makes Convert refuse a configuration; nil where it does not. It reads
// and writes nothing.
func (s *SavedState) Check(config Config) error {
	_, err := s.planTarget(config)
	return err
}

// planTarget settles the parameters by another configuration.
func (s *SavedState) planTarget(config Config) ([]*parameter, error) {
	if config == nil {
		return nil, fmt.Errorf("optim: no configuration, want an AdamWConfig or a MuonConfig")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := s.checkKind(config); err != nil {
		return nil, err
	}
	list := make([]PlannedParam, len(s.params))
	for i, p := range s.params {
		list[i] = PlannedParam{Name: p.Name, Shape: p.Shape, Role: p.Role, BFloat16: p.low != nil}
		if takesPrecision(config) {
			list[i].StatePrecision = p.precision
		}
	}
	planned, err := planParameters(config, list)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	for i, p := range planned {
		*p.step = s.params[i].Step
		if want := p.describe().Optimizer; s.params[i].Optimizer != want {
			return nil, s.errorf("parameter %q: the state is %s's, the configuration asks for %s", p.Name, s.params[i].Optimizer, want)
		}
	}
	return planned, nil
}

// checkKind refuses configurations whose state cannot be made of this one.
func (s *SavedState) checkKind(config Config) error {
	from := s.Config
	if from == nil {
		from = DefaultAdamW()
	}
	if from.Type() != config.Type() {
		return s.errorf("the state is %s's, the configuration asks for %s", from.Type(), config.Type())
	}
	if a, b := from.common().Master, config.common().Master; a != b {
		return s.errorf("the state has master %s, the configuration asks for %s", a, b)
	}
	a, _ := from.(MuonConfig)
	if b, _ := config.(MuonConfig); a.sumsMomentum() != b.sumsMomentum() {
		return s.errorf("the momentum is of variant %s, the configuration asks for %s, of which one sums gradients and the other averages them", a.Variant, b.Variant)
	}
	return nil
}

// takesPrecision tells whether parameters may choose between codes and float32.
func takesPrecision(config Config) bool {
	switch c := config.(type) {
	case AdamWConfig:
		return c.Adam8bit
	case MuonConfig:
		return c.momentumStorage() == store8bit
	}
	return false
}

// copied is a tensor as it is.
func (s *SavedState) copied(t tensorfile.Tensor) checkpointTensor {
	return checkpointTensor{t, pieceBytes, func(dst []byte, off int64) error { return s.file.ReadAt(t, dst, off) }}
}
