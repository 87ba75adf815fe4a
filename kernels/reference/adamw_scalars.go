package reference

import "math"

// AdamWHyper are the hyper-parameters of one AdamW step, in float64 as configurations
// hold them.
type AdamWHyper struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Step                               int64 // 1 for the first update
	GradScale                          float64
	Nesterov                           bool // NAdamW
	Optax                              bool // the order of operations of optax.adamw
}

// AdamWScalars are the numbers that the loop over the elements needs, each computed in
// float64 and rounded once. Assembly reads the numbers up to NesterovG in this order.
type AdamWScalars struct {
	GradScale                      float32 // multiplies each gradient: the clip coefficient, or 1
	Decay                          float32 // 1 - lr*wd
	Beta1, OneMinusBeta1           float32
	Beta2, OneMinusBeta2           float32
	RootCorrection2                float32 // sqrt(1 - b2^t)
	Eps                            float32
	StepSize                       float32 // lr/(1 - b1^t)
	NesterovM, NesterovG           float32
	Correction1, Correction2       float32 // 1 - b^t, of the optax variant
	LR, WeightDecay                float32 // of the optax variant
	Nesterov, Optax, SkipNonFinite bool
	Rounding                       AdamWRounding
}

// AdamWRounding says how bf16 moments and weights are stored: to nearest unless
// stochastic, each with its own stream.
type AdamWRounding struct {
	StochasticMoments, StochasticWeights bool
	SeedM, SeedV, SeedW                  uint64
	Step                                 uint64
}

// Scalars computes the loop's numbers.
func (h AdamWHyper) Scalars() AdamWScalars {
	power1, power2 := Power(h.Beta1, h.Step), Power(h.Beta2, h.Step)
	s := AdamWScalars{
		GradScale:       float32(h.GradScale),
		Decay:           float32(1 - float64(h.LR*h.WeightDecay)),
		Beta1:           float32(h.Beta1),
		OneMinusBeta1:   float32(1 - h.Beta1),
		Beta2:           float32(h.Beta2),
		OneMinusBeta2:   float32(1 - h.Beta2),
		RootCorrection2: float32(math.Sqrt(1 - power2)),
		Eps:             float32(h.Eps),
		StepSize:        float32(h.LR / (1 - power1)),
		Correction1:     1 - float32(Power(float64(float32(h.Beta1)), h.Step)),
		Correction2:     1 - float32(Power(float64(float32(h.Beta2)), h.Step)),
		LR:              float32(h.LR),
		WeightDecay:     float32(h.WeightDecay),
		Nesterov:        h.Nesterov,
		Optax:           h.Optax,
	}
	if h.Nesterov {
		s.StepSize = s.LR
		s.NesterovM = float32(h.Beta1 / (1 - Power(h.Beta1, h.Step+1)))
		s.NesterovG = float32((1 - h.Beta1) / (1 - power1))
	}
	return s
}

// Power is b^t by repeated squaring from the lowest bit of t, each product rounded.
func Power(b float64, t int64) float64 {
	result := 1.0
	for ; t > 0; t >>= 1 {
		if t&1 == 1 {
			result *= b
		}
		b *= b
	}
	return result
}
