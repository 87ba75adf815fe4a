package main

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/glob"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

type quantizeCmd struct {
	conversion
	Format      string   `required:"" placeholder:"NAME" help:"The codebook: ${formats}."`
	Block       *int     `placeholder:"N" help:"Elements that share a scale; by default 128 for 8-bit formats and 64 for 4-bit ones."`
	Include     []string `sep:"none" placeholder:"GLOB" help:"Quantise only tensors whose name matches, and copy the others. May be repeated."`
	Exclude     []string `sep:"none" placeholder:"GLOB" help:"Copy tensors whose name matches. May be repeated."`
	Layout      string   `enum:"lowbit,bitsandbytes" default:"lowbit" placeholder:"NAME" help:"The names and metadata in the file: lowbit (the default) or bitsandbytes (nf4 and fp4 only)."`
	DoubleQuant bool     `help:"Quantise the scales too, in the bitsandbytes layout."`
}

func (*quantizeCmd) Help() string {
	return `F32, F16 and BF16 tensors become codes and one float32 scale a block; all others, and the metadata, are copied.
A tensor NAME becomes NAME (U8), NAME.absmax and an entry of the metadata lowbit.tensors. A block that holds NaN or Inf
decodes to NaN. The formats dynamic8u and linear4 are for values that are never negative.

Patterns are for whole names: * is any run of characters, ? is one, [a-z] is one of a class.

Examples:

    lowbit quantize model.safetensors model-nf4.safetensors --format nf4 --include '*.weight' --exclude 'lm_head.*'
    lowbit quantize model.safetensors model-bnb.safetensors --format nf4 --layout bitsandbytes --double-quant
`
}

var formatVars = kong.Vars{"formats": func() string {
	names := []string{}
	for _, book := range codebook.All() {
		names = append(names, book.Name())
	}
	return strings.Join(names, ", ")
}()}

// format checks the flags that say how to quantise.
func (c *quantizeCmd) format() (kernels.Format, error) {
	book, err := codebook.ByName(c.Format)
	if err != nil {
		return kernels.Format{}, badInput("--format: %w", err)
	}
	f := kernels.Format{Codebook: book, Block: 128}
	if book.Bits() == 4 {
		f.Block = 64
	}
	if c.Block != nil {
		f.Block = *c.Block
	}
	if f.Block < 1 || f.Block > maxBlock {
		return f, badInput("--block is %d, want 1 to %d", f.Block, maxBlock)
	}
	if c.Layout != "bitsandbytes" {
		if c.DoubleQuant {
			return f, badInput("--double-quant needs --layout bitsandbytes")
		}
		return f, nil
	}
	f.Nibble = codebook.HighFirst
	if c.Format != "nf4" && c.Format != "fp4" {
		return f, badInput("--layout bitsandbytes holds nf4 and fp4, got --format %s", c.Format)
	}
	if bits.OnesCount(uint(f.Block)) != 1 || f.Block < bitsandbytesMinimum || f.Block > bitsandbytesMaximum {
		return f, badInput("--block is %d, want a power of two from %d to %d for bitsandbytes", f.Block, bitsandbytesMinimum, bitsandbytesMaximum)
	}
	return f, nil
}

func (c *quantizeCmd) Run(e *env) error {
	format, err := c.format()
	if err != nil {
		return err
	}
	var l layout = lowbitLayout{map[string]lowbitTensor{}}
	if c.Layout == "bitsandbytes" {
		l = bitsandbytesLayout{c.DoubleQuant}
	}
	o, err := e.produce(&c.conversion, func(o *output) error {
		if err := refuseQuantised(o.in); err != nil {
			return err
		}
		e.warnCheckpoint(o.in)
		chosen, err := c.choose(o.in)
		if err != nil {
			return err
		}
		for i, t := range o.in.Tensors {
			if chosen[i] && isFloat(t.DType) {
				c.quantize(e, o, t, format, l.add(o, t, format))
			} else {
				o.copy(e, t)
			}
		}
		l.finish(o, format.Codebook)
		return nil
	})
	if err != nil {
		return err
	}
	negative := 0
	for _, r := range o.records {
		if r.clipped {
			negative++
		}
	}
	if negative > 0 {
		e.warn("%d of %d tensors hold negative values, for which %s has no codes", negative, len(o.records), c.Format)
	}
	return e.printConversion(o, &c.conversion)
}

// layout is how quantised tensors are laid out in a file.
type layout interface {
	// add adds the tensors of a quantised tensor to the output.
	add(o *output, t tensorfile.Tensor, f kernels.Format) targets
	// finish adds what the whole file needs.
	finish(o *output, book *codebook.Codebook)
}

// targets are where the parts of a quantised tensor go in the output.
type targets struct {
	codes, absmax, nestedAbsmax int
	nested                      *kernels.Format // of the scales, nil where they stay float32
	describe                    func(w *tensorfile.Writer, offset float32) error
}

// refuseQuantised is the error of a file that holds quantised tensors.
func refuseQuantised(f *tensorfile.File) error {
	if _, ok := f.Metadata[lowbitKey]; ok {
		return badInput("%s: it has the metadata %s, so it is quantised already; lowbit dequantize turns it back", f.Path, lowbitKey)
	}
	for _, t := range f.Tensors {
		if strings.Contains(t.Name, bitsandbytesMark) {
			return badInput("%s: it has a tensor %.100q, so it is quantised already; lowbit dequantize turns it back", f.Path, t.Name)
		}
		if name, ok := strings.CutSuffix(t.Name, ".absmax"); ok {
			if _, ok := f.Tensor(name); ok {
				return badInput("%s: it has a tensor %.100q, so %.100q is quantised already; lowbit dequantize turns it back", f.Path, t.Name, name)
			}
		}
	}
	return nil
}

