package main

import (
	"errors"

	"github.com/lowbit-go/lowbit/internal/scratchfile"
	"github.com/lowbit-go/lowbit/optim"
)

// inMemory is a configuration without its keys of offload, on which no number of a run depends.
func inMemory(config optim.Config) optim.Config {
	return editCommon(config, func(c *optim.Common) { setOffload(c, "none", "", 1) })
}

// offloaded is a configuration with the keys that flags give.
func (c *trainCmd) offloaded(config optim.Config) optim.Config {
	return editCommon(config, func(common *optim.Common) {
		kind, folder := common.OptimizerStateOffload, common.OptimizerStateOffloadDir
		if c.OptimizerStateOffload != nil {
			kind, folder = *c.OptimizerStateOffload, ""
		}
		if c.OptimizerStateOffloadDir != "" {
			folder = c.OptimizerStateOffloadDir
		}
		setOffload(common, kind, folder, or(c.OptimizerStateOffloadBatchSize, common.OptimizerStateOffloadBatchSize))
	})
}

func setOffload(c *optim.Common, kind, folder string, batch int) {
	c.OptimizerStateOffload, c.OptimizerStateOffloadDir, c.OptimizerStateOffloadBatchSize = kind, folder, batch
}

func editCommon(config optim.Config, edit func(c *optim.Common)) optim.Config {
	switch c := config.(type) {
	case optim.AdamWConfig:
		edit(&c.Common)
		return c
	case optim.MuonConfig:
		edit(&c.Common)
		return c
	}
	return config
}

// validateOffload checks its flags as far as no file says more.
func (c *trainCmd) validateOffload() error {
	kind, folder := or(c.OptimizerStateOffload, "none"), c.OptimizerStateOffloadDir
	if c.Config != "" && c.OptimizerStateOffload == nil {
		kind = "" // the file's
	}
	switch {
	case kind == "disk" && folder == "":
		return badInput("--optimizer-state-offload disk needs --optimizer-state-offload-dir")
	case kind != "disk" && kind != "" && folder != "":
		return badInput("--optimizer-state-offload-dir needs --optimizer-state-offload disk, got %s", kind)
	case or(c.OptimizerStateOffloadBatchSize, 1) < 1:
		return badInput("--optimizer-state-offload-batch-size is %d, want 1 or more", *c.OptimizerStateOffloadBatchSize)
	}
	return nil
}

// newOptimizerError is one of the input unless it is the disk's.
func newOptimizerError(err error, name string) error {
	var disk *scratchfile.Error
	if errors.As(err, &disk) {
		return err
	}
	return badInput("%s: %w", name, err)
}

func closeRuns(runs []*trainRun) {
	for _, r := range runs {
		if r != nil {
			r.opt.Close()
		}
	}
}
