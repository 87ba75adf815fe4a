package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/internal/golden"
)

// goldenRun is a golden file's parameters and gradients, which the command steps.
type goldenRun struct {
	file, config string
	names        []string
	steps        int
	toBF16       bool // round parameters and gradients first
	check        func(t *testing.T, g *golden.Set, step int, name string, got []float32)
}

// relative is the largest |a-b| / max(|b|, floor); NaN matches NaN.
func relative(a, b []float32, floor float64) float64 {
	worst := 0.0
	for i := range b {
		if a[i] != a[i] && b[i] != b[i] {
			continue
		}
		if d := math.Abs(float64(a[i]) - float64(b[i])); d > 0 || d != d {
			worst = max(worst, d/max(math.Abs(float64(b[i])), floor))
		}
	}
	return worst
}

func within(rtol, atol float64) func(*testing.T, *golden.Set, int, string, []float32) {
	return func(t *testing.T, g *golden.Set, step int, name string, got []float32) {
		for k, want := range g.F32(fmt.Sprintf("p%d.%s", step, name)) {
			require.InDelta(t, want, got[k], atol+rtol*math.Abs(float64(want)), "step %d %s", step, name)
		}
	}
}

func equal(t *testing.T, g *golden.Set, step int, name string, got []float32) {
	require.Equal(t, g.F32(fmt.Sprintf("p%d.%s", step, name)), got, "step %d %s", step, name)
}

func relativeTo(floor, bound float64) func(*testing.T, *golden.Set, int, string, []float32) {
	return func(t *testing.T, g *golden.Set, step int, name string, got []float32) {
		require.Less(t, relative(got, g.F32(fmt.Sprintf("p%d.%s", step, name)), floor), bound, "step %d %s", step, name)
	}
}

// ofChange compares relative to the step's largest change.
func ofChange(bound float64) func(*testing.T, *golden.Set, int, string, []float32) {
	return func(t *testing.T, g *golden.Set, step int, name string, got []float32) {
		before, after := g.F32(fmt.Sprintf("p%d.%s", step-1, name)), g.F32(fmt.Sprintf("p%d.%s", step, name))
		change, off := 0.0, 0.0
		for k := range after {
			change = max(change, math.Abs(float64(after[k])-float64(before[k])))
			off = max(off, math.Abs(float64(after[k])-float64(got[k])))
		}
		require.Greater(t, change, 0.0)
		require.LessOrEqual(t, off/change, bound, "step %d %s", step, name)
	}
}

// few allows five different bf16 weights in the whole run.
func few() func(*testing.T, *golden.Set, int, string, []float32) {
	different := 0
	return func(t *testing.T, g *golden.Set, step int, name string, got []float32) {
		for k, want := range g.F32(fmt.Sprintf("p%d.%s", step, name)) {
			if want != got[k] {
				different++
			}
		}
		require.LessOrEqual(t, different, 5)
	}
}

