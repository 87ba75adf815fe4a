package kernels

// implementations lists the fast implementations of each row, best first. The file of
// an architecture fills `fast` with them.
type implementations struct {
	quantizeDynamic8, quantizeDynamic8Unsigned, quantize8, quantize4 []Impl[QuantizeFunc]
	dequantize8, dequantize4                                         []Impl[DequantizeFunc]

	round, truncate []Impl[RoundFunc]
	stochastic      []Impl[StochasticFunc]
	widen           []Impl[WidenFunc]

	absmax                  []Impl[AbsmaxFunc]
	normFloat32, normBF16   []Impl[ChunkSumsFunc]
	scaleFloat32, scaleBF16 []Impl[ScaleFunc]

	adamWFloat32, adamWBF16, adamW8bit, adamW4bit, adamWFactored [len(adamWPairs)][]Impl[AdamWFunc]
}
