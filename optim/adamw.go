package optim

import "github.com/lowbit-go/lowbit/kernels"

// settle decides how AdamW keeps a parameter's moments: a precision given for the
// parameter or its group beats that of the role, which beats the configuration's.
func (c AdamWConfig) settle(p *parameter, precision string, group ParamGroup) error {
	p.weightDecay = c.WeightDecay
	if group.WeightDecay != nil {
		p.weightDecay = *group.WeightDecay
	}
	switch {
	case precision == "8bit" && !c.Adam8bit:
		return p.errorf("state precision 8bit, want adam_8bit in the configuration")
	case precision == "fp32" && c.Adam4bit:
		return p.errorf("state precision fp32, which adam_4bit does not have")
	case precision == "fp32" && c.MomentsDtype != "float32":
		return p.errorf("state precision fp32, want moments_dtype float32 instead of %s", c.MomentsDtype)
	}
	p.storage = c.storageOf(p, precision)
	p.layout = adamWLayout(p.storage, c.QuantBlockSize, c.Headroom)
	return nil
}

func (c AdamWConfig) storageOf(p *parameter, precision string) storage {
	switch {
	case c.Adam4bit && len(p.Shape) >= 2:
		return storeFactored
	case c.Adam4bit:
		return store4bit
	case c.Adam8bit && (precision == "8bit" || precision == "" && p.role != roleTokenEmbedding):
		return store8bit
	case c.MomentsDtype == "bfloat16":
		return storeBF16
	default:
		return storeFloat32
	}
}

func (c AdamWConfig) setAdamW(_ *Optimizer, p *parameter, r StepResult) {
	s := &p.adamWStep
	*s = kernels.AdamWHyper{
		LR: r.LR * p.lrScale, Beta1: c.Betas[0], Beta2: c.Betas[1], Eps: c.Eps, WeightDecay: p.weightDecay,
		Step: *p.step, GradScale: r.Clip, Nesterov: c.Nesterov, Optax: c.Variant == "optax",
	}.Scalars()
	s.SkipNonFinite = c.skips(p.storage)
	s.Rounding = p.rounding(c.Common)
	s.Rounding.StochasticMoments = c.MomentsRounding == "stochastic"
}

// muon is of no parameter: settle makes none a matrix for Muon.
func (AdamWConfig) muon(*Optimizer, *parameter, StepResult) (kernels.Counts, bool, error) {
	return kernels.Counts{}, false, nil
}

// skips tells whether what is not finite leaves elements, blocks or parameters of this
// storage untouched.
func (c Common) skips(s storage) bool {
	if c.Nonfinite == "" {
		return s != storeFloat32 && s != storeBF16
	}
	return c.Nonfinite == "skip"
}

func (p *parameter) rounding(c Common) kernels.AdamWRounding {
	return kernels.AdamWRounding{
		StochasticWeights: c.WeightRounding == "stochastic",
		SeedM:             p.seedM, SeedV: p.seedV, SeedW: p.seedW,
		Step: uint64(*p.step),
	}
}