func goldenRuns() []goldenRun {
	three := []string{"emb", "w", "b"}
	runs := []goldenRun{
		{file: "torch_adamw_float32", config: `{"lr": 0.01, "weight_decay": 0.01}`, names: three, steps: 8, check: within(1e-6, 1e-8)},
		{file: "torch_adamw_bfloat16", config: `{"lr": 0.01, "weight_decay": 0.01, "moments_dtype": "bfloat16"}`, names: three, steps: 8, toBF16: true, check: within(0x1p-6, 1e-3)},
		{file: "optax_adamw_float32", config: `{"lr": 0.01, "weight_decay": 0.01, "variant": "optax"}`, names: three, steps: 8, check: equal},
		{file: "optax_adamw_float32", config: `{"lr": 0.01, "weight_decay": 0.01}`, names: three, steps: 8, check: within(5e-5, 2e-7)},
	}
	for _, block := range []int{16, 128} {
		config := fmt.Sprintf(`{"lr": 0.01, "weight_decay": 0.01, "adam_8bit": true, "quant_block_size": %d,
			"param_groups": [{"params": ["emb"], "role": "token_embedding"}]}`, block)
		runs = append(runs,
			goldenRun{file: fmt.Sprintf("areno_adamw8bit_bfloat16_b%d", block), config: config, names: three, steps: 6, check: equal},
			goldenRun{file: fmt.Sprintf("areno_adamw8bit_float32_b%d", block), config: config, names: three, steps: 6, check: relativeTo(1e-3, 2e-6)})
	}
	for _, block := range []int{32, 128} {
		config := fmt.Sprintf(`{"lr": 0.01, "weight_decay": 0.01, "adam_4bit": true, "quant_block_size": %d}`, block)
		runs = append(runs,
			goldenRun{file: fmt.Sprintf("areno_adamw4bit_bfloat16_b%d", block), config: config, names: three, steps: 6, check: few()},
			goldenRun{file: fmt.Sprintf("areno_adamw4bit_float32_b%d", block), config: config, names: three, steps: 6, check: relativeTo(1e-2, 2e-6)})
	}
	for file, options := range map[string]string{
		"default": ``, "plain": `, "nesterov": false`, "adaptive": `, "adaptive": true`, "dion": `, "ns_coeffs": "dion"`,
		"rms02": `, "consistent_rms": 0.2`, "wd": `, "weight_decay": 0.1, "beta": 0.9, "ns_steps": 3`,
	} {
		runs = append(runs, goldenRun{file: "optax_muon_" + file, config: `{"type": "muon", "lr": 0.02` + options + `}`,
			names: []string{"b", "tall", "w"}, steps: 5, check: ofChange(1e-4)})
	}
	for file, options := range map[string]string{
		"original": ``, "plain": `, "nesterov": false`, "match_rms": `, "adjust": "match_rms_adamw", "weight_decay": 0`,
	} {
		for parity, bound := range map[bool]float64{true: 5e-3, false: 0.1} {
			config := fmt.Sprintf(`{"type": "muon", "variant": "torch", "lr": 0.02, "parity_norm": %v%s}`, parity, options)
			runs = append(runs, goldenRun{file: "torch_muon_" + file, config: config, names: []string{"tall", "w"}, steps: 5, check: ofChange(bound)})
		}
	}
	return runs
}

// write writes the golden file's tensors of a prefix, such as g3, under their own names.
func (r goldenRun) write(t *testing.T, g *golden.Set, prefix, path string) {
	tensors := []tensor{}
	for _, name := range r.names {
		key := prefix + "." + name
		switch {
		case r.toBF16:
			narrow := []uint16{}
			for _, x := range g.F32(key) {
				narrow = append(narrow, uint16(bf16.FromFloat32(x)))
			}
			tensors = append(tensors, tensor{name, "BF16", g.Shape(key), uint16Bytes(narrow...)})
		case g.DType(key) == "BF16":
			tensors = append(tensors, tensor{name, "BF16", g.Shape(key), uint16Bytes(g.BF16(key)...)})
		default:
			tensors = append(tensors, f32(name, g.F32(key), g.Shape(key)...))
		}
	}
	store(t, path, nil, tensors...)
}

func widened(x tensor) []float32 {
	if x.dtype == "F32" {
		return float32s(x.data)
	}
	wide := []float32{}
	for _, bits := range uint16s(x.data) {
		wide = append(wide, bf16.BF16(bits).Float32())
	}
	return wide
}

