package main

import (
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

type stepCmd struct {
	Config    string      `required:"" placeholder:"FILE" help:"The optimizer's configuration (JSON)."`
	Params    string      `required:"" placeholder:"FILE" help:"The parameters: its F32 and BF16 tensors."`
	Grads     []string    `required:"" sep:"none" placeholder:"FILE" help:"The gradients of one step, under the parameters' names. Repeat it for more steps, in order."`
	State     string      `placeholder:"FILE" help:"The optimizer's state, from --out-state of an earlier call. Without it the first step is step 1."`
	OutParams string      `required:"" placeholder:"FILE" help:"Where the parameters go."`
	OutState  string      `required:"" placeholder:"FILE" help:"Where the optimizer's state goes."`
	Force     bool        `help:"Replace output files that exist; they may be those of --params and --state."`
	Threads   threadCount `placeholder:"N" help:"Use at most N threads; 0 means one a core."`
}

func (*stepCmd) Help() string {
	return `Prints one line of JSON a step: step, lr, grad_norm, clip, what was skipped, and the bytes of the state. Gradients are F32,
BF16 or F16. A parameter that has no gradient is left alone; tensors of other dtypes are copied. Roles and everything else
that differs between parameters stand in the configuration's param_groups; docs/configuration.md lists its keys. Matrices are [in, out] for Muon's variant
optax and [out, in] for the others, as in the systems that they come from. A state is one that lowbit step, convert-state or
the library's Save wrote without weights.

The steps of one call and of several give the same bits. Both files appear, or neither does, unless the process is killed in
the moment between their two names. Of several calls with --force at once one may leave its parameters and another its state.

Example:

    lowbit step --config adam.json --params p0.safetensors --grads g1.safetensors --out-params p1.safetensors --out-state s1.safetensors
    lowbit step --config adam.json --params p1.safetensors --grads g2.safetensors --state s1.safetensors --out-params p2.safetensors --out-state s2.safetensors
`
}

func (c *stepCmd) Run(e *env) error {
	defer c.Threads.use()()
	if err := c.checkOutputs(); err != nil {
		return err
	}
	config, err := e.readConfig(c.Config)
	if err != nil {
		return err
	}
	for _, warning := range config.Warnings() {
		e.warn("%s: %s", c.Config, warning)
	}
	params, err := openInput(c.Params)
	if err != nil {
		return err
	}
	defer params.Close()
	s, err := newStepper(config, params)
	if err != nil {
		return err
	}
	defer s.opt.Close()
	if err := s.load(c.State); err != nil {
		return err
	}
	files, err := s.openGradients(c.Grads)
	defer closeAll(files)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		if err := s.step(e, f); err != nil {
			return err
		}
	}
	return s.write(e, c)
}

// checkOutputs finds out before any work what would make writing the outputs an error.
func (c *stepCmd) checkOutputs() error {
	if samePath(c.OutParams, c.OutState) {
		return badInput("--out-params and --out-state are both %s, want two files", c.OutParams)
	}
	inputs := append([]string{c.Config, c.Params, c.State}, c.Grads...)
	for _, out := range []struct{ path, replaces string }{{c.OutParams, c.Params}, {c.OutState, c.State}} {
		for _, in := range inputs {
			if sameFile(in, out.path) && !(c.Force && in == out.replaces) {
				return badInput("%s is an input and %s the same file as output, want another one", in, out.path)
			}
		}
		if err := probe(out.path, c.Force); err != nil {
			return err
		}
	}
	return nil
}

// samePath tells whether two paths, of files that need not exist, name the same one.
func samePath(a, b string) bool {
	return sameFile(a, b) || filepath.Base(a) == filepath.Base(b) && sameFile(filepath.Dir(a), filepath.Dir(b))
}

// stepper is an optimizer on the tensors of a file.
type stepper struct {
	file   *tensorfile.File
	values map[string]values // of the parameters
	params []optim.Param     // in the order of their names
	opt    *optim.Optimizer
}

// values are the elements of a tensor in one of two formats.
type values struct {
	wide   []float32
	narrow []uint16 // bf16
}

