package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/plotter"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// train is the command line of a short training on the embedded text.
func train(steps int, flags ...string) []string {
	return append([]string{"train", "--corpus", "embedded", "--steps", strconv.Itoa(steps)}, flags...)
}

type trainReport struct {
	Rows []struct {
		Optimizer              string
		Loss                   *float64
		Steps                  int64
		StateBytesPerParameter *float64 `json:"state_bytes_per_parameter"`
		StepSeconds            *float64 `json:"step_seconds"`
		OptimizerShare         *float64 `json:"optimizer_share"`
	}
	Plot, CSV, Out string
}

func trained(t *testing.T, args ...string) trainReport {
	t.Helper()
	var report trainReport
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, append(args, "--json")...)), &report))
	return report
}

// TestTrainCompares trains with every optimizer: the low-precision ones stay close to float32.
func TestTrainCompares(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR")) // of Windows
	const steps = 20
	report := trained(t, train(steps)...)
	require.Len(t, report.Rows, 5)
	lines := losses(t, report.CSV)
	require.Len(t, lines, 1+5*(1+steps))
	require.Equal(t, []string{"optimizer", "step", "train_loss", "held_out_loss"}, lines[0])
	start, err := strconv.ParseFloat(lines[1][3], 64)
	require.NoError(t, err)
	float32Loss := *report.Rows[0].Loss
	for i, c := range []struct {
		optimizer         string
		bytesPerParameter float64
		least, most       float64 // the loss as a fraction of float32's
	}{
		{"adamw_float32", 8, 1, 1}, {"adamw_bfloat16", 4, 0.98, 1.02}, {"adamw_8bit", 3.04, 0.98, 1.02},
		{"adamw_4bit", 0.62, 0.9, 1.05}, {"muon", 4.7, 0.9, 0.9 * start / float32Loss},
	} {
		row := report.Rows[i]
		require.Equal(t, c.optimizer, row.Optimizer)
		require.InDelta(t, c.bytesPerParameter, *row.StateBytesPerParameter, 0.01)
		require.LessOrEqual(t, *row.Loss, c.most*float32Loss, c.optimizer)
		require.GreaterOrEqual(t, *row.Loss, c.least*float32Loss, c.optimizer)
		require.Equal(t, int64(steps), row.Steps)
		require.Greater(t, *row.StepSeconds, 0.0)
		require.Greater(t, *row.OptimizerShare, 0.0)
		require.Less(t, *row.OptimizerShare, 1.0)
	}

	require.Equal(t, os.Getenv("TMPDIR"), filepath.Dir(report.Out))
	require.Equal(t, []string{"loss.csv", "loss.png"}, names(t, report.Out))
	image, err := png.DecodeConfig(bytes.NewReader(read(t, report.Plot)))
	require.NoError(t, err)
	require.Greater(t, image.Width, image.Height)
	for i, row := range report.Rows {
		mine := lines[1+i*(1+steps):][:1+steps]
		require.Equal(t, []string{row.Optimizer, "0", "", lines[1][3]}, mine[0])
		require.Equal(t, lines[2][2], mine[1][2], "the same start and the same batch")
		require.Equal(t, []string{row.Optimizer, strconv.Itoa(steps)}, mine[steps][:2])
		require.Equal(t, strconv.FormatFloat(*row.Loss, 'g', -1, 64), mine[steps][3])
	}
}

func losses(t *testing.T, path string) [][]string {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(read(t, path))).ReadAll()
	require.NoError(t, err)
	return lines
}

