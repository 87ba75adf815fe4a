//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sparse writes a file with one tensor of zeros that takes no room on the disk.
func sparse(t *testing.T, path, shape string, bytes int64) {
	t.Helper()
	header := headed(`{"w":{"dtype":"F32","shape":`+shape+`,"data_offsets":[0,`+strconv.FormatInt(bytes, 10)+`]}}`, 0)
	require.NoError(t, os.WriteFile(path, header, 0o666))
	require.NoError(t, os.Truncate(path, int64(len(header))+bytes))
}

// TestSignals stops the command itself in the middle of its work.
func TestSignals(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		folder := t.TempDir()
		in, out := filepath.Join(folder, "in"), filepath.Join(folder, "out")
		sparse(t, in, "[4096,262144]", 4<<30)
		var stdout, stderr bytes.Buffer
		c := command("", "quantize", in, out, "--format", "dynamic8")
		c.Stdout, c.Stderr = &stdout, &stderr
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool { return len(names(t, folder)) == 2 }, time.Minute, time.Millisecond)
		require.NoError(t, c.Process.Signal(signal))
		require.Error(t, c.Wait())
		require.Equal(t, exitInterrupted, c.ProcessState.ExitCode())
		require.Empty(t, stdout.String())
		require.Equal(t, "lowbit: interrupted\n", stderr.String())
		require.Equal(t, []string{"in"}, names(t, folder))
	}
}

// TestSignalsBeforeAConfiguration comes to a command that waits for one.
func TestSignalsBeforeAConfiguration(t *testing.T) {
	folder, plain := small(t)
	pipe := filepath.Join(folder, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	out := filepath.Join(folder, "out")
	for _, args := range [][]string{
		{"step", "--config", pipe, "--params", plain, "--grads", plain, "--out-params", out, "--out-state", out + "2"},
		{"train", "--config", pipe, "--out", out},
		{"plan", "--config", pipe, "--shapes", "4"},
	} {
		var stderr bytes.Buffer
		c := command("", args...)
		c.Stderr = &stderr
		require.NoError(t, c.Start())
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits until the command reads
		require.NoError(t, err)
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		require.Error(t, c.Wait())
		require.NoError(t, writer.Close())
		require.Equal(t, exitInterrupted, c.ProcessState.ExitCode())
		require.Equal(t, "lowbit: interrupted\n", stderr.String())
	}
	long := filepath.Join(folder, "long")
	require.NoError(t, os.WriteFile(long, bytes.Repeat([]byte(" "), 1<<20+1), 0o600))
	fails(t, exitBadInput, long+": more than 1048576 bytes, want a configuration", "plan", "--config", long, "--shapes", "4")
}

// A limit of 512 or 1024 bytes on the size of files stands in for a full disk.
func TestFullDisk(t *testing.T) {
	for name, command := range conversions {
		for place, metadata := range map[string]map[string]string{"data": nil, "header": {"note": strings.Repeat("x", 2000)}} {
			t.Run(name+" "+place, func(t *testing.T) {
				folder := t.TempDir()
				in, out := filepath.Join(folder, "in"), filepath.Join(folder, "out")
				store(t, in, metadata, f32("w", numbers(5000), 5000))
				if name == "dequantize" {
					succeeds(t, "quantize", in, out, "--format", "nf4")
					require.NoError(t, os.Rename(out, in))
				}
				require.Empty(t, failsOnFullDisk(t, out, append(command, in, out)...))
				require.Equal(t, []string{"in"}, names(t, folder))
			})
		}
	}
}

// failsOnFullDisk wants an error that names the output, not the file that it would have been.
func failsOnFullDisk(t *testing.T, out string, args ...string) (printed string) {
	t.Helper()
	limited := exec.Command("sh", append([]string{"-c", `ulimit -f 1; exec "$0" "$@"`, os.Args[0]}, args...)...)
	limited.Env = append(os.Environ(), "LOWBIT_TEST_COMMAND=1")
	var stdout, stderr bytes.Buffer
	limited.Stdout, limited.Stderr = &stdout, &stderr
	require.Error(t, limited.Run())
	requireFailure(t, result{limited.ProcessState.ExitCode(), "", stderr.String()}, exitFailed, out+": ")
	require.Contains(t, stderr.String(), "file too large")
	require.NotContains(t, stderr.String(), ".tmp")
	return stdout.String()
}

// TestFullDiskOfAStep has no room for the parameters, or for the state, which is larger.
func TestFullDiskOfAStep(t *testing.T) {
	for elements, out := range map[int64]string{1000: "p2", 10: "s2"} {
		folder, args := stepFiles(t, `{}`)
		for _, name := range []string{"p", "g"} {
			path := filepath.Join(folder, name)
			require.NoError(t, os.Remove(path))
			store(t, path, nil, f32("w", numbers(int(elements)), elements))
		}
		failsOnFullDisk(t, filepath.Join(folder, out), args...)
		require.Equal(t, []string{"c", "g", "p"}, names(t, folder))
	}
}

func TestSymbolicLinks(t *testing.T) {
	folder, in := small(t)
	link := filepath.Join(folder, "link")
	require.NoError(t, os.Symlink(in, link))
	fails(t, exitBadInput, "are the same file", "quantize", in, link, "--format", "nf4", "--force")
	fails(t, exitBadInput, "are the same file", "round", link, in, "--to", "bfloat16", "--force")
	require.Equal(t, []string{"in", "link"}, names(t, folder))
}

// TestLargerThanMemory converts a tensor of 8 GiB in less than 256 MiB. It takes minutes and 13 GiB of disk.
func TestLargerThanMemory(t *testing.T) {
	if os.Getenv("LOWBIT_LARGE") == "" {
		t.Skip("LOWBIT_LARGE=1 runs the test with a tensor of 8 GiB")
	}
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	sparse(t, at("in"), "[2,1073741824]", 8<<30)
	for _, args := range [][]string{
		{"quantize", at("in"), at("q"), "--format", "nf4", "--layout", "bitsandbytes", "--double-quant"},
		{"dequantize", at("q"), at("d"), "--dtype", "bfloat16"},
		{"inspect", at("d"), "--against", at("in")},
		{"round", at("in"), at("r"), "--to", "bfloat16"},
	} {
		c := command("", args...)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		require.NoError(t, c.Run(), stderr.String())
		peak := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		if runtime.GOOS == "linux" {
			peak *= 1024
		}
		t.Logf("%s: %d MiB", args[0], peak>>20)
		require.Less(t, peak, int64(256<<20), args[0])
	}
}

// TestStepsAtTheSameTime to the same files: each succeeds, and takes no other's for what a
// killed process left.
func TestStepsAtTheSameTime(t *testing.T) {
	folder, args := stepFiles(t, `{}`)
	args = append(args, "--force")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				if r := lowbit(args...); r.code != exitDone {
					t.Error(r.stderr)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, []string{"c", "g", "p", "p2", "s2"}, names(t, folder))
}
