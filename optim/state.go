package optim

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

// moments is the state of one parameter. AdamW uses both moments, Muon the first.
type moments struct {
	m, v     kernels.Moment
	row, col []float32 // factors of a second moment
	low      []uint16  // the lower halves of a split master
}

// StateTensor is one piece of a parameter's state: exp_avg and exp_avg_sq, the moments, with
// exp_avg_absmax and exp_avg_sq_absmax where they are codes; row and col, the factors of a
// second moment; low, the lower halves of a split master. One of the slices is set, and
// shares the optimizer's memory unless that is on disk.
type StateTensor struct {
	Kind string
	F32  []float32
	BF16 []bf16.BF16
	U16  []uint16
	U8   []uint8
}

func (t StateTensor) elements() int64 {
	return int64(len(t.F32) + len(t.BF16) + len(t.U16) + len(t.U8))
}

func (t StateTensor) bytes() int64 { return t.elements() * t.dtype().Bits() / 8 }

// tensors lists the pieces of the state.
func (s *moments) tensors() []StateTensor {
	var list []StateTensor
	add := func(t StateTensor) {
		if t.F32 != nil || t.BF16 != nil || t.U16 != nil || t.U8 != nil {
			list = append(list, t)
		}
	}
	moment := func(name string, m kernels.Moment) {
		add(StateTensor{Kind: name, F32: m.F32, BF16: m.BF16, U8: m.Codes})
		add(StateTensor{Kind: name + "_absmax", F32: m.Scales})
	}
	moment("exp_avg", s.m)
	moment("exp_avg_sq", s.v)
	add(StateTensor{Kind: "row", F32: s.row})
	add(StateTensor{Kind: "col", F32: s.col})
	add(StateTensor{Kind: "low", U16: s.low})
	return list
}

// State lists the pieces of a parameter's state, each flat in the order of the parameter's
// elements; nil for an unknown name. A tied parameter goes by its first name. States that
// are offloaded to disk are read from there into memory of their own: nil where that fails.
func (o *Optimizer) State(name string) []StateTensor {
	for _, p := range o.params {
		if p.Name != name {
			continue
		}
		if o.disk != nil {
			return o.disk.copyOf(p)
		}
		return p.moments.tensors()
	}
	return nil
}
