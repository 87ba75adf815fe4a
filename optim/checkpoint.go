package optim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

const (
	checkpointVersion = 1
	checkpointKey     = "lowbit.optimizer" // of the file's metadata
	checksumTensor    = "sha256"
	maxSteps          = 1 << 62 // so that counting on never overflows
)

// SaveOptions are what a checkpoint holds beside the optimizer's state.
type SaveOptions struct {
	Weights  bool              // the parameters' weights too
	Metadata map[string]string // of the caller, which Load returns
}

// checkpoint is the description of the state in a file's metadata.
type checkpoint struct {
	FormatVersion  int                   `json:"format_version"`
	Representation string                `json:"representation"`
	Config         json.RawMessage       `json:"config"`
	Step           int64                 `json:"step"`
	Seed           uint64                `json:"seed"`
	Parameters     []checkpointParameter `json:"parameters"`
}

type checkpointParameter struct {
	Name      string  `json:"name"`
	Shape     []int64 `json:"shape"`
	Role      string  `json:"role"`
	Optimizer string  `json:"optimizer"`
	Precision string  `json:"precision"`
	Step      int64   `json:"step"`
}

// Save writes the optimizer's state to a safetensors file, from which Load resumes bit for
// bit. The file appears whole, replacing one of that name, or not at all. Accumulated
// gradients are not part of it: saving between Accumulate and Step is an error.
func (o *Optimizer) Save(path string, options SaveOptions) error {
	if o.disk != nil && o.disk.closed {
		return closedError{}
	}
	for _, p := range o.params {
		if p.hasSums {
			return p.errorf("gradients of micro-batches are accumulated, want a Step before a checkpoint")
		}
	}
	if _, taken := options.Metadata[checkpointKey]; taken {
		return fmt.Errorf("optim: metadata key %s is the checkpoint's own, want another", checkpointKey)
	}
	description, err := json.Marshal(o.describe())
	if err != nil {
		return err
	}
	metadata := map[string]string{}
	maps.Copy(metadata, options.Metadata)
	metadata[checkpointKey] = string(description)
	states := cursor{disk: o.disk}
	defer states.leave()
	tensors := []checkpointTensor{}
	for _, p := range o.pieces(options.Weights) {
		tensors = append(tensors, p.checkpointTensor(&states))
	}
	w := checkpointWriter{path: path, metadata: metadata, overwrite: true}
	return w.write(context.Background(), tensors)
}

// Load continues from a checkpoint that was saved with the same representation of the
// state and the same parameters, in any order. Where it holds weights, they are restored
// too, in place. It returns the metadata that Save was given.
//
// A checkpoint of another representation, with other parameters, shapes, roles or
// precisions, of which a byte was altered, or that is no checkpoint, is an error that names
// what the file holds and what was wanted. A failed load changes nothing: the state is read
// into memory of its own first, or into a scratch file of its own where states are
// offloaded to disk. How they are offloaded may change between Save and Load.
func (o *Optimizer) Load(path string) (metadata map[string]string, err error) {
	f, err := tensorfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return o.load(f)
}

func (o *Optimizer) load(f *tensorfile.File) (map[string]string, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	saved, err := parseCheckpoint(f)
	if err != nil {
		return nil, err
	}
	params, err := o.match(f, saved)
	if err != nil {
		return nil, err
	}
	weights := len(params) > 0 && holds(f, weightName(params[0]))
	loaded, err := o.empty(params, weights)
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	if err := readPieces(f, loaded.pieces(weights), cursor{disk: loaded.disk, write: true}); err != nil {
		return nil, err
	}
	o.engine.begin() // the last step cannot be taken again
	if o.disk != nil {
		o.disk.takeFile(loaded.disk)
	}
	for i, p := range params {
		*p.step, p.hasSums = saved.Parameters[i].Step, false
		if o.disk == nil {
			p.moments = loaded.params[i].moments
		}
		if weights {
			copy(p.Weights.F32, loaded.params[i].Weights.F32)
			copy(p.Weights.BF16, loaded.params[i].Weights.BF16)
		}
	}
	o.step = saved.Step
	metadata := maps.Clone(f.Metadata)
	delete(metadata, checkpointKey)
	return metadata, nil
}

func holds(f *tensorfile.File, tensor string) bool {
	_, ok := f.Tensor(tensor)
	return ok
}

func parseCheckpoint(f *tensorfile.File) (*checkpoint, error) {
	text, ok := f.Metadata[checkpointKey]
	if !ok {
		return nil, fmt.Errorf("%s: no optimizer checkpoint: the metadata has no %s", f.Path, checkpointKey)
	}
	var version struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", f.Path, checkpointKey, err)
	}
	if version.FormatVersion != checkpointVersion {
		return nil, fmt.Errorf("%s: checkpoint format %d, want %d", f.Path, version.FormatVersion, checkpointVersion)
	}
	saved := &checkpoint{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(saved); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", f.Path, checkpointKey, err)
	}
	if saved.Step < 0 || saved.Step > maxSteps {
		return nil, fmt.Errorf("%s: the checkpoint's step is %d, want 0 to 2^62", f.Path, saved.Step)
	}
	return saved, nil
}

