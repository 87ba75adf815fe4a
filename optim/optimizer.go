// Package optim holds optimizers whose state takes little memory: AdamW with float32,
// bf16, 8-bit or 4-bit moments, and Muon. A configuration, from JSON or Go, picks one;
// checkpoints resume it bit for bit.
package optim

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

// Optimizer updates the parameters of one model. It is not for concurrent use.
type Optimizer struct {
	config Config
	common Common
	params []*parameter
	engine engine
	step   int64 // steps taken
}

// New makes an optimizer whose state is that before the first step. It reads and writes
// the parameters' slices in place. Parameters that are tied, which means that their
// weights are the same memory, count once.
func New(config Config, params []Param) (*Optimizer, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	o := &Optimizer{config: config, common: config.common(), engine: &cpu{}}
	if o.common.OptimizerStateOffload == "disk" {
		return nil, fmt.Errorf("optim: optimizer_state_offload: got disk, want none or cpu: this version keeps states in memory")
	}
	distinct, err := untie(params)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(distinct))
	for i, p := range distinct {
		names[i] = p.Name
	}
	groups, err := matchGroups(o.common.ParamGroups, names)
	if err != nil {
		return nil, err
	}
	split := false
	for i, param := range distinct {
		p, err := newParameter(param, groups[i], config)
		if err != nil {
			return nil, err
		}
		p.seedM = bf16.StreamSeed(o.common.Seed, 'm', p.Name)
		p.seedV = bf16.StreamSeed(o.common.Seed, 'v', p.Name)
		p.seedW = bf16.StreamSeed(o.common.Seed, 'w', p.Name)
		if o.common.Master == "split" && p.Weights.BF16 != nil {
			p.moments.low = make([]uint16, p.elements())
			split = true
		}
		o.params = append(o.params, p)
	}
	if o.common.Master == "split" && !split {
		return nil, fmt.Errorf("optim: master: got split, want none where no parameter has bf16 weights")
	}
	return o, nil
}

// untie drops the parameters whose weights an earlier one has.
func untie(params []Param) ([]*Param, error) {
	var distinct []*Param
	names := map[string]bool{}
	owners := map[unsafe.Pointer]*Param{}
	for i := range params {
		p := &params[i]
		if p.Name == "" {
			return nil, fmt.Errorf("optim: parameter %d has no name", i)
		}
		if names[p.Name] {
			return nil, fmt.Errorf("optim: two parameters are called %q, want distinct names", p.Name)
		}
		names[p.Name] = true
		if p.Weights.Len() == 0 {
			distinct = append(distinct, p)
			continue
		}
		owner := owners[address(p.Weights)]
		switch {
		case owner == nil:
			owners[address(p.Weights)] = p
			distinct = append(distinct, p)
		case owner.Weights.Len() != p.Weights.Len():
			return nil, fmt.Errorf("optim: parameters %q and %q share a part of their weights, want all or nothing", owner.Name, p.Name)
		case p.Gradients.Len() > 0 && address(owner.Gradients) != address(p.Gradients):
			return nil, fmt.Errorf("optim: parameters %q and %q are tied but have different gradients, want one", owner.Name, p.Name)
		}
	}
	return distinct, nil
}

func address(f kernels.Floats) unsafe.Pointer {
	if f.BF16 != nil {
		return unsafe.Pointer(unsafe.SliceData(f.BF16))
	}
	return unsafe.Pointer(unsafe.SliceData(f.F32))
}

// StepResult says what a step did.
type StepResult struct {
	Step     int64   // 1 for the first
	LR       float64 // the schedule's, before a group's lr_scale
	GradNorm float64 // the global norm before clipping; NaN where grad_clip_norm is null
	Clip     float64 // what the gradients were multiplied by, 1 where they were not clipped
	Skipped  bool    // the norm was not finite, and nothing changed

	kernels.Counts
	SkippedParameters int64 // left untouched for what is not finite in them
}

// Step updates every parameter that has gradients, with the learning rate that the
// schedule has for the number of steps taken before. With grad_clip_norm, all gradients
// are scaled by one coefficient when their global norm exceeds it; a norm that is not
// finite skips the step, which then does not count.
func (o *Optimizer) Step() (StepResult, error) {
	r := StepResult{Step: o.step + 1, LR: o.common.LR.At(o.step), GradNorm: math.NaN(), Clip: 1}
	if err := o.checkGradients(); err != nil {
		return StepResult{}, err
	}
	if o.common.GradClipNorm != nil {
		r.GradNorm = o.GradNorm()
		if r.GradNorm-r.GradNorm != 0 {
			r.Skipped = true
			o.dropSums()
			return r, nil
		}
		r.Clip = ClipCoefficient(r.GradNorm, *o.common.GradClipNorm)
	}
	for _, p := range o.params {
		if p.gradients().Len() == 0 {
			continue
		}
		p.step++
		counts, skipped, err := o.config.update(o, p, r)
		if err != nil {
			return StepResult{}, err
		}
		r.Add(counts)
		if skipped {
			r.SkippedParameters++
		}
	}
	o.dropSums()
	o.step++
	return r, nil
}

// Steps is the number of steps taken.
func (o *Optimizer) Steps() int64 { return o.step }

// GradNorm is the Euclidean norm of all gradients together. The squares' sums are added
// in the order of the parameters.
func (o *Optimizer) GradNorm() float64 {
	total := 0.0
	for _, p := range o.params {
		total += o.engine.sumSquares(p.gradients())
	}
	return math.Sqrt(total)
}

// ClipCoefficient is what torch's clip_grad_norm_ multiplies gradients by.
func ClipCoefficient(norm, maxNorm float64) float64 {
	return min(maxNorm/(norm+1e-6), 1)
}

// Accumulate adds the current gradients to a bf16 sum of each parameter, as the
// gradients of one micro-batch: the next Step uses the sums instead and drops them.
func (o *Optimizer) Accumulate() error {
	if err := o.checkGradients(); err != nil {
		return err
	}
	for _, p := range o.params {
		if p.Gradients.Len() == 0 {
			continue
		}
		if p.sums == nil {
			p.sums = make([]uint16, p.elements())
		}
		if !p.hasSums {
			clear(p.sums)
			p.hasSums = true
		}
		if err := o.engine.accumulate(kernels.BF16s(p.sums), p.Gradients); err != nil {
			return err
		}
	}
	return nil
}

func (o *Optimizer) dropSums() {
	for _, p := range o.params {
		p.hasSums = false
	}
}

func (o *Optimizer) checkGradients() error {
	for _, p := range o.params {
		g := p.Gradients
		if g.F32 != nil && g.BF16 != nil {
			return p.errorf("gradients are given in float32 and in bf16, want one of them")
		}
		if n := g.Len(); n != 0 && n != p.elements() {
			return p.errorf("%d gradients, want %d as weights", n, p.elements())
		}
	}
	return nil
}
