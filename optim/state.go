package optim

import (
	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

// moments is the state of one parameter. AdamW uses both moments, Muon the first.
type moments struct {
	m, v     kernels.Moment
	row, col []float32 // factors of a second moment
	low      []uint16  // the lower halves of a split master
}

// stateTensor is one piece of a state, by the name it has in checkpoints.
type stateTensor struct {
	kind string
	f32  []float32
	bf16 []bf16.BF16
	u16  []uint16
	u8   []uint8
}

// tensors lists the pieces of the state, sharing their memory.
func (s *moments) tensors() []stateTensor {
	var list []stateTensor
	add := func(t stateTensor) {
		if t.f32 != nil || t.bf16 != nil || t.u16 != nil || t.u8 != nil {
			list = append(list, t)
		}
	}
	moment := func(name string, m kernels.Moment) {
		add(stateTensor{kind: name, f32: m.F32})
		add(stateTensor{kind: name, bf16: m.BF16})
		add(stateTensor{kind: name, u8: m.Codes})
		add(stateTensor{kind: name + "_absmax", f32: m.Scales})
	}
	moment("exp_avg", s.m)
	moment("exp_avg_sq", s.v)
	add(stateTensor{kind: "row", f32: s.row})
	add(stateTensor{kind: "col", f32: s.col})
	add(stateTensor{kind: "low", u16: s.low})
	return list
}

func newMoment(n int, storage storage, format kernels.Format) kernels.Moment {
	switch storage {
	case storeFloat32:
		return kernels.Moment{Floats: kernels.Float32s(make([]float32, n))}
	case storeBF16:
		return kernels.Moment{Floats: kernels.BF16s(make([]uint16, n))}
	}
	m := kernels.Moment{Codes: make([]uint8, format.CodeBytes(n)), Scales: make([]float32, format.Scales(n)), Format: format}
	zero := format.Codebook.Zero()
	if format.Codebook.Bits() == 4 {
		zero |= zero << 4
	}
	for i := range m.Codes {
		m.Codes[i] = zero
	}
	return m
}

// momentFormats are the formats of quantised AdamW moments.
func momentFormats(storage storage, block int, headroom bool) (m, v kernels.Format) {
	if storage == store8bit {
		return kernels.Format{Codebook: codebook.Dynamic8(), Block: block, Headroom: headroom},
			kernels.Format{Codebook: codebook.Dynamic8Unsigned(), Block: block}
	}
	return kernels.Format{Codebook: codebook.DE4(), Block: block},
		kernels.Format{Codebook: codebook.Linear4(), Block: block}
}

// newMoments is the state of AdamW before the first step: zeros.
func newMoments(p *parameter, block int, headroom bool) moments {
	n := p.elements()
	m, v := momentFormats(p.storage, block, headroom)
	s := moments{m: newMoment(n, p.storage, m)}
	if p.storage == storeFactored {
		rows := int(p.Shape[0])
		s.row = make([]float32, rows)
		s.col = make([]float32, n/max(rows, 1))
		return s
	}
	s.v = newMoment(n, p.storage, v)
	return s
}
