package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHelpHasAnExample(t *testing.T) {
	require.Contains(t, succeeds(t, "--help"), "Commands:")
	parser, err := (&env{}).parser(nil)
	require.NoError(t, err)
	for _, node := range parser.Model.Children {
		command := node.Name
		help := succeeds(t, command, "--help")
		for _, flag := range node.Flags {
			if flag.HasDefault && !flag.IsBool() {
				require.Contains(t, flag.Help, "default", "%s --%s", command, flag.Name)
			}
		}
		require.Regexp(t, `\nExamples?:\n\n    (\w+=\w+ )?lowbit `+command+`\b`, help)
	}
}

func TestNoCommand(t *testing.T) {
	r := lowbit()
	require.Equal(t, exitBadInput, r.code)
	require.Empty(t, r.stdout)
	require.Equal(t, succeeds(t, "--help")+"\nlowbit: no command, want one of these\n", r.stderr)
}

func TestUsage(t *testing.T) {
	folder, in := small(t)
	out := filepath.Join(folder, "out")
	for words, args := range map[string][]string{
		"unexpected argument frobnicate":   {"frobnicate"},
		"unknown flag --colour":            {"info", "--colour"},
		`expected "<in> <out>"`:            {"quantize", "--format", "nf4"},
		"missing flags: --format=NAME":     {"quantize", in, out},
		`unknown codebook "nf5", want one`: {"quantize", in, out, "--format", "nf5"},
		"--block is 0, want 1 to 1048576":  {"quantize", in, out, "--format", "nf4", "--block", "0"},
		"--block is 1048577, want 1 to":    {"quantize", in, out, "--format", "nf4", "--block", "1048577"},
		"--block is -1":                    {"quantize", in, out, "--format", "nf4", "--block=-1"},
		"--block: expected a valid":        {"quantize", in, out, "--format", "nf4", "--block", "x"},
		`--layout must be one of`:          {"quantize", in, out, "--format", "nf4", "--layout", "gguf"},
		"holds nf4 and fp4, got --format":  {"quantize", in, out, "--format", "de4", "--layout", "bitsandbytes"},
		"want a power of two from 32":      {"quantize", in, out, "--format", "nf4", "--layout", "bitsandbytes", "--block", "100"},
		"want a power of two from 32 to":   {"quantize", in, out, "--format", "nf4", "--layout", "bitsandbytes", "--block", "8192"},
		"needs --layout bitsandbytes":      {"quantize", in, out, "--format", "nf4", "--double-quant"},
		`--include: malformed pattern "["`: {"quantize", in, out, "--format", "nf4", "--include", "["},
		`--include: "x*" matches none of`:  {"quantize", in, out, "--format", "nf4", "--include", "w", "--include", "x*"},
		`--exclude: "x" matches none of`:   {"quantize", in, out, "--format", "nf4", "--exclude", "x"},
		"--threads: got -1, want 1 to":     {"quantize", in, out, "--format", "nf4", "--threads=-1"},
		`--dtype must be one of`:           {"dequantize", in, out, "--dtype", "int8"},
		"it holds no quantised tensors":    {"dequantize", in, out},
		"missing flags: --to=bfloat16":     {"round", in, out},
		`--to must be one of`:              {"round", in, out, "--to", "float16"},
		`--mode must be one of`:            {"round", in, out, "--to", "bfloat16", "--mode", "up"},
		"for --mode stochastic, got --mod": {"round", in, out, "--to", "bfloat16", "--step", "0"},
		"--seed and --step are for --mode": {"round", in, out, "--to", "bfloat16", "--mode", "truncate", "--seed", "1"},
		"--filter: error parsing regexp":   {"verify", "--filter", "("},
		`--filter: "nope" matches none of`: {"verify", "--filter", "nope"},
		"--cases is 0, want 1 or more":     {"verify", "--cases", "0"},
		"--filter: error parsing":          {"bench", "--filter", "("},
		`--filter: "none" matches none of`: {"bench", "--filter", "none"},
		"--elements is 0, want 1 to":       {"bench", "--elements", "0"},
		"--threads: got -2, want 1 to":     {"bench", "--threads=-2"},
	} {
		t.Run(words, func(t *testing.T) { fails(t, exitBadInput, words, args...) })
	}
	require.Equal(t, []string{"in"}, names(t, folder))
}

func TestQuantizeWarnsOfNegativeValues(t *testing.T) {
	folder, in := small(t)
	r := lowbit("quantize", in, filepath.Join(folder, "u"), "--format", "dynamic8u")
	require.Equal(t, "lowbit: warning: 1 of 1 tensors hold negative values, for which dynamic8u has no codes\n", r.stderr)
	require.Zero(t, r.code)
	store(t, filepath.Join(folder, "positive"), nil, f32("w", []float32{0, 1, 2}, 3))
	succeeds(t, "quantize", filepath.Join(folder, "positive"), filepath.Join(folder, "l"), "--format", "linear4")
}

func TestWhatIsNoFile(t *testing.T) {
	folder, in := small(t)
	text, quantised := filepath.Join(folder, "text"), filepath.Join(folder, "quantised")
	require.NoError(t, os.WriteFile(text, []byte("some text, no tensors"), 0o666))
	succeeds(t, "quantize", in, quantised, "--format", "nf4")
	fails(t, exitBadInput, text+": no safetensors file: ", "inspect", text)
	fails(t, exitBadInput, "--against wants a file that is not quantised: "+quantised, "inspect", in, "--against", quantised)
}