// TestTrainResumes interrupts a run, resumes it, and has the losses, the weights and the state of a run in one go.
func TestTrainResumes(t *testing.T) {
	config := filepath.Join(t.TempDir(), "mine.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"lr": 0.01, "moments_dtype": "bfloat16", "moments_rounding": "stochastic", "nesterov": true, "seed": 5}`), 0o666))
	for name, flags := range map[string][]string{
		"8bit":   {"--adam-8bit", "--weight-decay", "0.1", "--seed", "7"},
		"4bit":   {"--adam-4bit", "--grad-clip-norm", "0.5", "--lr", "0.02", "--min-lr", "0.001"},
		"muon":   {"--optimizer", "muon", "--adam-beta2", "0.95"},
		"config": {"--config", config},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			at := func(name string) string { return filepath.Join(folder, name) }
			args := train(11, flags...)
			whole := trained(t, append(args, "--out", at("whole"), "--checkpoint", at("c1"))...)

			asked := 0
			r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
				if time > 5 {
					return context.Canceled
				}
				return nil
			}}, 0, append(args, "--out", at("half"), "--checkpoint", at("c2"))...)
			require.Equal(t, exitInterrupted, r.code)
			require.Equal(t, "lowbit: "+at("c2")+" holds step 5 of 11: --resume continues from there\nlowbit: interrupted\n", r.stderr)
			require.Equal(t, []string{"c1", "c2", "whole"}, names(t, folder))

			resumed := trained(t, "train", "--resume", at("c2"), "--checkpoint", at("c2"), "--out", at("half"))
			require.Equal(t, losses(t, whole.CSV), losses(t, resumed.CSV))
			require.Equal(t, read(t, at("c1")), read(t, at("c2")))
			require.Equal(t, whole.Rows[0].Loss, resumed.Rows[0].Loss)

			again := trained(t, append(args, "--resume", at("c1"), "--out", at("again"))...)
			require.Equal(t, losses(t, whole.CSV), losses(t, again.CSV))
			require.Nil(t, again.Rows[0].StepSeconds)
		})
	}
}

func TestPlotOfAnyLosses(t *testing.T) {
	for name, c := range map[string]curve{
		"one step":     {[]float64{5.5}, []heldOutLoss{{0, 5.5}}},
		"equal":        {[]float64{2, 2, 2}, []heldOutLoss{{0, 2}, {3, 2}}},
		"zero":         {[]float64{1, 0, 0}, []heldOutLoss{{0, 1}, {3, 0}}},
		"huge":         {[]float64{1, 1e300, 1e-300}, []heldOutLoss{{0, 1}, {3, math.MaxFloat64}}},
		"not a number": {[]float64{1, math.NaN()}, []heldOutLoss{{0, 1}, {2, math.Inf(1)}}},
	} {
		var image bytes.Buffer
		require.NoError(t, plotCurves(&image, []*trainRun{{curve: c}, {curve: c}}), name)
		_, err := png.Decode(&image)
		require.NoError(t, err, name)
	}
	require.Equal(t, plotter.XYs{{X: 1, Y: 3}, {X: 2, Y: 3}}, smoothed([]float64{3, 3, math.NaN(), 3}))
	labels := []string{}
	for _, tick := range (lossTicks{}).Ticks(1.9, 5.6) {
		labels = append(labels, tick.Label)
	}
	require.Equal(t, []string{"2", "2.5", "3", "4", "5"}, labels)
}

// TestTrainThreads has the same losses and the same checkpoint with one thread and with all.
func TestTrainThreads(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	args := train(4, "--optimizer", "muon")
	trained(t, append(args, "--threads", "1", "--out", at("a"), "--checkpoint", at("c1"))...)
	trained(t, append(args, "--out", at("b"), "--checkpoint", at("c2"))...)
	require.Equal(t, read(t, at("c1")), read(t, at("c2")))
	require.Equal(t, read(t, filepath.Join(at("a"), "loss.png")), read(t, filepath.Join(at("b"), "loss.png")))
}

func TestTrainTable(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "out")
	out := succeeds(t, train(1, "--optimizer", "adamw_4bit,adamw_float32", "--out", folder)...)
	require.Contains(t, out, "99904 parameters, 1 steps of 8 rows, trained on the embedded text, seed 0\n")
	require.Regexp(t, `\nadamw_4bit +4\.\d{4} +0\.620 +[\d.]+ ms +[\d.]+ %\nadamw_float32 +4\.\d{4} +8\.000 `, out)
	require.True(t, strings.HasSuffix(out, "wrote "+filepath.Join(folder, "loss.png")+" and "+filepath.Join(folder, "loss.csv")+"\n"), out)
}

