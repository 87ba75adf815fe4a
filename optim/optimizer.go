// Package optim holds optimizers whose state takes little memory: AdamW with float32,
// bf16, 8-bit or 4-bit moments, and Muon. A configuration, from JSON or Go, picks one;
// checkpoints resume it bit for bit.
package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/kernels"
)

// Optimizer updates the parameters of one model. None of its methods may run while another
// one does; each uses as many goroutines as it needs.
type Optimizer struct {
	config Config
	common Common
	params []*parameter
	engine engine
	disk   *offload // nil where states stay in memory
	step   int64    // steps taken
	summed bool     // whether a parameter may have sums of micro-batches
	tied   bool     // whether a parameter has several names

	steps   []int64      // of params, the updates so far
	leaders []*parameter // those whose numbers of AdamW's step were computed, the others share
}

// New makes an optimizer whose state is that before the first step, zeros.
//
// The optimizer keeps pointers to the elements of params, not copies: each step reads the
// gradients and updates the weights that these hold then, so slices may be replaced between
// steps by others of the same length and format. Parameters that are tied, which means that
// their weights are the same memory, count once, under the first one's name and settings.
// Weights that share only a part of their memory are an error, as are a configuration that
// is not valid, a group that matches no parameter, and a parameter whose shape, role and
// slices do not fit each other.
func New(config Config, params []Param) (*Optimizer, error) {
	config = plain(config)
	if config == nil {
		return nil, fmt.Errorf("optim: no configuration, want an AdamWConfig or a MuonConfig")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	o := &Optimizer{config: config, common: config.common(), engine: &cpu{}}
	distinct, tied, err := untie(params)
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
	o.steps = make([]int64, len(distinct))
	for i, param := range distinct {
		p, err := newParameter(param, groups[i], config)
		if err != nil {
			return nil, err
		}
		p.step, p.tied = &o.steps[i], tied[param]
		o.tied = o.tied || p.tied != nil
		p.seedM = bf16.StreamSeed(o.common.Seed, 'm', p.Name)
		p.seedV = bf16.StreamSeed(o.common.Seed, 'v', p.Name)
		p.seedW = bf16.StreamSeed(o.common.Seed, 'w', p.Name)
		p.layout.master = o.common.Master == "split" && p.narrow
		o.params = append(o.params, p)
	}
	if err := o.common.checkMaster(o.params); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.makeStates(); err != nil {
		return nil, err
	}
	return o, nil
}

// plain is the configuration that a pointer to one has now.
func plain(config Config) Config {
	switch c := config.(type) {
	case *AdamWConfig:
		if c == nil {
			return nil
		}
		return *c
	case *MuonConfig:
		if c == nil {
			return nil
		}
		return *c
	}
	return config
}

// checkMaster refuses a split master of no weights.
func (c Common) checkMaster(params []*parameter) error {
	if c.Master == "split" && !slices.ContainsFunc(params, func(p *parameter) bool { return p.layout.master }) {
		return fmt.Errorf("optim: master: got split, want none where no parameter has bf16 weights")
	}
	return nil
}

func (o *Optimizer) makeStates() (err error) {
	if o.common.OptimizerStateOffload == "disk" {
		o.disk, err = newOffload(o.params, o.common.OptimizerStateOffloadDir, o.common.OptimizerStateOffloadBatchSize)
		return err
	}
	for _, p := range o.params {
		p.moments = p.newMoments(nil)
	}
	return nil
}

// Close gives back what optimizer_state_offload disk took: the optimizer is of no use then.
// Without disk there is nothing to close. An optimizer that is not closed keeps its scratch
// file as long as it is reachable, but no longer than the process lives.
func (o *Optimizer) Close() error {
	if o.disk == nil || o.disk.closed {
		return nil
	}
	return o.disk.close()
}

// StepResult says what a step did.
type StepResult struct {
	Step     int64   // 1 for the first
	LR       float64 // the schedule's, before a group's lr_scale
	GradNorm float64 // the global norm before clipping; NaN where grad_clip_norm is null
	Clip     float64 // what the gradients were multiplied by, 1 where they were not clipped
	Skipped  bool    // the norm was not finite, and nothing changed
	Updated  int64   // parameters that had gradients and were not left untouched

	kernels.Counts          // of what was not finite, and of what was left untouched for it
	SkippedParameters int64 // left untouched as a whole
}

// Step updates every parameter that has gradients, with the learning rate that the
// schedule has for the number of steps taken before. With grad_clip_norm, all gradients
// are scaled by one coefficient when their global norm exceeds it; a norm that is not
// finite skips the step, which then does not count. The gradients themselves are not
// changed.
//
// Slices of a wrong length or format are an error, and so is a step of Muon that is infinite
// in float32, and then nothing has changed. Gradients
// that lie in the optimizer's own state (see State) are one too, which says which parameters
// have been updated before. An [OffloadError] comes with the result of a step that was taken.
func (o *Optimizer) Step() (StepResult, error) {
	r := StepResult{Step: o.step + 1, LR: o.common.LR.At(o.step), GradNorm: math.NaN(), Clip: 1}
	steady := o.steady()
	if !steady {
		if err := o.check(); err != nil {
			return StepResult{}, err
		}
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
	if c, ok := o.config.(MuonConfig); ok {
		for _, p := range o.params {
			if !p.muon || p.gradients().Len() == 0 {
				continue
			}
			if err := c.checkStep(p, r); err != nil {
				return StepResult{}, err
			}
		}
	}
	if steady {
		if err := o.updateAgain(&r); err != nil {
			return StepResult{}, err
		}
		return o.taken(r), nil
	}
	if o.disk == nil {
		if err := o.update(0, len(o.params), &r); err != nil {
			return StepResult{}, err
		}
		return o.taken(r), nil
	}
	taken, err := o.disk.step(o, &r)
	if !taken {
		return StepResult{}, err
	}
	return o.taken(r), err
}

// update steps the parameters from first to before last that have gradients.
func (o *Optimizer) update(first, last int, r *StepResult) error {
	o.engine.begin()
	o.leaders = o.leaders[:0]
	for i, p := range o.params[first:last] {
		if p.gradients().Len() == 0 {
			continue
		}
		*p.step++
		counts, skipped, err := o.updateOne(p, r)
		if err != nil {
			*p.step--
			_, _, _ = o.engine.finish()
			o.engine.begin()
			return p.errorf("%w; this parameter and those after the first %d have not been updated", err, first+i)
		}
		r.Add(counts)
		if skipped {
			r.SkippedParameters++
		} else {
			r.Updated++
		}
	}
	return o.finish(r)
}

func (o *Optimizer) finish(r *StepResult) error {
	counts, skipped, err := o.engine.finish()
	r.Add(counts)
	r.SkippedParameters += skipped
	r.Updated -= skipped
	if err != nil {
		return fmt.Errorf("optim: %w; which parameters have been updated is not known", err)
	}
	return nil
}

func (o *Optimizer) updateOne(p *parameter, r *StepResult) (kernels.Counts, bool, error) {
	if p.muon {
		return o.config.muon(o, p, *r)
	}
	if n := len(o.leaders); n > 0 && p.sharesStep(o.leaders[n-1]) && !o.usesSeed() {
		return o.engine.adamW(p, &o.leaders[n-1].adamWStep)
	}
	o.leaders = append(o.leaders, p)
	o.config.setAdamW(o, p, *r)
	return o.engine.adamW(p, &p.adamWStep)
}

// steady tells whether a step is the last one again, but for its numbers: all parameters
// are AdamW's and have the memory that they had. Then nothing needs to be checked.
func (o *Optimizer) steady() bool {
	return !o.summed && !o.tied && o.disk == nil && o.engine.again(len(o.params))
}

func (o *Optimizer) updateAgain(r *StepResult) error {
	for i := range o.steps {
		o.steps[i]++
	}
	for _, p := range o.leaders {
		o.config.setAdamW(o, p, *r)
	}
	r.Updated = int64(len(o.params))
	return o.finish(r)
}

// sharesStep tells whether AdamW steps both with the same numbers, but for their seeds.
func (p *parameter) sharesStep(q *parameter) bool {
	return *p.step == *q.step && p.lrScale == q.lrScale && p.weightDecay == q.weightDecay && p.storage == q.storage && !p.muon
}

func (o *Optimizer) taken(r StepResult) StepResult {
	o.dropSums()
	o.step++
	return r
}

// Steps is the number of steps taken, also before a checkpoint that was loaded. Skipped ones
// do not count.
func (o *Optimizer) Steps() int64 { return o.step }

// GradNorm is the Euclidean norm of all gradients together, of the sums where micro-batches
// were accumulated, 0 without any. It is not finite where one of them is not. The
// parameters' sums of squares are added in float64, in the order of New.
func (o *Optimizer) GradNorm() float64 {
	total := 0.0
	for _, p := range o.params {
		total += o.engine.sumSquares(p.gradients())
	}
	return math.Sqrt(total)
}

// ClipCoefficient is what torch's clip_grad_norm_ multiplies gradients by, where norm is
// theirs and maxNorm the largest that is wanted: maxNorm/(norm + 1e-6), 1 at most.
func ClipCoefficient(norm, maxNorm float64) float64 {
	return min(maxNorm/(norm+1e-6), 1)
}

// Accumulate adds the current gradients to a bf16 sum of each parameter, as the
// gradients of one micro-batch: the next Step uses the sums instead and drops them. They
// are sums, not means. Slices of a wrong length or format are an error, and then nothing
// has changed.
func (o *Optimizer) Accumulate() error {
	if err := o.check(); err != nil {
		return err
	}
	for _, p := range o.params {
		if p.Gradients.Len() == 0 {
			continue
		}
		if p.sums == nil {
			p.sums = make([]uint16, p.n)
		}
		if !p.hasSums {
			clear(p.sums)
			p.hasSums, o.summed = true, true
		}
		if err := o.engine.accumulate(kernels.BF16s(p.sums), p.Gradients); err != nil {
			return err
		}
	}
	return nil
}

func (o *Optimizer) dropSums() {
	if !o.summed {
		return
	}
	for _, p := range o.params {
		p.hasSums = false
	}
	o.summed = false
}

// check finds every slice that a step cannot work with, before anything changes.
func (o *Optimizer) check() error {
	for _, p := range o.params {
		if err := p.checkSlices(); err != nil {
			return err
		}
	}
	return nil
}