// match refuses a checkpoint of another representation or of other parameters. It returns
// the optimizer's parameters in the checkpoint's order.
func (o *Optimizer) match(f *tensorfile.File, saved *checkpoint) ([]*parameter, error) {
	bad := func(format string, args ...any) ([]*parameter, error) {
		return nil, fmt.Errorf("%s: "+format, append([]any{f.Path}, args...)...)
	}
	if want := o.config.representation(); saved.Representation != want {
		hint := ""
		if kind, _, _ := strings.Cut(want, " "); strings.HasPrefix(saved.Representation, kind+" ") {
			hint = "; lowbit convert-state converts states"
		}
		return bad("checkpoint holds %s, the configuration asks for %s%s", saved.Representation, want, hint)
	}
	if saved.Seed != o.common.Seed && o.usesSeed() {
		return bad("checkpoint holds seed %d, the configuration asks for seed %d", saved.Seed, o.common.Seed)
	}
	left := map[string]*parameter{}
	for _, p := range o.params {
		left[p.Name] = p
	}
	var params []*parameter
	for _, s := range saved.Parameters {
		p := left[s.Name]
		if p == nil {
			return bad("checkpoint holds parameter %q, which the model lacks", s.Name)
		}
		delete(left, s.Name)
		params = append(params, p)
		want := p.describe()
		switch {
		case !slices.Equal(s.Shape, want.Shape):
			return bad("parameter %q: checkpoint holds shape %v, the model has %v", s.Name, s.Shape, want.Shape)
		case s.Role != want.Role || s.Optimizer != want.Optimizer || s.Precision != want.Precision:
			return bad("parameter %q: checkpoint holds %s %s %s, the configuration asks for %s %s %s",
				s.Name, s.Role, s.Optimizer, s.Precision, want.Role, want.Optimizer, want.Precision)
		case s.Step < 0 || s.Step > saved.Step:
			return bad("parameter %q: step %d, want 0 to %d", s.Name, s.Step, saved.Step)
		}
	}
	for _, p := range o.params {
		if left[p.Name] != nil {
			return bad("checkpoint lacks parameter %q", p.Name)
		}
	}
	return params, nil
}

func (o *Optimizer) usesSeed() bool {
	c, ok := o.config.(AdamWConfig)
	return o.common.WeightRounding == "stochastic" || ok && c.MomentsRounding == "stochastic"
}

// empty is an optimizer of the same configuration that keeps the parameters' states in
// memory or a file of its own, and their weights in memory if asked to. Its parameters are
// in the given order, but offloaded like this one's.
func (o *Optimizer) empty(order []*parameter, weights bool) (*Optimizer, error) {
	params := make([]Param, len(o.params))
	for i, p := range o.params {
		params[i] = *p.Param
		params[i].Gradients = kernels.Floats{}
		if weights && p.narrow {
			params[i].Weights = kernels.BF16s(make([]uint16, p.n))
		} else if weights {
			params[i].Weights = kernels.Float32s(make([]float32, p.n))
		}
	}
	e, err := New(o.config, params)
	if err != nil {
		return nil, err
	}
	byName := map[string]*parameter{}
	for _, p := range e.params {
		byName[p.Name] = p
	}
	e.params = make([]*parameter, len(order))
	for i, p := range order {
		e.params[i] = byName[p.Name]
	}
	return e, nil
}

func (o *Optimizer) describe() checkpoint {
	config, _ := json.Marshal(o.config.resident()) // of plain, checked values
	c := checkpoint{
		FormatVersion: checkpointVersion, Representation: o.config.representation(),
		Config: config, Step: o.step, Seed: o.common.Seed,
	}
	for _, p := range o.params {
		c.Parameters = append(c.Parameters, p.describe())
	}
	return c
}

func (p *parameter) describe() checkpointParameter {
	c := checkpointParameter{p.Name, append([]int64{}, p.Shape...), p.role, "adamw", p.storage.String(), *p.step}
	if p.muon {
		c.Optimizer = "muon"
	}
	return c
}

// representation names how an AdamW configuration keeps its state.
func (c AdamWConfig) representation() string {
	name := "adam " + c.MomentsDtype
	switch {
	case c.Adam8bit:
		name = fmt.Sprintf("adam 8-bit block %d", c.QuantBlockSize)
	case c.Adam4bit:
		name = fmt.Sprintf("adam 4-bit block %d", c.QuantBlockSize)
	case c.MomentsRounding == "stochastic":
		name += " stochastic"
	}
	if c.Headroom {
		name += " with headroom"
	}
	return name + c.Common.masterName()
}