// TestTrainOfAFinishedRun says that nothing was left, and which files it wrote; what others make of its checkpoint is none.
func TestTrainOfAFinishedRun(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	out := succeeds(t, train(2, "--optimizer", "adamw_8bit", "--out", at("a"), "--checkpoint", at("c"))...)
	require.NotContains(t, out, "nothing was left")
	require.True(t, strings.HasSuffix(out, ", "+filepath.Join(at("a"), "loss.csv")+" and "+at("c")+"\n"), out)
	out = succeeds(t, train(2, "--out", at("b"), "--resume", at("c"))...)
	require.Contains(t, out, "\n"+at("c")+" was at the last step: nothing was left to train\n")
	for _, args := range [][]string{{"quantize", at("c"), at("q"), "--format", "nf4"}, {"round", at("c"), at("r"), "--to", "bfloat16"}} {
		r := lowbit(args...)
		require.Zero(t, r.code)
		require.Contains(t, r.stderr, "lowbit: warning: "+at("c")+" is an optimizer's checkpoint, and no optimizer resumes from what this makes of it")
	}
}

// TestTrainDiverges has one run whose loss is not finite, which is reported, and one that is trained all the same.
func TestTrainDiverges(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	for _, flags := range [][]string{{"--optimizer", "adamw_float32,adamw_4bit"}, {"--optimizer", "adamw_float32", "--checkpoint", at("c")}} {
		r := lowbit(train(12, append(flags, "--lr", "1e30", "--json", "--out", at("out"), "--force")...)...)
		require.Equal(t, exitFailed, r.code)
		require.Regexp(t, `\Alowbit: adamw_float32: the loss was not finite in step \d+ of 12(; adamw_4bit: .*)?\n\z`, r.stderr)
		var report trainReport
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
		require.Nil(t, report.Rows[0].Loss)
		require.Less(t, report.Rows[0].Steps, int64(12))
		require.Equal(t, []string{"out"}, names(t, folder))
		require.Equal(t, []string{"loss.csv", "loss.png"}, names(t, at("out")))
	}
}

// TestTrainInterrupts interrupts at every point where the command looks, without a checkpoint.
func TestTrainInterrupts(t *testing.T) {
	folder := t.TempDir()
	out := filepath.Join(folder, "out")
	for last := range 4 {
		asked := 0
		r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
			if time > last {
				return context.Canceled
			}
			return nil
		}}, 0, train(2, "--optimizer", "adamw_float32,adamw_4bit", "--out", out)...)
		require.Equal(t, result{exitInterrupted, "", "lowbit: interrupted\n"}, r)
		require.Empty(t, names(t, folder))
	}
}

