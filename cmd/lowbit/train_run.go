package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lowbit-go/lowbit/internal/lm"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

// training is what all runs of a command have in common.
type training struct {
	corpus    corpusID
	sampler   *lm.Sampler
	heldOut   lm.Batch
	steps     int64
	scheduled int64 // steps that the learning rate falls for
	seed      uint64
}

// trainRun is the training of one optimizer.
type trainRun struct {
	choice
	training *training
	model    *lm.Model
	opt      *optim.Optimizer
	curve
	diverged bool
	torn     bool // whether a step was taken in part

	measured       int64 // steps that the times are of
	step, optimize time.Duration
}

// curve is the losses of a run, in nats a byte.
type curve struct {
	TrainLosses []float64     `json:"train_losses"` // of the batch of each step, before its update
	HeldOut     []heldOutLoss `json:"held_out"`
}

type heldOutLoss struct {
	Step int64   `json:"step"` // steps before
	Loss float64 `json:"loss"`
}

func newTrainRun(t *training, c choice) (*trainRun, error) {
	r := &trainRun{choice: c, training: t, model: lm.New(lm.Default, t.seed)}
	params := []optim.Param{}
	for _, p := range r.model.Params() {
		params = append(params, optim.Param{
			Name: p.Name, Shape: p.Shape, Role: p.Role, InputAxis: p.InputAxis,
			Weights: kernels.Float32s(p.Weight), Gradients: kernels.Float32s(p.Grad),
		})
	}
	var err error
	if r.opt, err = optim.New(c.config, params); err != nil {
		return nil, newOptimizerError(err, c.name)
	}
	return r, nil
}

// done is the number of steps so far.
func (r *trainRun) done() int64 { return int64(len(r.TrainLosses)) }

// loss is the last on held-out text, NaN where the run diverged.
func (r *trainRun) loss() float64 {
	if r.diverged || len(r.HeldOut) == 0 {
		return math.NaN()
	}
	return r.HeldOut[len(r.HeldOut)-1].Loss
}

// train takes the steps that are left, until an interrupt or a loss that is not finite.
func (r *trainRun) train(ctx context.Context, bar *progress) error {
	bar.describe(r.name)
	if len(r.HeldOut) == 0 {
		if err := r.measure(); err != nil {
			return err
		}
	}
	every := max(r.training.steps/heldOutPoints, leastSteps)
	for r.done() < r.training.steps && !r.diverged {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.takeStep(); err != nil {
			return err
		}
		if done := r.done(); !r.diverged && (done%every == 0 || done == r.training.steps) {
			if err := r.measure(); err != nil {
				return err
			}
			bar.describe(fmt.Sprintf("%s %.3f", r.name, r.loss()))
		}
		bar.add(1)
	}
	return nil
}

// The held-out loss takes as long as three steps: it is taken at the start, about fifteen times on the way and at the
// end, but not more often than every ten steps.
const (
	heldOutPoints = 15
	leastSteps    = 10
)

func (r *trainRun) takeStep() error {
	start := time.Now()
	loss, err := r.model.Step(r.training.sampler.Batch(uint64(r.done())))
	if err != nil {
		return err
	}
	r.TrainLosses = append(r.TrainLosses, loss)
	if r.diverged = !finite(loss); r.diverged {
		return nil
	}
	forward := time.Now()
	if _, err := r.opt.Step(); err != nil {
		var disk *optim.OffloadError
		r.torn = !errors.As(err, &disk) || len(disk.Untouched) > 0
		return err
	}
	end := time.Now()
	r.measured++
	r.step += end.Sub(start)
	r.optimize += end.Sub(forward)
	return nil
}

// measure takes the loss on held-out text.
func (r *trainRun) measure() error {
	loss, err := r.model.Loss(r.training.heldOut)
	if err != nil {
		return err
	}
	r.HeldOut = append(r.HeldOut, heldOutLoss{r.done(), loss})
	r.diverged = !finite(loss)
	return nil
}

func finite(x float64) bool { return x-x == 0 }

// parameters is the number of the model's weights.
func (r *trainRun) parameters() (n int64) {
	for _, p := range r.model.Params() {
		n += int64(len(p.Weight))
	}
	return n
}

// stateBytes is the size of the optimizer's state for each parameter.
func (r *trainRun) stateBytes() float64 {
	return float64(r.opt.Metrics()["state_total_bytes"]) / float64(r.parameters())
}
