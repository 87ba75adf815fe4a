package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

func TestInfo(t *testing.T) {
	text := succeeds(t, "info")
	for _, row := range kernels.Table() {
		require.Contains(t, text, row.Name)
	}
	info := newInfo()
	require.Len(t, info.Operations, len(kernels.Table()))
	for _, o := range info.Operations {
		for _, i := range o.Implementations {
			require.NotEmpty(t, i.Why)
		}
	}
}

func TestWhy(t *testing.T) {
	fast := kernels.Implementation{Name: "fast", Available: true}
	other := kernels.Implementation{Name: "other", Available: true}
	row := func(selected string, all ...kernels.Implementation) kernels.Row {
		return kernels.Row{Selected: selected, Implementations: all}
	}
	require.Equal(t, "there is no other", why(row("fast", fast), fast))
	require.Equal(t, "the best there is", why(row("fast", fast, other), fast))
	require.Equal(t, "fast comes first", why(row("fast", fast, other), other))
	missing := kernels.Implementation{Name: "fast", Missing: (^cpufeature.Detected & (cpufeature.NEON<<1 - 1)).Names()}
	require.Equal(t, "the best of those that can run", why(row("other", missing, other), other))
	require.Equal(t, "the processor lacks "+strings.Join(missing.Missing, ", "), why(row("other", missing, other), missing))
}

// command starts the test binary as the command itself, with more of an environment.
func command(environment string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "LOWBIT_TEST_COMMAND=1", environment)
	return c
}

func TestDisabledFeatures(t *testing.T) {
	all := (cpufeature.NEON<<1 - 1).String()
	text, err := command("LOWBIT_DISABLE="+all, "info").Output()
	require.NoError(t, err)
	require.Contains(t, string(text), "disabled: "+strings.ReplaceAll(all, ",", " ")+"\n")
	for _, row := range kernels.Table() {
		for _, i := range row.Implementations {
			if i.Available && len(i.Needs) > 0 {
				require.Contains(t, string(text), "LOWBIT_DISABLE turns off "+strings.Join(i.Needs, ", "))
			}
		}
	}
	var stderr strings.Builder
	c := command("LOWBIT_DISABLE=sse9", "info")
	c.Stderr = &stderr
	require.Error(t, c.Run())
	require.Equal(t, exitBadInput, c.ProcessState.ExitCode())
	require.Equal(t, "lowbit: LOWBIT_DISABLE: unknown CPU feature \"sse9\", want some of avx2, fma, f16c, avx512, vbmi, bf16, neon\n", stderr.String())
}
