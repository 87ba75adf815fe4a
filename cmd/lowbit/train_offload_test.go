package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func offloadFlags(folder string, more ...string) []string {
	return append([]string{"--optimizer-state-offload", "disk", "--optimizer-state-offload-dir", folder}, more...)
}

// TestTrainOffload has the same losses and the same checkpoint as in memory, also where half of the run was there, and
// leaves nothing on the disk.
func TestTrainOffload(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	scratch := t.TempDir()
	config := fmt.Sprintf(`{"lr": 0.01, "optimizer_state_offload": "disk", "optimizer_state_offload_dir": %q}`, scratch)
	require.NoError(t, os.WriteFile(at("file"), []byte(config), 0o666))
	for name, c := range map[string]struct{ flags, more []string }{
		"all":   {nil, []string{"--optimizer-state-offload-batch-size", "3"}},
		"4bit":  {[]string{"--adam-4bit"}, nil},
		"muon":  {[]string{"--optimizer", "muon"}, []string{"--optimizer-state-offload-batch-size", "100"}},
		"file":  {[]string{"--config", at("file")}, nil},
		"file2": {[]string{"--config", at("file"), "--optimizer-state-offload", "cpu"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			args := train(4, c.flags...)
			memory, disk := append(args, "--out", at(name+"1")), append(args, "--out", at(name+"2"))
			if name != "all" {
				memory, disk = append(memory, "--checkpoint", at(name+".c1")), append(disk, "--checkpoint", at(name+".c2"))
			}
			disk = append(disk, offloadFlags(scratch, c.more...)...)
			require.Equal(t, losses(t, trained(t, memory...).CSV), losses(t, trained(t, disk...).CSV))
			require.Empty(t, names(t, scratch))
			if name == "all" {
				return
			}
			require.Equal(t, read(t, at(name+".c1")), read(t, at(name+".c2")))

			asked := 0
			r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
				if time > 2 {
					return context.Canceled
				}
				return nil
			}}, 0, append(disk, "--force")...)
			require.Equal(t, exitInterrupted, r.code)
			require.Empty(t, names(t, scratch))
			resumed := append(train(4, c.flags...), "--resume", at(name+".c2"), "--checkpoint", at(name+".c2"), "--out", at(name+"3"))
			if name == "4bit" {
				resumed = append(resumed, offloadFlags(scratch)...)
			}
			trained(t, resumed...)
			require.Equal(t, read(t, at(name+".c1")), read(t, at(name+".c2")))
			require.Empty(t, names(t, scratch))
		})
	}
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
