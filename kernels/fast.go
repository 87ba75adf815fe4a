package kernels

// implementations lists the fast implementations of each row, best first. The file of
// an architecture fills `fast` with them.
type implementations struct {
	quantizeDynamic8, quantizeDynamic8Unsigned, quantize8, quantize4 []Impl[QuantizeFunc]
	dequantize8, dequantize4                                         []Impl[DequantizeFunc]

	round, truncate []Impl[RoundFunc]
	stochastic      []Impl[StochasticFunc]
	widen           []Impl[WidenFunc]
	roundFloat16    []Impl[RoundFloat16Func]
	widenFloat16    []Impl[WidenFloat16Func]

	absmax                  []Impl[AbsmaxFunc]
	normFloat32, normBF16   []Impl[ChunkSumsFunc]
	dot                     []Impl[DotFunc]
	scaleFloat32, scaleBF16 []Impl[ScaleFunc]

	muonDirection [len(muonStorages)][2][]Impl[MuonDirectionFunc]
	muonUpdate    [len(muonStorages)][len(adamWPairs)][]Impl[MuonUpdateFunc]

	newtonSchulzFloat32, newtonSchulzBF16 []Impl[NewtonSchulzFunc]
	gemmFloat32, gemmBF16                 []Impl[GemmFunc]
	syrkFloat32, syrkBF16                 []Impl[SyrkFunc]

	factorMeansFloat32, factorMeansBF16 []Impl[FactorMeansFunc]
	accumulateFloat32, accumulateBF16   []Impl[AccumulateFunc]

	adamWFloat32, adamWBF16, adamW8bit, adamW4bit, adamWFactored [len(adamWPairs)][]Impl[AdamWFunc]
}