func TestTrainRefuses(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	trained(t, train(2, "--adam-8bit", "--out", at("out"), "--checkpoint", at("c"))...)
	for name, text := range map[string]string{
		"amsgrad": `{"amsgrad": true}`, "config": `{"adam_8bit": true}`, "short": "short", "text": strings.Repeat("other text ", 500),
	} {
		require.NoError(t, os.WriteFile(at(name), []byte(text), 0o666))
	}
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o666))
	store(t, at("plain"), nil, f32("w", numbers(3), 3))
	store(t, at("broken"), map[string]string{trainKey: "{"}, f32("w", numbers(3), 3))
	store(t, at("later"), map[string]string{trainKey: `{"version": 2}`}, f32("w", numbers(3), 3))
	hollow := `{"version": 1, "optimizer": "adamw_8bit", "config": 5, "steps": 1, "held_out": [{"step": 0, "loss": 1}]}`
	store(t, at("hollow"), map[string]string{trainKey: hollow}, f32("w", numbers(3), 3))
	store(t, at("few"), map[string]string{trainKey: `{"version": 1, "step": 2, "steps": 2, "train_losses": [1]}`}, f32("w", numbers(3), 3))
	altered := read(t, at("c"))
	altered[len(altered)-40] ^= 1
	require.NoError(t, os.WriteFile(at("altered"), altered, 0o666))
	everything := names(t, folder)
	for words, flags := range map[string][]string{
		"--steps is 0, want 1 or more":                         {"--steps", "0"},
		"--lr is 0, want a number above 0":                     {"--lr", "0"},
		"--lr is NaN, want a number":                           {"--lr", "NaN"},
		"--lr is +Inf":                                         {"--lr", "+Inf"},
		"--min-lr is 0.02, want 0 to the learning rate, 0.01":  {"--min-lr", "0.02"},
		"--adam-beta1 is 1, want":                              {"--adam-beta1", "1"},
		"--adam-beta2 is -0.1, want":                           {"--adam-beta2=-0.1"},
		"--weight-decay is -1, want 0 or more":                 {"--weight-decay=-1"},
		"--grad-clip-norm is 0, want a number above":           {"--grad-clip-norm", "0"},
		`--optimizer: "sgd" is not known, want one of adamw_f`: {"--optimizer", "muon,sgd"},
		"--optimizer is empty, want some of adamw_float32":     {"--optimizer", ""},
		"--optimizer names muon twice":                         {"--optimizer", "muon,muon"},
		"--adam-8bit and --adam-4bit exclude each other":       {"--adam-8bit", "--adam-4bit"},
		"--optimizer and --adam-8bit exclude":                  {"--optimizer", "muon", "--adam-8bit"},
		"--adam-8bit and --moments-dtype bfloat16 exclude":     {"--adam-8bit", "--moments-dtype", "bfloat16"},
		`--moments-dtype must be one of`:                       {"--moments-dtype", "float16"},
		"--config and --optimizer exclude each other":          {"--config", at("config"), "--optimizer", "muon"},
		"--config and --lr exclude each other":                 {"--config", at("config"), "--lr", "1"},
		at("amsgrad") + `: optim: unknown key "amsgrad"`:       {"--config", at("amsgrad")},
		at("absent"):            {"--config", at("absent")},
		"unknown flag --device": {"--device", "cpu"},
		"--optimizer-state-offload must be one of":             {"--optimizer-state-offload", "gpu"},
		"offload disk needs --optimizer-state-offload-dir":     {"--optimizer-state-offload", "disk"},
		"-dir needs --optimizer-state-offload disk, got none":  {"--optimizer-state-offload-dir", folder},
		"-dir needs --optimizer-state-offload disk, got cpu":   {"--optimizer-state-offload", "cpu", "--optimizer-state-offload-dir", folder},
		"--optimizer-state-offload-batch-size is 0, want 1 or": {"--optimizer-state-offload-batch-size", "0"},
		"--corpus: stat " + at("absent") + ": ":                {"--corpus", at("absent")},
		"holds 5 bytes of text, want at least":                 {"--corpus", at("short")},
		at("empty") + " holds 0 bytes of text":                 {"--corpus", at("empty")},
		"--checkpoint needs exactly one optimizer, got adamw_": {"--checkpoint", at("new")},
		"--resume needs exactly one optimizer, got muon,adamw": {"--resume", at("c"), "--optimizer", "muon,adamw_8bit"},
		at("c") + " exists already, want":                      {"--adam-8bit", "--checkpoint", at("c")},
		"loss.csv exists already, want a new folder":           {"--out", at("out")},
		at("short") + " is not a folder":                       {"--out", at("short")},
		at("plain") + ": the metadata has no lowbit.train":     {"--resume", at("plain")},
		at("broken") + ": lowbit.train: ":                      {"--resume", at("broken")},
		at("hollow") + ": lowbit.train: optim: got 5, want an": {"--resume", at("hollow")},
		at("hollow") + ": the checkpoint's model is , this":    {"--resume", at("hollow"), "--lr", "1"},
		at("few") + ": lowbit.train has 1 losses for step 2":   {"--resume", at("few")},
		at("later") + ": lowbit.train has version 2, want 1":   {"--resume", at("later")},
		at("short") + ": ": {"--resume", at("short")},
		at("altered") + ": the checksum does not match":        {"--resume", at("altered")},
		"the checkpoint's optimizer is adamw_8bit, this run's": {"--resume", at("c"), "--adam-4bit"},
		"the checkpoint's seed is 0, this run's is 3":          {"--resume", at("c"), "--seed", "3"},
		"the checkpoint's corpus is the embedded text (":       {"--resume", at("c"), "--corpus", at("text")},
		"the checkpoint's weight_decay is 0, this run's is 1":  {"--resume", at("c"), "--weight-decay", "1"},
		"the checkpoint is at step 2, this run has 1":          {"--resume", at("c"), "--steps", "1"},
	} {
		t.Run(words, func(t *testing.T) {
			args := train(2, flags...)
			if slices.Contains(flags, "--resume") {
				args = append([]string{"train"}, flags...)
			}
			fails(t, exitBadInput, words, args...)
		})
	}
	fails(t, exitFailed, at("absent"), train(2, "--out", filepath.Join(at("absent"), "out"))...)
	fails(t, exitFailed, at("absent")+": scratch file: ", train(2, "--optimizer-state-offload", "disk", "--optimizer-state-offload-dir", at("absent"))...)
	fails(t, exitBadInput, "the folder "+at("absent")+" does not exist", train(2, "--adam-8bit", "--checkpoint", filepath.Join(at("absent"), "c"))...)
	require.Equal(t, everything, names(t, folder))
}

