package fuzz

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/float16"
	"github.com/lowbit-go/lowbit/kernels"
)

// output is all that an operation wrote.
type output []field

// field is one array of results.
type field struct {
	name  string
	bits  []uint64
	value func(bits uint64) float64
	bound []float64 // how far each may be from the reference; infinite: anything; nil: no bit may differ
}

// float32s are results where any NaN equals any other.
func (o *output) float32s(name string, x []float32) {
	o.add(field{name, patterns(x, func(v float32) uint64 {
		if v != v {
			return 0x7fc00000
		}
		return uint64(math.Float32bits(v))
	}), float32Value, nil})
}

// float32Bits are results where the bits of a NaN count.
func (o *output) float32Bits(name string, x []float32) {
	o.add(field{name, patterns(x, func(v float32) uint64 { return uint64(math.Float32bits(v)) }), float32Value, nil})
}

func (o *output) float64s(name string, x []float64) {
	o.add(field{name, patterns(x, func(v float64) uint64 {
		if v != v {
			return 0x7ff8_0000_0000_0000
		}
		return math.Float64bits(v)
	}), math.Float64frombits, nil})
}

// bf16Bits are results where the bits of a NaN count.
func (o *output) bf16Bits(name string, x []bf16.BF16) {
	o.add(field{name, patterns(x, func(v bf16.BF16) uint64 { return uint64(v) }), bf16Value, nil})
}

func (o *output) float16Bits(name string, x []uint16) {
	o.add(field{name, patterns(x, func(v uint16) uint64 { return uint64(v) }), float16Value, nil})
}

// floats are results where any NaN equals any other.
func (o *output) floats(name string, x kernels.Floats) {
	if x.BF16 == nil {
		o.float32s(name, x.F32)
		return
	}
	o.add(field{name, patterns(x.BF16, func(v bf16.BF16) uint64 {
		if v&0x7fff > 0x7f80 {
			return 0x7fc0
		}
		return uint64(v)
	}), bf16Value, nil})
}

func (o *output) codes(name string, x []uint8) {
	o.add(field{name, patterns(x, func(v uint8) uint64 { return uint64(v) }), integerValue, nil})
}

func (o *output) count(name string, n int64) {
	o.add(field{name, []uint64{uint64(n)}, integerValue, nil})
}

func (o *output) add(f field) { *o = append(*o, f) }

func patterns[T any](x []T, bits func(T) uint64) []uint64 {
	list := make([]uint64, len(x))
	for i, v := range x {
		list[i] = bits(v)
	}
	return list
}

func float32Value(bits uint64) float64 { return float64(math.Float32frombits(uint32(bits))) }
func bf16Value(bits uint64) float64    { return float64(bf16.BF16(bits).Float32()) }
func float16Value(bits uint64) float64 { return float64(float16.ToFloat32(uint16(bits))) }
func integerValue(bits uint64) float64 { return float64(bits) }

// compare holds results against the reference's, whose fields state the bounds.
func (o output) compare(want output) (r Result) {
	for i, f := range o {
		for j, bits := range f.bits {
			r.Elements++
			expected := want[i].bits[j]
			if bits == expected {
				continue
			}
			got, ref := f.value(bits), f.value(expected)
			err := math.Abs(got - ref)
			allowed := false
			if bound := want[i].bound; bound != nil {
				if math.IsInf(bound[j], 1) {
					continue
				}
				allowed = err <= bound[j]
				if err != 0 {
					err /= bound[j]
				}
			}
			r.MaxError = max(r.MaxError, err)
			if allowed {
				continue
			}
			r.mismatch(fmt.Sprintf("%s[%d] is %v (%#x), want %v (%#x)", f.name, j, got, bits, ref, expected))
		}
	}
	return r
}
