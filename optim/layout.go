package optim

import (
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

// stateLayout is how the state of a parameter is kept, before any of it is there: New
// allocates it, and Plan counts its bytes.
type stateLayout struct {
	m, v     momentLayout
	factored bool // factors in place of v
	master   bool // the lower halves of a split master
}

// momentLayout is how a moment is kept, if it is.
type momentLayout struct {
	held    bool
	storage storage
	format  kernels.Format // of codes
}

func (l momentLayout) quantized() bool {
	return l.held && l.storage != storeFloat32 && l.storage != storeBF16
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

func adamWLayout(storage storage, block int, headroom bool) stateLayout {
	m, v := momentFormats(storage, block, headroom)
	l := stateLayout{m: momentLayout{true, storage, m}, factored: storage == storeFactored}
	if !l.factored {
		l.v = momentLayout{true, storage, v}
	}
	return l
}

// stateSize is the size of a StateTensor.
type stateSize struct {
	kind     string
	dtype    tensorfile.DType
	elements int64
}

func (s stateSize) bytes() int64 { return s.elements * s.dtype.Bits() / 8 }

// sizes are those of the state of a parameter of this shape, in the order of
// moments.tensors.
func (l stateLayout) sizes(shape []int64, n int64) []stateSize {
	list := append(l.m.sizes("exp_avg", n), l.v.sizes("exp_avg_sq", n)...)
	if l.factored {
		rows, cols := factorSizes(shape, n)
		list = append(list, stateSize{"row", "F32", rows}, stateSize{"col", "F32", cols})
	}
	if l.master {
		list = append(list, stateSize{"low", "U16", n})
	}
	return list
}

func (l momentLayout) sizes(kind string, n int64) []stateSize {
	switch {
	case !l.held:
		return nil
	case l.storage == storeFloat32:
		return []stateSize{{kind, "F32", n}}
	case l.storage == storeBF16:
		return []stateSize{{kind, "BF16", n}}
	}
	block, perByte := int64(l.format.Block), int64(8/l.format.Codebook.Bits())
	return []stateSize{{kind, "U8", ceilDiv(n, perByte)}, {kind + "_absmax", "F32", ceilDiv(n, block)}}
}

// factorSizes are those of [shape[0], rest]; a parameter without elements has no factors.
func factorSizes(shape []int64, n int64) (rows, cols int64) {
	if n == 0 {
		return 0, 0
	}
	return shape[0], n / shape[0]
}

func ceilDiv(n, by int64) int64 {
	q := n / by
	if n%by != 0 {
		q++
	}
	return q
}

// place lays the state out in memory of the arena, whatever that holds.
func (l *stateLayout) place(shape []int64, n int, a *arena) moments {
	s := moments{m: l.m.place(n, a), v: l.v.place(n, a)}
	if l.factored {
		rows, cols := factorSizes(shape, int64(n))
		s.row, s.col = take[float32](a, int(rows)), take[float32](a, int(cols))
	}
	if l.master {
		s.low = take[uint16](a, n)
	}
	return s
}

func (l *momentLayout) place(n int, a *arena) kernels.Moment {
	switch {
	case !l.held:
		return kernels.Moment{}
	case l.storage == storeFloat32:
		return kernels.Moment{Floats: kernels.Float32s(take[float32](a, n))}
	case l.storage == storeBF16:
		return kernels.Moment{Floats: kernels.BF16s(take[uint16](a, n))}
	}
	return kernels.Moment{Codes: take[uint8](a, l.format.CodeBytes(n)), Scales: take[float32](a, l.format.Scales(n)), Format: l.format}
}

// newMoments are, in cleared memory of the arena, the state before the first step: zeros,
// whose codes are not zero.
func (p *parameter) newMoments(a *arena) moments {
	s := p.layout.place(p.Shape, p.n, a)
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
	return s
}