// TestTrainGoesOn gives a run with a schedule of its own more steps than it had.
func TestTrainGoesOn(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	require.NoError(t, os.WriteFile(at("my run.json"), []byte(`{"lr": 0.01}`), 0o666))
	trained(t, train(4, "--config", at("my run.json"), "--out", at("a"), "--checkpoint", at("c1"))...)
	trained(t, train(2, "--config", at("my run.json"), "--out", at("b"), "--checkpoint", at("c2"))...)
	report := trained(t, "train", "--resume", at("c2"), "--steps", "4", "--out", at("d"), "--checkpoint", at("c3"))
	require.Equal(t, "my run", report.Rows[0].Optimizer)
	_, want := load(t, at("c1"))
	_, got := load(t, at("c3"))
	checksum := func(x tensor) bool { return x.name == "sha256" }
	require.Equal(t, slices.DeleteFunc(want, checksum), slices.DeleteFunc(got, checksum))
}

// TestTrainGoesOnAtTheLastRate, whichever flags repeat what the checkpoint says.
func TestTrainGoesOnAtTheLastRate(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	trained(t, train(4, "--adam-8bit", "--out", at("a"), "--checkpoint", at("c"))...)
	var curves [][]byte
	for i, flags := range [][]string{{}, {"--adam-8bit"}, {"--adam-beta1", "0.9"}} {
		out := at(fmt.Sprint(i))
		r := lowbit(append([]string{"train", "--resume", at("c"), "--steps", "6", "--out", out, "--checkpoint", out + ".c"}, flags...)...)
		require.Equal(t, "lowbit: warning: the schedule of the learning rate ends at step 4: the steps from there to 6 are at its last rate, 0.001\n", r.stderr)
		require.Zero(t, r.code)
		curves = append(curves, read(t, filepath.Join(out, "loss.csv")))
		require.Equal(t, curves[0], curves[i])
		r = lowbit("train", "--resume", out+".c", "--adam-beta2", "0.999", "--steps", "7", "--out", out+"b")
		require.Zero(t, r.code, r.stderr)
	}
}

// TestTrainWarns says what is known to train badly, and which text is used where there is no Go.
func TestTrainWarns(t *testing.T) {
	folder := t.TempDir()
	config := filepath.Join(folder, "b.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"moments_dtype": "bfloat16"}`), 0o666))
	r := lowbit(train(1, "--config", config, "--out", filepath.Join(folder, "out"))...)
	require.Zero(t, r.code)
	require.Regexp(t, `\Alowbit: warning: b: betas\[1\]: got 0.999, .*\n\z`, r.stderr)

	t.Setenv("PATH", folder)
	r = lowbit("train", "--steps", "1", "--adam-4bit", "--out", filepath.Join(folder, "out2"))
	require.Zero(t, r.code)
	require.Regexp(t, `\Alowbit: warning: no source of the Go standard library .* training on the embedded text\n\z`, r.stderr)
	require.Contains(t, r.stdout, "trained on the embedded text")
}

// TestTrainCorpus trains on a file and on the source of Go, and has a checkpoint know them.
func TestTrainCorpus(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	require.NoError(t, os.WriteFile(at("text"), bytes.Repeat([]byte("over and over\n"), 400), 0o666))
	for name, flags := range map[string][]string{"file": {"--corpus", at("text")}, "go": nil} {
		args := append([]string{"train", "--adam-4bit", "--steps", "2"}, flags...)
		trained(t, append(args, "--out", at(name), "--checkpoint", at(name+".c"))...)
		trained(t, "train", "--resume", at(name+".c"), "--out", at(name+"2"))
	}
	require.NotEqual(t, losses(t, filepath.Join(at("file"), "loss.csv")), losses(t, filepath.Join(at("go"), "loss.csv")))
	f, err := tensorfile.Open(at("file.c"))
	require.NoError(t, err)
	defer f.Close()
	require.Contains(t, f.Metadata[trainKey], `"source":"`+at("text")+`"`)
}
