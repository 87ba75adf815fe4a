package main

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/lowbit/internal/lm"
)

type trainCmd struct {
	Corpus       string      `placeholder:"PATH" help:"A file or a folder of text to train on, or embedded for a text inside the command. By default the source of the Go standard library."`
	Steps        *int64      `placeholder:"N" help:"Optimizer steps of each run; 300 by default."`
	Optimizer    []string    `placeholder:"NAME" help:"The optimizers to compare, all by default: ${optimizers}."`
	Adam8bit     bool        `name:"adam-8bit" help:"Train with adamw_8bit alone."`
	Adam4bit     bool        `name:"adam-4bit" help:"Train with adamw_4bit alone."`
	MomentsDtype *string     `enum:"float32,bfloat16" placeholder:"DTYPE" help:"Train with adamw_float32 or adamw_bfloat16 alone: float32 or bfloat16."`
	Config       string      `placeholder:"FILE" help:"Train with this configuration (JSON) alone; the run has the file's name."`
	LR           *float64    `name:"lr" placeholder:"X" help:"Learning rate after the warmup; 0.01 by default."`
	MinLR        *float64    `name:"min-lr" placeholder:"X" help:"Learning rate at the end; a tenth of --lr by default."`
	AdamBeta1    *float64    `name:"adam-beta1" placeholder:"X" help:"Decay rate of the first moment; 0.9 by default."`
	AdamBeta2    *float64    `name:"adam-beta2" placeholder:"X" help:"Decay rate of the second moment; 0.999 by default."`
	WeightDecay  *float64    `placeholder:"X" help:"Decoupled weight decay; 0 by default."`
	GradClipNorm *float64    `placeholder:"X" help:"Largest global norm of the gradients; not limited by default."`
	Seed         *uint64     `placeholder:"N" help:"Seed of the weights, the batches and stochastic rounding; 0 by default."`
	Out          string      `placeholder:"DIR" help:"Folder for loss.csv and loss.png, made if need be; by default a new one among the temporary files."`
	Checkpoint   string      `placeholder:"FILE" help:"Save weights, optimizer state and losses there at the end, or when interrupted."`
	Resume       string      `placeholder:"FILE" help:"Continue the run of a checkpoint; what the command line leaves open is as it was there."`
	Force        bool        `help:"Replace output files that exist."`
	Threads      threadCount `placeholder:"N" help:"Use at most N threads; 0 means one a core."`
	JSON         bool        `name:"json" help:"Print the table as one JSON object."`

	OptimizerStateOffload          *string `enum:"none,cpu,disk" placeholder:"PLACE" help:"Keep the optimizers' states in memory (none, cpu) or on disk, in a file that is gone at the end; none by default."`
	OptimizerStateOffloadDir       string  `placeholder:"DIR" help:"Folder for the file of --optimizer-state-offload disk."`
	OptimizerStateOffloadBatchSize *int    `placeholder:"N" help:"Move the states of N parameters at a time; 1 by default."`
}

func (*trainCmd) Help() string {
	return `Trains a small byte-level language model once with each optimizer, from the same start on the same batches, and prints
the loss on held-out text, in nats a byte, the bytes of optimizer state a parameter, the time of a step and the
optimizer's share of it. The curves go to loss.png and loss.csv. The learning rate rises for up to 20 steps and then falls
along a cosine. adamw_bfloat16 rounds its moments stochastically; muon leaves the embedding and the vectors to AdamW.

The same command gives the same losses, on any number of threads. A loss that is not finite ends its run.

A resumed run keeps the schedule that it began with: where --steps gives it more steps than that has, they are at the last
rate, with a warning. docs/configuration.md lists the keys of --config.

Examples:

    lowbit train
    lowbit train --corpus notes/ --adam-8bit --steps 1000 --checkpoint run.safetensors
    lowbit train --resume run.safetensors --checkpoint run.safetensors
    lowbit train --adam-8bit --optimizer-state-offload disk --optimizer-state-offload-dir /var/tmp
`
}

