package main

import (
	"maps"
	"math"

	"github.com/lowbit-go/lowbit/internal/float16"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

type dequantizeCmd struct {
	conversion
	DType string `name:"dtype" enum:"float32,bfloat16,float16,source" default:"source" placeholder:"NAME" help:"float32, bfloat16, float16 or source (the default): the dtype that each tensor was quantised from."`
}

func (*dequantizeCmd) Help() string {
	return `Reads the lowbit layout and bitsandbytes' nf4 and fp4, with nested scales or without. Tensors that are not quantised are copied as they are.

Example:

    lowbit dequantize model-nf4.safetensors model.safetensors --dtype bfloat16
`
}

func (c *dequantizeCmd) Run(e *env) error {
	o, err := e.produce(&c.conversion, func(o *output) error {
		a, err := readArchive(o.in)
		if err != nil {
			return err
		}
		if len(a.quantised) == 0 {
			return badInput("%s: it holds no quantised tensors, want the metadata %s or a tensor NAME%snf4", a.Path, lowbitKey, bitsandbytesMark)
		}
		o.metadata = maps.Clone(o.metadata)
		delete(o.metadata, lowbitKey)
		for _, t := range a.Tensors {
			if q := a.quantised[t.Name]; q != nil {
				c.dequantize(e, o, a, q)
			} else if !a.parts[t.Name] {
				o.copy(e, t)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range o.records {
		if r.overflows > 0 {
			e.warn("tensor %.100q: %d values are too large for float16, and become Inf", r.Name, r.overflows)
		}
	}
	return e.printConversion(o, &c.conversion)
}

// dequantize adds the job that decodes a tensor.
func (c *dequantizeCmd) dequantize(e *env, o *output, a *archive, q *quantised) {
	dtype := q.dtype
	if c.DType != "source" {
		dtype = dtypes[c.DType]
	}
	index := o.tensor(q.name, dtype, q.shape...)
	r := recordOf(o.tensors[index])
	r.Format, r.Block, r.BytesIn, r.BytesOut = q.format.Codebook.Name(), int64(q.format.Block), q.bytes, o.bytesSince(index)
	o.add(r, func(w *tensorfile.Writer, done func(int64)) error {
		return e.pieces(q.elements(), q.align(), func(first int64, n int) error {
			x := sized(&o.scratch.x, n)
			if err := q.read(a, x, first, &o.scratch, c.Threads.limit()); err != nil {
				return err
			}
			for _, scale := range o.scratch.scales[:q.format.Scales(n)] {
				if scale != scale {
					r.NonFiniteBlocks++
				}
			}
			if dtype == "F16" {
				r.overflows += float16Overflows(x)
			}
			done(int64(q.format.CodeBytes(n)))
			return writeFloats(w, index, dtype, x, first, &o.scratch, c.Threads.limit())
		})
	})
}

// float16Overflows counts the finite numbers that float16 rounds to an infinity.
func float16Overflows(x []float32) (count int64) {
	for _, v := range x {
		if a := math.Abs(float64(v)); a >= 65520 && !math.IsInf(a, 1) {
			count++
		}
	}
	return count
}

// writeFloats writes x, rounded to nearest where the tensor's dtype is narrower.
func writeFloats(w *tensorfile.Writer, index int, dtype tensorfile.DType, x []float32, first int64, s *scratch, threads kernels.Threads) error {
	if dtype == "F32" {
		return w.WriteFloat32(index, x, first)
	}
	narrow := sized(&s.narrow, len(x))
	if dtype == "F16" {
		for i, v := range x {
			narrow[i] = float16.FromFloat32(v)
		}
	} else if err := kernels.Round(narrow, x, threads); err != nil {
		return err
	}
	return w.WriteUint16(index, narrow, first)
}