func (c MuonConfig) representation() string {
	name := "muon " + c.MomentumDtype
	if c.momentumStorage() == store8bit {
		name += fmt.Sprintf(" block %d", c.QuantBlockSize)
	}
	if c.sumsMomentum() {
		name += " of summed gradients"
	}
	return name + c.Common.masterName()
}

func (c Common) masterName() string {
	if c.Master == "split" {
		return " with a split master"
	}
	return ""
}

// piece is a tensor of a checkpoint.
type piece struct {
	StateTensor
	name  string
	shape []int64
	owner *parameter // whose state it is a part of, or nil
	index int        // of the part
}

// pieces are the checkpoint's tensors in order: the codebooks in use, then each
// parameter's state, then the weights if asked for.
func (o *Optimizer) pieces(weights bool) []piece {
	pieces := o.codebookPieces()
	for _, p := range o.params {
		for i, t := range p.moments.tensors() {
			pieces = append(pieces, piece{t, t.Kind + "/" + p.Name, []int64{t.elements()}, p, i})
		}
	}
	if weights {
		for _, p := range o.params {
			t := StateTensor{Kind: "weight", F32: p.Weights.F32, BF16: p.Weights.BF16}
			pieces = append(pieces, piece{StateTensor: t, name: weightName(p), shape: p.Shape})
		}
	}
	return pieces
}

func weightName(p *parameter) string { return "weight/" + p.Name }

// codebookPieces are the codebooks in use.
func (o *Optimizer) codebookPieces() []piece {
	var books []*codebook.Codebook
	for _, p := range o.params {
		for _, m := range []momentLayout{p.layout.m, p.layout.v} {
			if m.quantized() && !slices.Contains(books, m.format.Codebook) {
				books = append(books, m.format.Codebook)
			}
		}
	}
	var pieces []piece
	for _, book := range books {
		values := book.Values()
		t := StateTensor{Kind: "codebook", F32: values}
		pieces = append(pieces, piece{StateTensor: t, name: "codebook/" + book.Name(), shape: []int64{int64(len(values))}})
	}
	return pieces
}

func (p piece) tensor() tensorfile.Tensor {
	return tensorfile.Tensor{Name: p.name, DType: p.dtype(), Shape: p.shape, Bytes: p.bytes()}
}

func (p piece) checkpointTensor(states *cursor) checkpointTensor {
	return checkpointTensor{p.tensor(), pieceBytes, func(dst []byte, off int64) error {
		if err := states.to(&p); err != nil {
			return err
		}
		p.encode(dst, off)
		return nil
	}}
}

// readPieces fills the pieces from a file that must hold exactly them.
func readPieces(f *tensorfile.File, pieces []piece, states cursor) error {
	want := make([]tensorfile.Tensor, len(pieces))
	for i, p := range pieces {
		want[i] = p.tensor()
	}
	want = append(want, checksum)
	names := map[string]bool{}
	for _, w := range want {
		names[w.Name] = true
		t, ok := f.Tensor(w.Name)
		if !ok {
			return fmt.Errorf("%s: checkpoint lacks tensor %q", f.Path, w.Name)
		}
		if t.DType != w.DType || !slices.Equal(t.Shape, w.Shape) {
			return fmt.Errorf("%s: tensor %q is %s %v, want %s %v", f.Path, w.Name, t.DType, t.Shape, w.DType, w.Shape)
		}
	}
	for _, t := range f.Tensors {
		if !names[t.Name] {
			return fmt.Errorf("%s: checkpoint holds tensor %q, which does not belong to it", f.Path, t.Name)
		}
	}
	sum := newChecksum(f.Metadata, want)
	buffer := make([]byte, pieceBytes)
	for i, piece := range pieces {
		if err := states.to(&piece); err != nil {
			return err
		}
		t, _ := f.Tensor(want[i].Name)
		for off := int64(0); off < t.Bytes; off += pieceBytes {
			chunk := buffer[:min(pieceBytes, t.Bytes-off)]
			if err := f.ReadAt(t, chunk, off); err != nil {
				return err
			}
			sum.Write(chunk)
			if piece.Kind == "codebook" {
				if err := piece.checkValues(chunk, off); err != nil {
					return fmt.Errorf("%s: tensor %q: %w", f.Path, t.Name, err)
				}
				continue
			}
			piece.decode(chunk, off)
		}
	}
	if err := states.leave(); err != nil {
		return err
	}
	saved := make([]byte, sha256.Size)
	t, _ := f.Tensor(checksumTensor)
	if err := f.ReadAt(t, saved, 0); err != nil {
		return err
	}
	if !bytes.Equal(saved, sum.Sum(nil)) {
		return fmt.Errorf("%s: the checksum does not match: the checkpoint was altered", f.Path)
	}
	return nil
}
