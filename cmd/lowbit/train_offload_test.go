package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func offloadFlags(folder string, more ...string) []string {
	return append([]string{"--optimizer-state-offload", "disk", "--optimizer-state-offload-dir", folder}, more...)
}

// TestTrainOffload has the same losses and the same checkpoint as in memory, also where half of the run was there, and
// leaves nothing on the disk.
func TestTrainOffload(t *testing.T) {
	scratch, config := t.TempDir(), filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"lr": 0.01, "optimizer_state_offload": "disk", "optimizer_state_offload_dir": %q}`, scratch)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o666))
	for name, c := range map[string]struct{ flags, offload []string }{
		"4-bit":         {[]string{"--adam-4bit"}, offloadFlags(scratch)},
		"muon":          {[]string{"--optimizer", "muon"}, offloadFlags(scratch, "--optimizer-state-offload-batch-size", "3")},
		"config":        {[]string{"--config", config}, nil},
		"config in cpu": {[]string{"--config", config}, []string{"--optimizer-state-offload", "cpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			at := func(name string) string { return filepath.Join(folder, name) }
			args := func(name string, more ...string) []string {
				return slices.Concat(train(4, c.flags...), []string{"--out", at(name), "--checkpoint", at(name + ".c")}, more)
			}
			memory := trained(t, args("memory", "--optimizer-state-offload", "none")...)
			disk := trained(t, args("disk", c.offload...)...)
			require.Equal(t, losses(t, memory.CSV), losses(t, disk.CSV))
			require.Equal(t, read(t, at("memory.c")), read(t, at("disk.c")))
			require.Empty(t, names(t, scratch))

			for name, where := range map[string][2][]string{
				"from disk": {c.offload, {"--optimizer-state-offload", "none"}},
				"to disk":   {{"--optimizer-state-offload", "none"}, c.offload},
			} {
				asked := 0
				r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
					if time > 2 {
						return context.Canceled
					}
					return nil
				}}, 0, args(name, where[0]...)...)
				require.Equal(t, exitInterrupted, r.code)
				require.Empty(t, names(t, scratch))
				trained(t, args(name, append(where[1], "--resume", at(name+".c"))...)...)
				require.Equal(t, read(t, at("memory.c")), read(t, at(name+".c")))
			}
			require.Empty(t, names(t, scratch))
		})
	}
}

// TestTrainOffloadsEach of several optimizers.
func TestTrainOffloadsEach(t *testing.T) {
	folder, scratch := t.TempDir(), t.TempDir()
	args := func(name string, more ...string) []string {
		return train(2, append(more, "--out", filepath.Join(folder, name))...)
	}
	require.Equal(t, losses(t, trained(t, args("memory")...).CSV), losses(t, trained(t, args("disk", offloadFlags(scratch)...)...).CSV))
	require.Empty(t, names(t, scratch))
}

// TestStepOffload has the same outputs as in memory, and leaves nothing on the disk.
func TestStepOffload(t *testing.T) {
	folder, scratch := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("p"), nil, f32("a", numbers(300), 300), f32("b", numbers(20), 4, 5))
	store(t, at("g"), nil, f32("a", numbers(300), 300), f32("b", numbers(20), 4, 5))
	for name, config := range map[string]map[string]any{
		"memory": {"adam_8bit": true},
		"disk":   {"adam_8bit": true, "optimizer_state_offload": "disk", "optimizer_state_offload_dir": scratch},
	} {
		text, err := json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at(name), text, 0o666))
		succeeds(t, "step", "--config", at(name), "--params", at("p"), "--grads", at("g"), "--out-params", at(name+".p"), "--out-state", at(name+".s"))
		require.Empty(t, names(t, scratch))
	}
	require.Equal(t, read(t, at("memory.p")), read(t, at("disk.p")))
	require.Equal(t, read(t, at("memory.s")), read(t, at("disk.s")))
}
