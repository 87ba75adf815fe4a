package optim

import (
	"unsafe"

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

func (t StateTensor) bytes() int64 {
	return 4*int64(len(t.F32)) + 2*int64(len(t.BF16)+len(t.U16)) + int64(len(t.U8))
}

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

// momentFormats are the formats of quantised AdamW moments.
func momentFormats(storage storage, block int, headroom bool) (m, v kernels.Format) {
	if storage == store8bit {
		return kernels.Format{Codebook: codebook.Dynamic8(), Block: block, Headroom: headroom},
			kernels.Format{Codebook: codebook.Dynamic8Unsigned(), Block: block}
	}
	return kernels.Format{Codebook: codebook.DE4(), Block: block},
		kernels.Format{Codebook: codebook.Linear4(), Block: block}
}

// stateLayout says what a parameter's state consists of.
type stateLayout struct {
	elements   int
	storage    storage
	m, v       kernels.Format // of codes
	single     bool           // no second moment
	rows, cols int            // of the factors
	low        bool
}

// adamWLayout has both moments. A parameter without elements has no factors.
func adamWLayout(p *parameter, block int, headroom bool) stateLayout {
	l := stateLayout{elements: p.n, storage: p.storage}
	l.m, l.v = momentFormats(p.storage, block, headroom)
	if p.storage == storeFactored && p.n > 0 {
		l.rows = int(p.Shape[0])
		l.cols = p.n / l.rows
	}
	return l
}

// moments are the state in memory of the arena, whatever that holds.
func (l *stateLayout) moments(a *arena) (s moments) {
	s.m = l.moment(a, l.m)
	switch {
	case l.single:
	case l.storage == storeFactored:
		s.row, s.col = take[float32](a, l.rows), take[float32](a, l.cols)
	default:
		s.v = l.moment(a, l.v)
	}
	if l.low {
		s.low = take[uint16](a, l.elements)
	}
	return s
}

func (l *stateLayout) moment(a *arena, format kernels.Format) kernels.Moment {
	n := l.elements
	switch l.storage {
	case storeFloat32:
		return kernels.Moment{Floats: kernels.Float32s(take[float32](a, n))}
	case storeBF16:
		return kernels.Moment{Floats: kernels.BF16s(take[uint16](a, n))}
	}
	codes, scales := take[uint8](a, format.CodeBytes(n)), take[float32](a, format.Scales(n))
	return kernels.Moment{Codes: codes, Scales: scales, Format: format}
}

// begin makes a state in cleared memory that before the first step: codes of zero are not zero.
func (s *moments) begin() {
	for _, m := range []*kernels.Moment{&s.m, &s.v} {
		if !m.Quantized() {
			continue
		}
		zero := m.Format.Codebook.Zero()
		if m.Format.Codebook.Bits() == 4 {
			zero |= zero << 4
		}
		for i := range m.Codes {
			m.Codes[i] = zero
		}
	}
}

// arena gives its memory away piece by piece. A nil one allocates each piece, and one
// without memory only counts.
type arena struct {
	memory []byte
	used   int64
}

// arenaAlign is that of every piece: a cache line.
const arenaAlign = 64

func take[E any](a *arena, n int) []E {
	if a == nil {
		return make([]E, n)
	}
	at := a.used
	a.used += roundUp(int64(n)*int64(unsafe.Sizeof(*new(E))), arenaAlign)
	switch {
	case n == 0:
		return []E{}
	case a.memory == nil:
		return nil
	}
	return unsafe.Slice((*E)(unsafe.Pointer(&a.memory[at])), n)
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
