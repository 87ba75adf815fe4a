package main

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

type roundCmd struct {
	conversion
	To   string  `required:"" enum:"bfloat16" placeholder:"bfloat16" help:"The dtype to round to: bfloat16."`
	Mode string  `enum:"nearest,truncate,stochastic" default:"nearest" placeholder:"MODE" help:"nearest (ties to even, the default), truncate (towards zero) or stochastic."`
	Seed *uint64 `placeholder:"N" help:"Seed of the random bits of --mode stochastic; 0 by default."`
	Step *uint64 `placeholder:"N" help:"Step of the random bits of --mode stochastic; 0 by default."`
}

func (*roundCmd) Help() string {
	return `F32 and F16 tensors become BF16; all others, and the metadata, are copied. NaN stays NaN.

Stochastic rounding draws the bits of each element from the seed, the step, the tensor's name and the element's position:
the same command gives the same file, and no two tensors share their bits.

Example:

    lowbit round model.safetensors model-bf16.safetensors --to bfloat16 --mode stochastic --seed 1
`
}

func (c *roundCmd) Run(e *env) error {
	if c.Mode != "stochastic" && (c.Seed != nil || c.Step != nil) {
		return badInput("--seed and --step are for --mode stochastic, got --mode %s", c.Mode)
	}
	return e.convert(&c.conversion, func(o *output) error {
		if err := refuseQuantised(o.in); err != nil {
			return err
		}
		e.warnCheckpoint(o.in)
		for _, t := range o.in.Tensors {
			if t.DType == "F32" || t.DType == "F16" {
				c.round(e, o, t)
			} else {
				o.copy(e, t)
			}
		}
		return nil
	})
}

// round adds the job that rounds a tensor and measures the error of it.
func (c *roundCmd) round(e *env, o *output, t tensorfile.Tensor) {
	index := o.tensor(t.Name, "BF16", t.Shape...)
	r := recordOf(t)
	r.Format, r.BytesOut = c.To, o.bytesSince(index)
	stream := kernels.Stream{Seed: bf16.StreamSeed(or(c.Seed, 0), 'w', t.Name), Step: or(c.Step, 0)}
	o.add(r, func(w *tensorfile.Writer, done func(int64)) error {
		var stats errorStats
		err := e.pieces(t.Elements(), 1, func(first int64, n int) error {
			s := &o.scratch
			x, y, narrow := sized(&s.x, n), sized(&s.y, n), sized(&s.narrow, n)
			if err := o.in.ReadFloat32(t, x, first); err != nil {
				return err
			}
			stream.First = first
			if err := roundings[c.Mode](narrow, x, stream, c.Threads.limit()); err != nil {
				return err
			}
			if err := kernels.Widen(y, narrow, c.Threads.limit()); err != nil {
				return err
			}
			stats.add(x, y)
			done(int64(n) * t.DType.Bits() / 8)
			return w.WriteUint16(index, narrow, first)
		})
		r.setErrors(stats)
		return err
	})
}

var roundings = map[string]func(dst []uint16, src []float32, s kernels.Stream, limit kernels.Threads) error{
	"nearest": func(dst []uint16, src []float32, _ kernels.Stream, limit kernels.Threads) error {
		return kernels.Round(dst, src, limit)
	},
	"truncate": func(dst []uint16, src []float32, _ kernels.Stream, limit kernels.Threads) error {
		return kernels.Truncate(dst, src, limit)
	},
	"stochastic": func(dst []uint16, src []float32, s kernels.Stream, limit kernels.Threads) error {
		return kernels.Stochastic(dst, src, s, limit)
	},
}
