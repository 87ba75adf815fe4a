package fuzz

import (
	"math"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

// shape is a way to draw numbers. f is the format that they will be quantised to, or
// nil.
type shape struct {
	name string
	fill func(in *input, x []float32, f *kernels.Format)
}

var shapes = []shape{
	{"normal", normal},
	{"ties", ties},
	{"lognormal", lognormal},
	{"bit patterns", bitPatterns},
	{"mostly zeros", mostlyZeros},
	{"constant", constant},
	{"subnormal", subnormal},
}

// values draws n numbers: of one shape or of several, then with special values among
// them, then with the bits of the input here and there.
func (in *input) values(name string, n int, f *kernels.Format) []float32 {
	x := make([]float32, n)
	s := pick(in, shapes)
	in.note("%s %s", name, s.name)
	in.feature("ties", s.name == "ties")
	if in.chance(4) {
		in.note("in runs")
		for lo := 0; lo < n; {
			hi := min(lo+1+in.random.IntN(300), n)
			s.fill(in, x[lo:hi], f)
			s = shapes[in.random.IntN(len(shapes))]
			lo = hi
		}
	} else {
		s.fill(in, x, f)
	}
	in.sprinkle(x)
	if n > 0 {
		for range in.byte() % 4 {
			x[in.below(n)] = math.Float32frombits(in.bits())
		}
	}
	for _, v := range x {
		in.feature("nan", v != v)
		in.feature("infinity", math.IsInf(float64(v), 0))
		in.feature("negative_zero", v == 0 && math.Signbit(float64(v)))
		in.feature("subnormal", v != 0 && math.Abs(float64(v)) < 0x1p-126)
	}
	return x
}

func normal(in *input, x []float32, _ *kernels.Format) {
	scale := in.scale()
	for i := range x {
		x[i] = float32(in.random.NormFloat64() * scale)
	}
}

func lognormal(in *input, x []float32, _ *kernels.Format) {
	scale, sigma := in.scale(), float64(in.random.IntN(5))
	for i := range x {
		x[i] = float32(math.Exp(sigma*in.random.NormFloat64()) * scale)
		if in.random.IntN(2) == 0 {
			x[i] = -x[i]
		}
	}
}

// scale is a power of two, of any size half of the time.
func (in *input) scale() float64 {
	if in.random.IntN(2) == 0 {
		return math.Ldexp(1, in.random.IntN(20)-15)
	}
	return math.Ldexp(1, in.random.IntN(267)-140)
}

// ties are thresholds of the format relative to the largest magnitude of their block, or
// midpoints between bf16 numbers, and their neighbours.
func ties(in *input, x []float32, f *kernels.Format) {
	if f == nil {
		for i := range x {
			low := []uint32{0x8000, 0x8000, 0x8001, 0x7fff, 0xffff, 1, 0}[in.random.IntN(7)]
			x[i] = math.Float32frombits(in.random.Uint32()&^0xffff | low)
		}
		return
	}
	thresholds := f.Codebook.Thresholds()
	count := 1
	for count < len(thresholds) && !math.IsInf(float64(thresholds[count]), 1) {
		count++
	}
	for lo := 0; lo < len(x); lo += min(f.Block, len(x)) {
		largest := float32(in.scale() * (1 + float64(in.random.IntN(2))*in.random.Float64()))
		piece := x[lo : lo+min(f.Block, len(x)-lo)]
		for i := range piece {
			v := thresholds[in.random.IntN(count)] * largest
			piece[i] = math.Float32frombits(math.Float32bits(v) + uint32(in.random.IntN(3)) - 1)
		}
		piece[in.random.IntN(len(piece))] = largest
	}
}

func bitPatterns(in *input, x []float32, _ *kernels.Format) {
	for i := range x {
		x[i] = math.Float32frombits(in.random.Uint32())
	}
}

func mostlyZeros(in *input, x []float32, _ *kernels.Format) {
	for i := range x {
		x[i] = float32(math.Copysign(0, in.random.Float64()-0.5))
		if in.random.IntN(40) == 0 {
			x[i] = float32(in.random.NormFloat64())
		}
	}
}

func constant(in *input, x []float32, _ *kernels.Format) {
	v := float32(in.random.NormFloat64() * in.scale())
	for i := range x {
		x[i] = v
	}
}

func subnormal(in *input, x []float32, _ *kernels.Format) {
	for i := range x {
		x[i] = math.Float32frombits(in.random.Uint32() & 0x807fffff)
	}
}

var (
	finiteSpecials = []uint32{
		0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff,
		0x7f7f8000, 0x7f7f7fff, 0x00008000, 0x00018000, 0x80018000, 0x3f800000, 0xbf800000, 0x3f808000, 0x3f818000,
	}
	specials = append([]uint32{
		0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0x7fa10000,
	}, finiteSpecials...)
)

// sprinkle replaces none, one or many of the numbers by special ones.
func (in *input) sprinkle(x []float32) {
	from, choice := finiteSpecials, in.byte()
	if choice%2 == 1 {
		from = specials
	}
	count := []int{0, 1, 0, len(x) / 64, 0, len(x) / 8, 2, 0}[choice/2%8]
	if len(x) == 0 {
		return
	}
	for range count {
		x[in.random.IntN(len(x))] = math.Float32frombits(from[in.random.IntN(len(from))])
	}
}

// magnitudes are values that are seldom negative.
func (in *input) magnitudes(name string, n int, f *kernels.Format) []float32 {
	x := in.values(name, n, f)
	if in.chance(8) {
		return x
	}
	for i, v := range x {
		x[i] = math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
	}
	return x
}

func floatsOf(x []float32, inBF16 bool) kernels.Floats {
	if !inBF16 {
		return kernels.Float32s(x)
	}
	return kernels.BF16s(bf16sOf(x))
}

// bf16sOf cuts numbers to bf16 with whatever bits a NaN has.
func bf16sOf(x []float32) []bf16.BF16 {
	narrow := make([]bf16.BF16, len(x))
	for i, v := range x {
		narrow[i] = bf16.BF16(math.Float32bits(v) >> 16)
	}
	return narrow
}

func placeFloats(mem memory, x kernels.Floats) kernels.Floats {
	return kernels.Floats{F32: place(mem, x.F32), BF16: place(mem, x.BF16)}
}
