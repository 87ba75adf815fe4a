package fuzz

import (
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
)

var (
	quantizeTrials = trials(decodeQuantize,
		kernels.OpQuantizeDynamic8, kernels.OpQuantizeDynamic8Unsigned, kernels.OpQuantize8, kernels.OpQuantize4)
	dequantizeTrials = trials(decodeDequantize, kernels.OpDequantize8, kernels.OpDequantize4)
)

type quantizeInput struct {
	x []float32
	f kernels.Format
}

func decodeQuantize(op *kernels.Op[kernels.QuantizeFunc], in *input) *quantizeInput {
	f := in.format(func(book *codebook.Codebook) bool { return kernels.OpQuantize(book) == op })
	return &quantizeInput{in.values("x", in.length(f.Block), &f), f}
}

func (q *quantizeInput) run(quantize kernels.QuantizeFunc, mem memory) (o output) {
	n := len(q.x)
	codes, scales := place(mem, filled(q.f.CodeBytes(n))), place(mem, make([]float32, q.f.Scales(n)))
	x := place(mem, q.x)
	poisoned := quantize(codes, scales, x, q.f)
	o.codes("codes", codes)
	o.float32Bits("scales", scales)
	o.float32Bits("x", x)
	o.count("poisoned blocks", int64(poisoned))
	return o
}

type dequantizeInput struct {
	n      int
	codes  []uint8
	scales []float32
	f      kernels.Format
}

func decodeDequantize(op *kernels.Op[kernels.DequantizeFunc], in *input) *dequantizeInput {
	f := in.format(func(book *codebook.Codebook) bool { return kernels.OpDequantize(book) == op })
	n := in.length(f.Block)
	return &dequantizeInput{n, in.codes(n, f), in.magnitudes("scales", f.Scales(n), nil), f}
}

func (d *dequantizeInput) run(dequantize kernels.DequantizeFunc, mem memory) (o output) {
	dst, codes, scales := place(mem, make([]float32, d.n)), place(mem, d.codes), place(mem, d.scales)
	dequantize(dst, codes, scales, d.f)
	o.float32s("dst", dst)
	o.codes("codes", codes)
	o.float32Bits("scales", scales)
	return o
}

// codes are any codes: also those that the codebook does not have.
func (in *input) codes(n int, f kernels.Format) []uint8 {
	codes := make([]uint8, f.CodeBytes(n))
	for i := range codes {
		codes[i] = uint8(in.random.Uint32())
	}
	return codes
}

// filled are bytes that are not zero, to be overwritten.
func filled(n int) []uint8 {
	b := make([]uint8, n)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}
