//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConvertStateLargerThanMemory converts moments of 1 GiB each in less than 256 MiB. It takes 6 GiB of disk.
func TestConvertStateLargerThanMemory(t *testing.T) {
	if os.Getenv("LOWBIT_LARGE") == "" {
		t.Skip("LOWBIT_LARGE=1 runs the test with moments of 1 GiB")
	}
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	const moment = 1 << 30
	tensor := func(name string, begin int64) string {
		return fmt.Sprintf(`"w.%s":{"dtype":"F32","shape":[2,%d],"data_offsets":[%d,%d]}`, name, moment/8, begin, begin+moment)
	}
	header := headed(`{`+tensor("exp_avg", 0)+`,`+tensor("exp_avg_sq", moment)+
		fmt.Sprintf(`,"w.step":{"dtype":"F32","shape":[],"data_offsets":[%d,%d]}}`, int64(2*moment), int64(2*moment+4)), 0)
	require.NoError(t, os.WriteFile(at("in"), header, 0o666))
	require.NoError(t, os.Truncate(at("in"), int64(len(header))+2*moment+4))
	for _, args := range [][]string{
		{at("in"), at("8bit"), "--from", "torch", "--to", "adamw_8bit"},
		{at("8bit"), at("4bit"), "--to", "adamw_4bit"},
		{at("4bit"), at("float32"), "--to", "adamw_float32"},
	} {
		c := command("", append([]string{"convert-state"}, args...)...)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		require.NoError(t, c.Run(), stderr.String())
		peak := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		if runtime.GOOS == "linux" {
			peak *= 1024
		}
		t.Logf("%s: %d MiB", args[len(args)-1], peak>>20)
		require.Less(t, peak, int64(256<<20), args[len(args)-1])
	}
}
