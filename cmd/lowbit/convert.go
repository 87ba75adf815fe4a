package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// conversion is the part of the command line that commands which turn one file into another share.
type conversion struct {
	In      string      `arg:"" help:"The safetensors file to read."`
	Out     string      `arg:"" help:"The safetensors file to write. It appears whole or not at all."`
	Force   bool        `help:"Replace OUT if it exists."`
	Threads threadCount `placeholder:"N" help:"Use at most N threads; 0 means one a core."`
	JSON    bool        `name:"json" help:"Print the table as one JSON object."`
}

// output is the plan of a file: its tensors, and the jobs that write them.
type output struct {
	in       *tensorfile.File
	metadata map[string]string
	tensors  []tensorfile.Tensor
	jobs     []job
	records  []*record
	scratch  scratch
}

// job writes one or more tensors of an output. It calls done with the input bytes that it has dealt with.
type job func(w *tensorfile.Writer, done func(bytes int64)) error

// convert opens the input, has plan fill in the output, writes it and prints what became of its tensors.
func (e *env) convert(c *conversion, plan func(o *output) error) error {
	o, err := e.produce(c, plan)
	if err != nil {
		return err
	}
	return e.printConversion(o, c)
}

// produce is convert without the printing.
func (e *env) produce(c *conversion, plan func(o *output) error) (*output, error) {
	in, err := openInput(c.In)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := checkOutput(c); err != nil {
		return nil, err
	}
	o := &output{in: in, metadata: in.Metadata}
	if err := plan(o); err != nil {
		return nil, err
	}
	return o, e.write(o, c.Out, c.Force)
}

func openInput(path string) (*tensorfile.File, error) {
	f, err := tensorfile.Open(path)
	if err != nil {
		return nil, inputError{err}
	}
	return f, nil
}

// checkOutput finds out before any work what would make writing the output an error.
func checkOutput(c *conversion) error {
	if sameFile(c.In, c.Out) {
		return badInput("%s and %s are the same file, want another one for the output", c.In, c.Out)
	}
	return refuseExisting(c.Out, c.Force)
}

// refuseExisting finds that an output exists or its folder does not, and leaves all else to the creation of the file.
func refuseExisting(path string, force bool) error {
	folder := filepath.Dir(path)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return badInput("%s: the folder %s does not exist", path, folder)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !force {
		return badInput("%s exists already, want a new name or --force", path)
	}
	return nil
}

// probe finds out before any work whether an output can be written.
func probe(path string, force bool) error {
	if err := refuseExisting(path, force); err != nil {
		return err
	}
	w, err := tensorfile.Create(path, nil, nil, force)
	if err != nil {
		return err
	}
	return w.Abort()
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func (e *env) write(o *output, path string, overwrite bool) error {
	if err := o.checkNames(); err != nil {
		return err
	}
	w, err := tensorfile.Create(path, o.metadata, o.tensors, overwrite)
	if err != nil {
		return err
	}
	defer w.Abort()
	total := int64(0)
	for _, t := range o.in.Tensors {
		total += t.Bytes
	}
	bar := e.progress(total)
	defer bar.end()
	for _, job := range o.jobs {
		if err := job(w, bar.add); err != nil {
			return err
		}
	}
	if err := e.ctx.Err(); err != nil {
		return err
	}
	return w.Commit()
}

// checkNames refuses an input with a tensor of a name that the output needs.
func (o *output) checkNames() error {
	names := make(map[string]bool, len(o.tensors))
	for _, t := range o.tensors {
		if names[t.Name] {
			return badInput("%s: it has a tensor %.100q, a name that the output needs for another", o.in.Path, t.Name)
		}
		names[t.Name] = true
	}
	return nil
}

// tensor adds a tensor to the output and returns its number.
func (o *output) tensor(name string, dtype tensorfile.DType, shape ...int64) int {
	o.tensors = append(o.tensors, tensorfile.Tensor{Name: name, DType: dtype, Shape: shape})
	return len(o.tensors) - 1
}

// bytesSince is the size of the tensors from number first on.
func (o *output) bytesSince(first int) (bytes int64) {
	for _, t := range o.tensors[first:] {
		bytes += t.Elements() * t.DType.Bits() / 8
	}
	return bytes
}

// codebook adds the values of a codebook.
func (o *output) codebook(name string, book *codebook.Codebook) {
	index := o.tensor(name, "F32", int64(book.Len()))
	o.jobs = append(o.jobs, func(w *tensorfile.Writer, _ func(int64)) error { return w.WriteFloat32(index, book.Values(), 0) })
}

// copy adds a tensor of the input as it is.
func (o *output) copy(e *env, t tensorfile.Tensor) {
	index := len(o.tensors)
	o.tensors = append(o.tensors, t)
	r := recordOf(t)
	r.copied = true
	o.records = append(o.records, r)
	o.jobs = append(o.jobs, func(w *tensorfile.Writer, done func(int64)) error {
		return e.pieces(t.Bytes, 1, func(first int64, n int) error {
			raw := sized(&o.scratch.raw, n)
			if err := o.in.ReadAt(t, raw, first); err != nil {
				return err
			}
			done(int64(n))
			return w.WriteAt(index, raw, first)
		})
	})
}

// add adds a job for a tensor, and the report's line for it.
func (o *output) add(r *record, job job) {
	o.records = append(o.records, r)
	o.jobs = append(o.jobs, job)
}

func (e *env) printConversion(o *output, c *conversion) error {
	if c.JSON {
		return e.printJSON(newReport(o.records))
	}
	if err := e.printRecords(o.records); err != nil {
		return err
	}
	for _, r := range o.records {
		if r.NonFiniteBlocks > 0 {
			if _, err := fmt.Fprintf(e.stdout, "%s: blocks that hold NaN or Inf and decode to NaN: %d\n", printable(r.Name), r.NonFiniteBlocks); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(e.stdout, "wrote %s\n", c.Out)
	return err
}
