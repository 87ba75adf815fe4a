package optim

import (
	"math"

	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// settle sends matrices to Muon and everything else, and what a group says, to AdamW.
func (c MuonConfig) settle(p *parameter, precision string, group ParamGroup) error {
	p.muon = p.role != roleVector
	switch {
	case group.Optimizer == "muon" && !p.muon:
		return p.errorf("optimizer muon needs a matrix, found role %s", p.role)
	case group.Optimizer == "adamw":
		p.muon = false
	}
	if group.WeightDecay != nil {
		p.weightDecay = *group.WeightDecay
	} else if p.muon {
		p.weightDecay = c.WeightDecay
	} else {
		p.weightDecay = c.AdamWeightDecay
	}
	if !p.muon {
		if precision == "8bit" {
			p.storage = store8bit
		}
		p.layout = adamWLayout(p.storage, c.QuantBlockSize, false)
		return nil
	}
	p.storage = c.momentumStorage()
	switch {
	case precision == "8bit" && p.storage != store8bit:
		return p.errorf("state precision 8bit, want momentum_dtype 8bit or linear8 instead of %s", c.MomentumDtype)
	case precision == "fp32" && p.storage == storeBF16:
		return p.errorf("state precision fp32, want another momentum_dtype than bfloat16")
	}
	if precision == "fp32" {
		p.storage = storeFloat32
	}
	format := kernels.Format{Codebook: codebook.Dynamic8(), Block: c.QuantBlockSize}
	if c.MomentumDtype == "linear8" {
		format.Codebook = codebook.Linear8()
	}
	p.layout = stateLayout{m: momentLayout{true, p.storage, format}}
	triples, safety, err := c.polynomials()
	p.muonStep = muonStep{adaptive: c.Adaptive, skipNonFinite: c.skips(p.storage), plan: c.plan(triples, safety)}
	return err
}

func (c MuonConfig) momentumStorage() storage {
	switch c.MomentumDtype {
	case "bfloat16":
		return storeBF16
	case "8bit", "linear8":
		return store8bit
	}
	return storeFloat32
}

func (c MuonConfig) muon(o *Optimizer, p *parameter, r StepResult) (kernels.Counts, bool, error) {
	c.setScalars(&p.muonStep.MuonScalars, p, r)
	return o.engine.muon(p, &p.muonStep)
}

// checkStep refuses a step of a matrix that is infinite in float32.
func (c MuonConfig) checkStep(p *parameter, r StepResult) error {
	s := &p.muonStep.MuonScalars
	c.setScalars(s, p, r)
	if sum := s.Decay + s.WeightDecay + s.Scale + s.StepSize*(1+s.Scale+s.WeightDecay); sum-sum != 0 {
		return p.errorf("learning rate %g times a scale of %g, with weight decay %g, is no finite step in float32",
			r.LR*p.lrScale, c.updateScale(p), p.weightDecay)
	}
	return nil
}

// setAdamW sets the step of what is not a matrix, as in optax.contrib.muon.
func (c MuonConfig) setAdamW(o *Optimizer, p *parameter, r StepResult) {
	lr := r.LR
	if c.AdamLearningRate != nil {
		lr = c.AdamLearningRate.At(o.step)
	}
	s := &p.adamWStep
	*s = kernels.AdamWHyper{
		LR: lr * p.lrScale, Beta1: c.AdamB1, Beta2: c.AdamB2, Eps: c.Eps, WeightDecay: p.weightDecay,
		Step: *p.step, GradScale: r.Clip, Nesterov: c.Nesterov, Optax: c.Variant == "optax",
	}.Scalars()
	s.SkipNonFinite = c.skips(p.storage)
	s.Rounding = p.rounding(c.Common)
}

// muonStep is what the engine needs to know for a step of a matrix.
type muonStep struct {
	kernels.MuonScalars
	plan          kernels.NewtonSchulzPlan
	adaptive      bool
	skipNonFinite bool
}

func (c MuonConfig) setScalars(s *kernels.MuonScalars, p *parameter, r StepResult) {
	lr := r.LR * p.lrScale
	s.GradScale = float32(r.Clip)
	s.Rounding = kernels.MuonRounding{StochasticWeights: c.WeightRounding == "stochastic", SeedW: p.seedW, Step: uint64(*p.step)}
	c.setMomentumScalars(s, *p.step)
	scale := c.updateScale(p)
	if c.Variant == "optax" {
		s.Decay, s.WeightDecay = 1, float32(p.weightDecay)
		s.Scale, s.StepSize = float32(scale), float32(lr)
	} else {
		s.Decay = float32(1 - float64(lr*p.weightDecay))
		s.Scale, s.StepSize = 1, float32(lr*scale)
	}
}

// setMomentumScalars sets the variant's momentum rule, and what of it is orthogonalised.
func (c MuonConfig) setMomentumScalars(s *kernels.MuonScalars, step int64) {
	beta := c.Beta
	s.OldMomentum, s.NewGradient, s.Divisor = float32(beta), float32(1-beta), 1
	s.DirectionM = 1
	switch {
	case c.sumsMomentum():
		s.NewGradient = 1
		if c.Nesterov {
			s.DirectionM, s.DirectionG = float32(beta), 1
		}
	case c.Variant == "optax":
		if c.Nesterov {
			s.DirectionM = float32(beta / (1 - reference.Power(beta, step+1)))
			s.DirectionG = float32((1 - beta) / (1 - reference.Power(beta, step)))
		} else {
			s.Divisor = float32(1 - reference.Power(beta, step))
		}
	default: // torch and jordan
		if c.Nesterov {
			s.DirectionM, s.DirectionG = float32(beta), float32(1-beta)
		}
	}
}

// sumsMomentum tells whether the momentum adds gradients, instead of averaging them.
func (c MuonConfig) sumsMomentum() bool { return c.Variant == "moonlight" || c.Variant == "dion" }

// updateScale makes updates of matrices of different shapes comparable.
func (c MuonConfig) updateScale(p *parameter) float64 {
	in, out := p.fans()
	longest := math.Sqrt(float64(max(in, out)))
	if c.ConsistentRMS != nil {
		return *c.ConsistentRMS * longest
	}
	switch ratio := float64(out) / float64(in); c.adjust() {
	case "match_rms_adamw":
		return 0.2 * longest
	case "spectral":
		return math.Sqrt(ratio)
	default: // optax and original, which say it of their own layouts
		return math.Sqrt(max(1, ratio))
	}
}

// muonNorms are the variants' published divisors of the norm: an eps that is added, or
// the least divisor.
var muonNorms = map[string]struct {
	eps      float64
	floor    bool
	bfloat16 bool
}{
	"optax":     {eps: 1e-8},
	"torch":     {eps: 1e-7, floor: true, bfloat16: true},
	"jordan":    {eps: 1e-7, bfloat16: true},
	"moonlight": {eps: 1e-7, bfloat16: true},
	"dion":      {eps: 1e-6},
}

func (c MuonConfig) plan(triples []kernels.Triple, safety float64) kernels.NewtonSchulzPlan {
	plan := *kernels.PlanNewtonSchulz(triples, safety)
	plan.BFloat16 = c.NSDtype == "bfloat16"
	plan.Gram = c.NSMethod == "gram"
	plan.GramRestart = plan.BFloat16
	if c.ParityNorm {
		norm := muonNorms[c.Variant]
		plan.Eps, plan.EpsFloor, plan.ParityNorm = norm.eps, norm.floor, norm.bfloat16
	}
	return plan
}