// TestStepReplaysPublishedSystems takes each golden file's steps one call a step, and then all in one call: the same
// bits.
func TestStepReplaysPublishedSystems(t *testing.T) {
	for _, r := range goldenRuns() {
		t.Run(r.file, func(t *testing.T) {
			g := golden.Open(t, r.file)
			folder := t.TempDir()
			at := func(name string, step int) string { return filepath.Join(folder, fmt.Sprint(name, step)) }
			config := at("config", 0)
			require.NoError(t, os.WriteFile(config, []byte(r.config), 0o666))
			r.write(t, g, "p0", at("p", 0))
			all := []string{"step", "--config", config, "--params", at("p", 0), "--out-params", at("p", 99), "--out-state", at("s", 99)}
			lines := ""
			for step := 1; step <= r.steps; step++ {
				r.write(t, g, fmt.Sprint("g", step), at("g", step))
				one := []string{"step", "--config", config, "--params", at("p", step-1), "--grads", at("g", step), "--out-params", at("p", step), "--out-state", at("s", step)}
				if step > 1 {
					one = append(one, "--state", at("s", step-1))
				}
				r1 := lowbit(one...)
				require.Zero(t, r1.code, r1.stderr)
				lines += r1.stdout
				_, tensors := load(t, at("p", step))
				for _, name := range r.names {
					r.check(t, g, step, name, widened(find(t, tensors, name)))
				}
				all = append(all, "--grads", at("g", step))
			}
			require.Equal(t, lines, lowbit(all...).stdout)
			for _, name := range []string{"p", "s"} {
				require.Equal(t, read(t, at(name, r.steps)), read(t, at(name, 99)), name)
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// stepFiles writes parameters, gradients and a configuration, and returns the command line that steps them.
func stepFiles(t *testing.T, config string) (folder string, args []string) {
	folder = t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("p"), map[string]string{"note": "kept"},
		f32("w", numbers(12), 3, 4), f32("alone", numbers(5), 5), f32("scalar", []float32{1}), f32("none", nil, 0, 2),
		tensor{"half", "F16", []int64{2}, uint16Bytes(1, 2)}, tensor{"odd", "I64", []int64{1}, make([]byte, 8)}, tensor{"b", "BF16", []int64{2}, uint16Bytes(0x3f80, 0xbf80)})
	store(t, at("g"), nil, tensor{"b", "F16", []int64{2}, uint16Bytes(0x3c00, 0x3c00)}, f32("w", numbers(12), 3, 4), f32("scalar", []float32{1}), f32("none", nil, 0, 2))
	require.NoError(t, os.WriteFile(at("c"), []byte(config), 0o666))
	return folder, []string{"step", "--config", at("c"), "--params", at("p"), "--grads", at("g"), "--out-params", at("p2"), "--out-state", at("s2")}
}

func TestStep(t *testing.T) {
	folder, args := stepFiles(t, `{"lr": 0.5, "grad_clip_norm": 0.25, "adam_8bit": true}`)
	out := succeeds(t, append(args, "--grads", filepath.Join(folder, "g"))...)
	lines := bufio.NewScanner(strings.NewReader(out))
	for step := 1.0; step <= 2; step++ {
		require.True(t, lines.Scan())
		var line map[string]any
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		require.Equal(t, step, line["step"])
		require.Equal(t, 0.5, line["lr"])
		norm := line["grad_norm"].(float64)
		require.Greater(t, norm, 0.25)
		require.InEpsilon(t, 0.25/(norm+1e-6), line["clip"], 1e-12)
		for _, key := range []string{"skipped_blocks", "skipped_parameters", "skipped_elements", "nonfinite"} {
			require.Equal(t, 0.0, line[key], key)
		}
		require.Equal(t, false, line["skipped"])
		require.Contains(t, line["state"], "adam8_total_bytes")
	}
	require.False(t, lines.Scan())

	before, old := load(t, filepath.Join(folder, "p"))
	after, stepped := load(t, filepath.Join(folder, "p2"))
	require.Equal(t, before, after)
	for _, name := range []string{"alone", "none", "half", "odd"} {
		require.Equal(t, find(t, old, name), find(t, stepped, name))
	}
	for _, name := range []string{"w", "b", "scalar"} {
		require.NotEqual(t, find(t, old, name).data, find(t, stepped, name).data)
	}
	require.Equal(t, []string{"c", "g", "p", "p2", "s2"}, names(t, folder))
}

// TestStepSkips has a gradient that is not finite: nothing but the count changes.
func TestStepSkips(t *testing.T) {
	folder, args := stepFiles(t, `{"adam_8bit": true}`)
	g := filepath.Join(folder, "g")
	require.NoError(t, os.Remove(g))
	store(t, g, nil, f32("w", []float32{0, 0, 0, 0, float32(math.NaN()), 0, 0, 0, 0, 0, 0, 0}, 3, 4))
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, args...)), &line))
	require.Equal(t, 1.0, line["skipped_blocks"])
	require.Nil(t, line["grad_norm"])
	_, old := load(t, filepath.Join(folder, "p"))
	_, stepped := load(t, filepath.Join(folder, "p2"))
	require.Equal(t, old, stepped)
}