func newStepper(config optim.Config, file *tensorfile.File) (*stepper, error) {
	s := &stepper{file: file, values: map[string]values{}}
	for _, t := range file.Tensors {
		if t.DType != "F32" && t.DType != "BF16" {
			continue
		}
		weights, err := readValues(file, t)
		if err != nil {
			return nil, err
		}
		s.values[t.Name] = weights
		s.params = append(s.params, optim.Param{Name: t.Name, Shape: t.Shape, InputAxis: inputAxis(config), Weights: weights.floats()})
	}
	slices.SortFunc(s.params, func(a, b optim.Param) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if s.opt, err = optim.New(config, s.params); err != nil {
		return nil, newOptimizerError(err, file.Path)
	}
	return s, nil
}

// inputAxis is that of the matrices of the system which a configuration follows.
func inputAxis(config optim.Config) int {
	if c, ok := config.(optim.MuonConfig); ok && c.Variant != "optax" {
		return 1
	}
	return 0
}

// mostInMemory is the number of elements of a tensor or matrix that is not worked on in
// pieces.
const mostInMemory = min(1<<33, math.MaxInt/8)

// readValues reads a whole F32, BF16 or F16 tensor, the last as float32.
func readValues(f *tensorfile.File, t tensorfile.Tensor) (v values, err error) {
	n := t.Elements()
	switch {
	case n > mostInMemory:
		return v, badInput("%s: tensor %.100q has %d elements, want at most %d, which have to fit into memory", f.Path, t.Name, n, int64(mostInMemory))
	case t.DType == "BF16":
		v.narrow = make([]uint16, n)
		return v, f.ReadUint16(t, v.narrow, 0)
	}
	v.wide = make([]float32, n)
	return v, f.ReadFloat32(t, v.wide, 0)
}

func (v values) floats() kernels.Floats {
	if v.narrow != nil {
		return kernels.BF16s(v.narrow)
	}
	return kernels.Float32s(v.wide)
}

func (v values) write(w *tensorfile.Writer, index int) error {
	if v.narrow != nil {
		return w.WriteUint16(index, v.narrow, 0)
	}
	return w.WriteFloat32(index, v.wide, 0)
}

// load continues from a state file.
func (s *stepper) load(path string) error {
	if path == "" {
		return nil
	}
	f, err := openInput(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, t := range f.Tensors {
		if strings.HasPrefix(t.Name, "weight/") {
			return badInput("%s: it holds weights too, want a state alone, as lowbit step or the library's Save without SaveOptions{Weights: true} writes it", path)
		}
	}
	if _, err := s.opt.Load(path); err != nil {
		return inputError{err}
	}
	return nil
}

// openGradients opens the files and checks that each tensor in them is the gradient of a parameter. It returns what it
// opened also when one of them is an error.
func (s *stepper) openGradients(paths []string) (files []*tensorfile.File, err error) {
	for _, path := range paths {
		f, err := openInput(path)
		if err != nil {
			return files, err
		}
		files = append(files, f)
		for _, t := range f.Tensors {
			if err := s.checkGradient(f, t); err != nil {
				return files, err
			}
		}
	}
	return files, nil
}

func (s *stepper) checkGradient(f *tensorfile.File, t tensorfile.Tensor) error {
	p, ok := s.file.Tensor(t.Name)
	switch {
	case !ok:
		return badInput("%s: %s has no parameter %.100q", f.Path, s.file.Path, t.Name)
	case p.DType != "F32" && p.DType != "BF16":
		return badInput("%s: tensor %.100q, which has a gradient in %s, is %s, want F32 or BF16", s.file.Path, t.Name, f.Path, p.DType)
	case !isFloat(t.DType):
		return badInput("%s: gradient %.100q is %s, want F32, BF16 or F16", f.Path, t.Name, t.DType)
	case !slices.Equal(t.Shape, p.Shape):
		return badInput("%s: gradient %.100q has shape %s, want %s as in %s", f.Path, t.Name, shapeText(t.Shape), shapeText(p.Shape), s.file.Path)
	}
	return nil
}

func closeAll(files []*tensorfile.File) {
	for _, f := range files {
		f.Close()
	}
}

type stepJSON struct {
	Step              int64            `json:"step"`
	LR                float64          `json:"lr"`
	GradNorm          number           `json:"grad_norm"`
	Clip              float64          `json:"clip"`
	Skipped           bool             `json:"skipped"`
	NonFinite         int64            `json:"nonfinite"`
	SkippedElements   int64            `json:"skipped_elements"`
	SkippedBlocks     int64            `json:"skipped_blocks"`
	SkippedParameters int64            `json:"skipped_parameters"`
	State             map[string]int64 `json:"state"`
}

// step takes a step with the gradients of a file and prints what it did.
func (s *stepper) step(e *env, f *tensorfile.File) error {
	for i := range s.params {
		s.params[i].Gradients = kernels.Floats{}
		t, ok := f.Tensor(s.params[i].Name)
		if !ok {
			continue
		}
		gradients, err := readValues(f, t)
		if err != nil {
			return err
		}
		s.params[i].Gradients = gradients.floats()
	}
	norm := number(s.opt.GradNorm())
	r, err := s.opt.Step()
	if err != nil {
		return err
	}
	return json.NewEncoder(e.stdout).Encode(stepJSON{
		r.Step, r.LR, norm, r.Clip, r.Skipped, r.NonFinite, r.SkippedElements, r.SkippedBlocks, r.SkippedParameters, s.opt.Metrics(),
	})
}

// write writes both outputs under other names first.
func (s *stepper) write(e *env, c *stepCmd) error {
	w, err := tensorfile.Create(c.OutParams, s.file.Metadata, s.file.Tensors, c.Force)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := s.writeParams(e, w); err != nil {
		return err
	}
	s.file.Close() // Windows does not replace open files
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if err := w.Finish(); err != nil { // so that little time passes between the two names
		return err
	}
	moved, err := tensorfile.Place(c.OutState, c.Force, func(temporary string) error {
		return s.opt.Save(temporary, optim.SaveOptions{})
	})
	if err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return errors.Join(err, moved.Undo())
	}
	moved.Keep()
	return nil
}

func (s *stepper) writeParams(e *env, w *tensorfile.Writer) error {
	buffer := []byte{}
	for i, t := range s.file.Tensors {
		if weights, ok := s.values[t.Name]; ok {
			if err := weights.write(w, i); err != nil {
				return err
			}
			continue
		}
		err := e.pieces(t.Bytes, 1, func(first int64, n int) error {
			raw := sized(&buffer, n)
			if err := s.file.ReadAt(t, raw, first); err != nil {
				return err
			}
			return w.WriteAt(i, raw, first)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