// choose tells for each tensor of a file whether the patterns let it be quantised.
func (c *quantizeCmd) choose(f *tensorfile.File) ([]bool, error) {
	included, err := matches(f, "--include", c.Include)
	if err != nil {
		return nil, err
	}
	excluded, err := matches(f, "--exclude", c.Exclude)
	if err != nil {
		return nil, err
	}
	chosen := make([]bool, len(f.Tensors))
	for i := range chosen {
		chosen[i] = (len(c.Include) == 0 || included[i]) && !excluded[i]
	}
	return chosen, nil
}

// matches tells for each tensor whether its name matches one of the patterns, each of which has to match one.
func matches(f *tensorfile.File, flag string, patterns []string) ([]bool, error) {
	matched := make([]bool, len(f.Tensors))
	for _, pattern := range patterns {
		re, err := glob.Compile(pattern)
		if err != nil {
			return nil, badInput("%s: %w", flag, err)
		}
		found := false
		for i, t := range f.Tensors {
			if re.MatchString(t.Name) {
				matched[i], found = true, true
			}
		}
		if !found {
			return nil, badInput("%s: %.100q matches none of the %d tensors of %s", flag, pattern, len(f.Tensors), f.Path)
		}
	}
	return matched, nil
}

// quantize adds the job that quantises a tensor and measures the error of it.
func (c *quantizeCmd) quantize(e *env, o *output, t tensorfile.Tensor, f kernels.Format, to targets) {
	r := recordOf(t)
	r.Format, r.Block = f.Codebook.Name(), int64(f.Block)
	r.BytesOut = o.bytesSince(to.codes)
	q := quantizer{e, o, t, f, to, c.Threads.limit(), r}
	o.add(r, q.run)
}

type quantizer struct {
	e       *env
	o       *output
	t       tensorfile.Tensor
	f       kernels.Format
	to      targets
	threads kernels.Threads
	r       *record
}

func (q quantizer) run(w *tensorfile.Writer, done func(int64)) error {
	align, elementBytes := pieceAlign(q.f), q.t.DType.Bits()/8
	offset := float32(0)
	if q.to.nested != nil {
		var err error
		if offset, err = q.meanAbsmax(); err != nil {
			return err
		}
		align *= q.to.nested.Block
	}
	var stats errorStats
	s := &q.o.scratch
	unsigned := slices.Min(q.f.Codebook.Values()) >= 0
	err := q.e.pieces(q.t.Elements(), align, func(first int64, n int) error {
		x, y := sized(&s.x, n), sized(&s.y, n)
		if err := q.o.in.ReadFloat32(q.t, x, first); err != nil {
			return err
		}
		q.r.clipped = q.r.clipped || unsigned && slices.ContainsFunc(x, func(v float32) bool { return v < 0 })
		codes, scales := sized(&s.codes, q.f.CodeBytes(n)), sized(&s.scales, q.f.Scales(n))
		poisoned, err := kernels.Quantize(codes, scales, x, q.f, q.threads)
		if err != nil {
			return err
		}
		q.r.NonFiniteBlocks += poisoned
		if err := w.WriteAt(q.to.codes, codes, codeBytes(q.f, first)); err != nil {
			return err
		}
		if err := q.writeScales(w, scales, first/int64(q.f.Block), offset); err != nil {
			return err
		}
		if err := kernels.Dequantize(y, codes, scales, q.f, q.threads); err != nil {
			return err
		}
		stats.add(x, y)
		done(int64(n) * elementBytes)
		return nil
	})
	if err != nil {
		return err
	}
	q.r.setErrors(stats)
	if q.to.describe != nil {
		return q.to.describe(w, offset)
	}
	return nil
}

// writeScales writes the scales from number first on, and leaves in them what they will be read as.
func (q quantizer) writeScales(w *tensorfile.Writer, scales []float32, first int64, offset float32) error {
	if q.to.nested == nil {
		return w.WriteFloat32(q.to.absmax, scales, first)
	}
	for i := range scales {
		scales[i] -= offset
	}
	s := &q.o.scratch
	codes, nestedScales := sized(&s.nested, len(scales)), sized(&s.nestedScales, q.to.nested.Scales(len(scales)))
	if _, err := kernels.Quantize(codes, nestedScales, scales, *q.to.nested, q.threads); err != nil {
		return err
	}
	if err := w.WriteAt(q.to.absmax, codes, first); err != nil {
		return err
	}
	n := nested{format: *q.to.nested, offset: offset}
	if err := w.WriteFloat32(q.to.nestedAbsmax, nestedScales, first/int64(n.format.Block)); err != nil {
		return err
	}
	return n.decode(scales, codes, nestedScales, q.threads)
}

// meanAbsmax is the mean of the blocks' largest magnitudes, which are read in a pass of their own.
func (q quantizer) meanAbsmax() (float32, error) {
	sum := 0.0
	err := q.e.pieces(q.t.Elements(), q.f.Block, func(first int64, n int) error {
		x := sized(&q.o.scratch.x, n)
		if err := q.o.in.ReadFloat32(q.t, x, first); err != nil {
			return err
		}
		for lo := 0; lo < n; lo += q.f.Block {
			absmax := kernels.Absmax(x[lo:min(lo+q.f.Block, n)], q.threads)
			if absmax-absmax != 0 {
				return badInput("%s: tensor %.100q: elements %d to %d hold NaN or Inf, which --double-quant would spread; --exclude can leave the tensor out",
					q.o.in.Path, q.t.Name, first+int64(lo), first+int64(min(lo+q.f.Block, n))-1)
			}
			sum += float64(absmax)
		}
		return nil
	})
	return float32(sum / float64(max(blocks(q.t.Elements(), q.f.Block), 1))), err
}