// conversions are command lines without their input and output.
var conversions = map[string][]string{
	"quantize":     {"quantize", "--format", "dynamic8"},
	"bitsandbytes": {"quantize", "--format", "nf4", "--layout", "bitsandbytes"},
	"double":       {"quantize", "--format", "nf4", "--layout", "bitsandbytes", "--double-quant"},
	"dequantize":   {"dequantize"},
	"round":        {"round", "--to", "bfloat16"},
	"orthogonal":   {"orthogonalize"},
}

// inputOf returns a file that a conversion can read.
func inputOf(t *testing.T, conversion string) (folder, path string) {
	folder, path = small(t)
	if conversion == "dequantize" {
		quantised := filepath.Join(folder, "quantised")
		succeeds(t, "quantize", path, quantised, "--format", "nf4")
		require.NoError(t, os.Rename(quantised, path))
	}
	return folder, path
}

func TestOutputs(t *testing.T) {
	for name, command := range conversions {
		t.Run(name, func(t *testing.T) {
			folder, in := inputOf(t, name)
			out := filepath.Join(folder, "out")
			convert := func(out string, flags ...string) []string {
				return append(append(append([]string{}, command...), in, out), flags...)
			}
			require.Contains(t, succeeds(t, convert(out)...), "wrote "+out)
			first, err := os.ReadFile(out)
			require.NoError(t, err)
			fails(t, exitBadInput, out+" exists already, want a new name or --force", convert(out)...)
			require.NoError(t, os.WriteFile(out, []byte("old"), 0o666))
			succeeds(t, convert(out, "--force", "--threads", "3")...)
			second, err := os.ReadFile(out)
			require.NoError(t, err)
			require.Equal(t, first, second)

			hard := filepath.Join(folder, "hard")
			require.NoError(t, os.Link(in, hard))
			for _, same := range []string{in, hard, filepath.Join(folder, "..", filepath.Base(folder), "in")} {
				fails(t, exitBadInput, "are the same file", convert(same, "--force")...)
			}
			fails(t, exitBadInput, "a directory, want a file to replace", convert(folder, "--force")...)
			fails(t, exitFailed, filepath.Join(in, "out"), convert(filepath.Join(in, "out"))...)
			fails(t, exitBadInput, "the folder "+filepath.Join(folder, "absent")+" does not exist", convert(filepath.Join(folder, "absent", "out"))...)
			require.Equal(t, []string{"hard", "in", "out"}, names(t, folder))
		})
	}
}

// hooked is a context that calls a function each time that it is asked, with the number of the time.
type hooked struct {
	context.Context
	asked *int
	err   func(time int) error
}

func (h hooked) Err() error {
	*h.asked++
	return h.err(*h.asked)
}

// TestInterrupts interrupts each conversion at every point where it looks, and lets it finish in the end.
func TestInterrupts(t *testing.T) {
	for name, command := range conversions {
		t.Run(name, func(t *testing.T) {
			folder, in := inputOf(t, name)
			out := filepath.Join(folder, "out")
			args := append(append([]string{}, command...), in, out)
			finished := false
			for last := 0; !finished; last++ {
				require.Less(t, last, 1000)
				asked := 0
				r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
					if time > last {
						return context.Canceled
					}
					return nil
				}}, 64, args...)
				if finished = r.code == exitDone; finished {
					require.Greater(t, last, 3)
					continue
				}
				require.Equal(t, result{exitInterrupted, "", "lowbit: interrupted\n"}, r)
				require.Equal(t, []string{"in"}, names(t, folder))
			}
			require.Equal(t, []string{"in", "out"}, names(t, folder))
		})
	}
}

func TestInterruptedInspect(t *testing.T) {
	_, in := small(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Equal(t, result{exitInterrupted, "", "lowbit: interrupted\n"}, lowbitWith(ctx, 64, "inspect", in, "--against", in))
}

// TestTruncatedWhileReading cuts the input off at every point where the command looks for an interrupt.
func TestTruncatedWhileReading(t *testing.T) {
	for name, command := range conversions {
		t.Run(name, func(t *testing.T) {
			folder, in := inputOf(t, name)
			whole, err := os.ReadFile(in)
			require.NoError(t, err)
			args := append(append([]string{}, command...), in, filepath.Join(folder, "out"))
			for at := 1; at <= 4; at++ {
				require.NoError(t, os.WriteFile(in, whole, 0o666))
				asked := 0
				r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
					if time == at {
						return os.Truncate(in, int64(len(whole)-400))
					}
					return nil
				}}, 64, args...)
				requireFailure(t, r, exitFailed, "the file ends at byte")
				require.Equal(t, []string{"in"}, names(t, folder))
			}
		})
	}
}

// brokenWriter fails as a closed pipe or a full disk does.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestBrokenOutput(t *testing.T) {
	folder, in := small(t)
	for _, args := range [][]string{
		{"info"}, {"info", "--json"}, {"inspect", in}, {"inspect", in, "--json"}, {"plan", in}, {"plan", in, "--json"},
		{"quantize", in, filepath.Join(folder, "1"), "--format", "nf4"},
		{"round", in, filepath.Join(folder, "2"), "--to", "bfloat16", "--json"},
	} {
		var stderr strings.Builder
		code := run(context.Background(), args, brokenWriter{}, &stderr)
		require.Equal(t, exitFailed, code, args)
		require.Equal(t, "lowbit: broken\n", stderr.String(), args)
	}
}

func TestOneLine(t *testing.T) {
	folder := t.TempDir()
	fails(t, exitBadInput, `a\nb`, "inspect", filepath.Join(folder, "a\nb"))
}