func TestStepRefuses(t *testing.T) {
	folder, args := stepFiles(t, `{}`)
	at := func(name string) string { return filepath.Join(folder, name) }
	with := func(flags ...string) []string { return append(append([]string{}, args...), flags...) }
	succeeds(t, with("--out-params", at("p1"), "--out-state", at("s1"))...)
	for name, tensors := range map[string][]tensor{
		"unknown": {f32("v", numbers(1))},
		"shape":   {f32("w", numbers(12), 4, 3)},
		"integer": {{"w", "I32", []int64{3, 4}, make([]byte, 48)}},
		"f16":     {{"half", "F16", []int64{2}, make([]byte, 4)}},
	} {
		store(t, at(name), nil, tensors...)
	}
	for name, config := range map[string]string{"c8": `{"adam_8bit": true}`, "amsgrad": `{"amsgrad": true}`, "glob": `{"param_groups": [{"params": ["x*"]}]}`} {
		require.NoError(t, os.WriteFile(at(name), []byte(config), 0o666))
	}
	succeeds(t, "train", "--corpus", "embedded", "--steps", "1", "--adam-8bit", "--out", at("out"), "--checkpoint", at("trained"))
	everything := names(t, folder)
	for words, flags := range map[string][]string{
		at("unknown") + ": " + at("p") + ` has no parameter "v"`:          {"--grads", at("unknown")},
		at("shape") + `: gradient "w" has shape [4,3], want [3,4]`:        {"--grads", at("shape")},
		at("integer") + `: gradient "w" is I32, want F32, BF16 or F16`:    {"--grads", at("integer")},
		at("p") + `: tensor "half", which has a gradient in ` + at("f16"): {"--grads", at("f16")},
		at("absent"):   {"--grads", at("absent")},
		at("c") + ": ": {"--grads", at("c")},
		at("amsgrad") + `: optim: unknown key "amsgrad"`: {"--config", at("amsgrad")},
		`"x*" matches none`: {"--config", at("glob")},
		"checkpoint holds adam float32, the configuration asks for adam 8-bit":                                                                {"--config", at("c8"), "--state", at("s1")},
		at("trained") + ": it holds weights too, want a state alone, as lowbit step or the library's Save without SaveOptions{Weights: true}": {"--config", at("c8"), "--state", at("trained")},
		"no optimizer checkpoint":                                              {"--state", at("p")},
		"--out-params and --out-state are both":                                {"--out-state", at("p2")},
		at("p") + " is an input and " + at("p") + " the same file as output":   {"--out-params", at("p")},
		at("g") + " is an input and " + at("g") + " the same file as output":   {"--out-params", at("g"), "--force"},
		at("s1") + " is an input and " + at("s1") + " the same file as output": {"--state", at("s1"), "--out-params", at("s1"), "--force"},
		at("s1") + " exists already, want a new name or --force":               {"--out-state", at("s1")},
		at("p1") + " exists already, want a new name or --force":               {"--out-params", at("p1")},
		"--threads: got -1": {"--threads=-1"},
	} {
		t.Run(words, func(t *testing.T) { fails(t, exitBadInput, words, with(flags...)...) })
	}
	fails(t, exitBadInput, "the folder "+at("absent")+" does not exist", with("--out-state", filepath.Join(at("absent"), "s"))...)
	fails(t, exitBadInput, "missing flags: --grads", append(append([]string{}, args[:5]...), args[7:]...)...)
	require.Equal(t, everything, names(t, folder))
}

// TestStepInPlace replaces parameters and state by the next ones.
func TestStepInPlace(t *testing.T) {
	folder, args := stepFiles(t, `{}`)
	at := func(name string) string { return filepath.Join(folder, name) }
	succeeds(t, append(args, "--grads", at("g"))...)
	args = append(args, "--out-params", at("p"), "--force")
	succeeds(t, args...)
	succeeds(t, append(args, "--state", at("s2"))...)
	_, want := load(t, at("p2"))
	_, got := load(t, at("p"))
	require.Equal(t, want, got)
}

// TestStepInterrupts interrupts at every point where the command looks: both outputs are there, or neither.
func TestStepInterrupts(t *testing.T) {
	folder, args := stepFiles(t, `{}`)
	for last := 0; ; last++ {
		asked := 0
		r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
			if time > last {
				return context.Canceled
			}
			return nil
		}}, 64, args...)
		if r.code == exitDone {
			require.Greater(t, last, 2)
			break
		}
		require.Equal(t, exitInterrupted, r.code)
		require.Equal(t, "lowbit: interrupted\n", r.stderr)
		require.Equal(t, []string{"c", "g", "p"}, names(t, folder))
	}
	require.Equal(t, []string{"c", "g", "p", "p2", "s2"}, names(t, folder))
}

// TestStepThreads has the same outputs with one thread and with all.
func TestStepThreads(t *testing.T) {
	folder, args := stepFiles(t, `{"adam_4bit": true, "weight_rounding": "stochastic"}`)
	for _, name := range []string{"p", "g"} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.Remove(path))
		store(t, path, nil, f32("w", numbers(300_000), 300, 1000))
	}
	succeeds(t, append(args, "--threads", "1")...)
	params, state := read(t, filepath.Join(folder, "p2")), read(t, filepath.Join(folder, "s2"))
	succeeds(t, append(args, "--force")...)
	require.Equal(t, params, read(t, filepath.Join(folder, "p2")))
	require.Equal(t, state, read(t, filepath.Join(folder, "s2")))
}