func (c *trainCmd) Run(e *env) error {
	defer c.Threads.use()()
	saved, err := c.readCheckpoint()
	if err != nil {
		return err
	}
	t, err := c.newTraining(e, saved)
	if err != nil {
		return err
	}
	runs, err := c.newRuns(e, t, saved)
	defer closeRuns(runs)
	if err != nil {
		return err
	}
	if saved != nil {
		if err := runs[0].resume(c.Resume, saved); err != nil {
			return err
		}
		runs[0].warnOfSchedule(e)
	}
	if c.Checkpoint != "" {
		if err := probe(c.Checkpoint, c.Force || sameFile(c.Checkpoint, c.Resume)); err != nil {
			return err
		}
	}
	folder, err := c.outFolder()
	if err != nil {
		return err
	}
	defer folder.removeIfUnused()
	if err := c.trainAll(e, runs); err != nil {
		return err
	}
	if err := folder.write(runs); err != nil {
		return err
	}
	if err := c.print(e, t, runs, folder); err != nil {
		return err
	}
	return divergence(runs)
}

// newTraining settles what all runs have in common.
func (c *trainCmd) newTraining(e *env, saved *trainState) (*training, error) {
	t := &training{steps: defaultSteps}
	source := c.Corpus
	if saved != nil {
		t.steps, t.scheduled, t.seed = saved.Steps, saved.scheduled(), saved.Seed
		if source == "" {
			source = saved.Corpus.Source
		}
	}
	if c.Steps != nil {
		t.steps = *c.Steps
	}
	if saved == nil {
		t.scheduled = t.steps
	}
	if c.Seed != nil {
		t.seed = *c.Seed
	}
	corpus, err := e.loadCorpus(source)
	if err != nil {
		return nil, err
	}
	t.corpus = corpus.id
	context := lm.Default.Context
	if t.sampler, err = lm.NewSampler(corpus.Train, batchRows, context, t.seed); err != nil {
		return nil, badInput("--corpus: %w", err)
	}
	if t.heldOut, err = lm.Spread(corpus.HeldOut, heldOutRows, context); err != nil {
		return nil, badInput("--corpus: %w", err)
	}
	return t, nil
}

// newRuns returns the runs that the command line asks for, all at their start.
func (c *trainCmd) newRuns(e *env, t *training, saved *trainState) ([]*trainRun, error) {
	choices, err := c.choices(e, t, saved)
	if err != nil {
		return nil, err
	}
	if err := c.checkCount(choices); err != nil {
		return nil, err
	}
	runs := make([]*trainRun, len(choices))
	for i, choice := range choices {
		for _, warning := range choice.config.Warnings() {
			e.warn("%s: %s", choice.name, warning)
		}
		choice.config = c.offloaded(choice.config)
		if runs[i], err = newTrainRun(t, choice); err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// checkCount refuses to keep several runs in one checkpoint.
func (c *trainCmd) checkCount(choices []choice) error {
	flag := "--checkpoint"
	if c.Resume != "" {
		flag = "--resume"
	}
	if c.Checkpoint+c.Resume == "" || len(choices) == 1 {
		return nil
	}
	names := make([]string, len(choices))
	for i, choice := range choices {
		names[i] = choice.name
	}
	return badInput("%s needs exactly one optimizer, got %s", flag, strings.Join(names, ","))
}

// trainAll trains run after run. An interrupt leaves a checkpoint where one is wanted.
func (c *trainCmd) trainAll(e *env, runs []*trainRun) error {
	steps := int64(0)
	for _, r := range runs {
		steps += r.training.steps - r.done()
	}
	bar := e.progress(steps)
	defer bar.end()
	for _, r := range runs {
		err := r.train(e.ctx, bar)
		if c.Checkpoint != "" && !r.diverged && !r.torn {
			if err := r.save(c.Checkpoint); err != nil {
				return err
			}
		}
		if err != nil {
			bar.end()
			if c.Checkpoint != "" && !r.torn {
				fmt.Fprintf(e.stderr, "lowbit: %s holds step %d of %d: --resume continues from there\n", c.Checkpoint, r.done(), r.training.steps)
			}
			return err
		}
	}
	return nil
}

// divergence is the error of the runs whose loss was not finite.
func divergence(runs []*trainRun) error {
	problems := []string{}
	for _, r := range runs {
		if r.diverged {
			problems = append(problems, fmt.Sprintf("%s: the loss was not finite in step %d of %d", r.name, r.done(), r.training.steps))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(problems, "; "))
}

const (
	defaultSteps = 300
	batchRows    = 8
	heldOutRows  = 64
	warmupSteps  = 20
)
