package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lowbit-go/lowbit/internal/lm"
	"github.com/lowbit-go/lowbit/optim"
)

const (
	trainKey     = "lowbit.train" // of a checkpoint's metadata
	trainVersion = 1
)

// trainState is what a checkpoint says of a run beside weights and optimizer state.
type trainState struct {
	Version   int             `json:"version"`
	Optimizer string          `json:"optimizer"`
	Config    json.RawMessage `json:"config"`
	Model     string          `json:"model"`
	Corpus    corpusID        `json:"corpus"`
	BatchRows int             `json:"batch_rows"`
	Seed      uint64          `json:"seed"`
	Steps     int64           `json:"steps"`
	Step      int64           `json:"step"` // done, and the number of the next batch
	curve
}

var modelName = fmt.Sprintf("%+v", lm.Default)

func (r *trainRun) state() (*trainState, error) {
	config, err := json.Marshal(inMemory(r.config))
	if err != nil {
		return nil, err
	}
	t := r.training
	return &trainState{trainVersion, r.name, config, modelName, t.corpus, batchRows, t.seed, t.steps, r.done(), r.curve}, nil
}

// save writes a checkpoint, which replaces one of that name.
func (r *trainRun) save(path string) error {
	state, err := r.state()
	if err != nil {
		return err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return r.opt.Save(path, optim.SaveOptions{Weights: true, Metadata: map[string]string{trainKey: string(text)}})
}

// readCheckpoint reads what the checkpoint of --resume says of its run, nil without the flag.
func (c *trainCmd) readCheckpoint() (*trainState, error) {
	if c.Resume == "" {
		return nil, nil
	}
	f, err := openInput(c.Resume)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, ok := f.Metadata[trainKey]
	if !ok {
		return nil, badInput("%s: the metadata has no %s, want a checkpoint of lowbit train", c.Resume, trainKey)
	}
	saved := &trainState{}
	if err := json.Unmarshal([]byte(text), saved); err != nil {
		return nil, badInput("%s: %s: %w", c.Resume, trainKey, err)
	}
	if saved.Version != trainVersion {
		return nil, badInput("%s: %s has version %d, want %d", c.Resume, trainKey, saved.Version, trainVersion)
	}
	if saved.Step != int64(len(saved.TrainLosses)) || saved.Step > saved.Steps || len(saved.HeldOut) == 0 {
		return nil, badInput("%s: %s has %d losses for step %d of %d", c.Resume, trainKey, len(saved.TrainLosses), saved.Step, saved.Steps)
	}
	return saved, nil
}

// scheduled is the length of the run's schedule, which stays when it goes on for longer.
func (s *trainState) scheduled() int64 {
	if config, err := optim.ParseConfig(s.Config); err == nil { // otherwise the run refuses to resume
		if total := learningRate(config).Total; total > 0 {
			return total
		}
	}
	return s.Steps
}

func learningRate(config optim.Config) optim.Schedule {
	if c, ok := config.(optim.MuonConfig); ok {
		return c.LR
	}
	return config.(optim.AdamWConfig).LR
}

// warnOfSchedule says that a run has more steps than its schedule.
func (r *trainRun) warnOfSchedule(e *env) {
	lr, last := learningRate(r.config), r.training.steps-1
	if lr.Type != "constant" && lr.Total <= last {
		e.warn("the schedule of the learning rate ends at step %d: the steps from there to %d are at its last rate, %v", lr.Total, last+1, lr.At(last))
	}
}

// resume continues from a checkpoint of the same run.
func (r *trainRun) resume(path string, saved *trainState) error {
	want, err := r.state()
	if err != nil {
		return err
	}
	for _, d := range saved.differences(want) {
		if d.saved != d.want {
			return badInput("%s: the checkpoint's %s is %s, this run's is %s", path, d.what, d.saved, d.want)
		}
	}
	if saved.Step > want.Steps {
		return badInput("%s: the checkpoint is at step %d, this run has %d", path, saved.Step, want.Steps)
	}
	if _, err := r.opt.Load(path); err != nil {
		return inputError{err}
	}
	r.curve = saved.curve
	return nil
}

type difference struct{ what, saved, want string }

// differences are what must be the same in two runs for one to continue the other. The number of steps need not be.
func (s *trainState) differences(want *trainState) []difference {
	list := []difference{
		{"optimizer", s.Optimizer, want.Optimizer},
		{"model", s.Model, want.Model},
		{"batch", strconv.Itoa(s.BatchRows) + " rows", strconv.Itoa(want.BatchRows) + " rows"},
		{"seed", strconv.FormatUint(s.Seed, 10), strconv.FormatUint(want.Seed, 10)},
	}
	if s.Corpus.SHA256 != want.Corpus.SHA256 {
		list = append(list, difference{"corpus", s.Corpus.String(), want.Corpus.String()})
	}
	if bytes.Equal(s.Config, want.Config) {
		return list
	}
	return append(list, configDifferences(s.Config, want.Config)...)
}

// configDifferences compares two configurations key by key.
func configDifferences(saved, want json.RawMessage) []difference {
	var a, b map[string]json.RawMessage
	_, _ = json.Unmarshal(saved, &a), json.Unmarshal(want, &b) // what is no object lacks every key
	keys := map[string]json.RawMessage{}
	maps.Copy(keys, a)
	maps.Copy(keys, b)
	list := []difference{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		list = append(list, difference{key, string(a[key]), string(b[key])})
	}
	return list
}
