package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/golden"
)

// TestTrainResumesAConvertedRun: a checkpoint of train says what it holds after conversion.
func TestTrainResumesAConvertedRun(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	succeeds(t, "train", "--corpus", "embedded", "--steps", "6", "--optimizer", "adamw_float32", "--checkpoint", at("a"), "--out", at("1"))
	config := filepath.Join(folder, "adamw_own.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"adam_8bit": true, "quant_block_size": 64}`), 0o644))
	require.Contains(t, succeeds(t, "convert-state", at("a"), at("b"), "--to", "adamw_8bit"), "float32 to dynamic8 block 128")
	out := succeeds(t, "train", "--corpus", "embedded", "--steps", "6", "--resume", at("b"), "--out", at("2"))
	require.Contains(t, out, "adamw_8bit")
	succeeds(t, "convert-state", at("a"), at("c"), "--config", config)
	out = succeeds(t, "train", "--corpus", "embedded", "--steps", "6", "--resume", at("c"), "--out", at("3"), "--config", config)
	require.Contains(t, out, "adamw_own")
}

// TestConvertStateRoundTrip: to 8 bits and back by float32 keeps what 8 bits hold.
func TestConvertStateRoundTrip(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("p"), nil, f32("w", numbers(300*20), 300, 20), f32("b", numbers(77), 77))
	store(t, at("g"), nil, f32("w", numbers(300*20), 300, 20), f32("b", numbers(77), 77))
	config := writeConfig(t, `{"lr": 0.01, "headroom": true, "adam_8bit": true}`)
	succeeds(t, "step", "--config", config, "--params", at("p"), "--grads", at("g"), "--grads", at("g"), "--out-params", at("p2"), "--out-state", at("s"))
	succeeds(t, "convert-state", at("s"), at("wide"), "--to", "adamw_float32")
	var report struct {
		Parameters []convertedJSON `json:"parameters"`
	}
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "convert-state", at("wide"), at("narrow"), "--config", config, "--json")), &report))
	require.Equal(t, []convertedJSON{
		{"b", []int64{77}, "float32", "dynamic8 block 128", false, "float32", "dynamic8u block 128", false, 0},
		{"w", []int64{300, 20}, "float32", "dynamic8 block 128", false, "float32", "dynamic8u block 128", false, 0},
	}, report.Parameters)
	_, before := load(t, at("s"))
	_, after := load(t, at("narrow"))
	for i, x := range before {
		if x.name == "sha256" { // that of the configuration too
			continue
		}
		require.Equal(t, x, after[i])
	}
	require.Contains(t, succeeds(t, "convert-state", at("s"), at("4bit"), "--to", "adamw_4bit"), "dynamic8u block 128 to factors")
	require.Contains(t, succeeds(t, "inspect", at("4bit")), "row/w")
	require.Contains(t, succeeds(t, "convert-state", at("s"), at("same"), "--to", "adamw_8bit"), "dynamic8 block 128, kept")
	same := lowbit("convert-state", at("4bit"), at("bf16"), "--to", "adamw_bfloat16")
	require.Equal(t, result{0, same.stdout, ""}, same)
}

func TestConvertStateOfMuon(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("p"), nil, f32("w", numbers(200), 20, 10), f32("b", numbers(77), 77))
	succeeds(t, "step", "--config", writeConfig(t, `{"type": "muon", "lr": 1}`), "--params", at("p"), "--grads", at("p"), "--out-params", at("p2"), "--out-state", at("s"))
	from := "s"
	for _, to := range []string{"muon_8bit", "muon_bfloat16", "muon_linear8", "muon"} {
		require.Contains(t, succeeds(t, "convert-state", at(from), at(to), "--to", to), "configuration has\n{\"lr\":1,")
		from = to
	}
	fails(t, exitBadInput, "the state is muon's, which adamw_8bit is not", "convert-state", at("s"), at("x"), "--to", "adamw_8bit")
}

// TestConvertStateImports what another system exported, and steps from there.
func TestConvertStateImports(t *testing.T) {
	set, maps := golden.Open(t, "bitsandbytes_adamw8bit"), golden.Open(t, "bitsandbytes_quant")
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	shape := set.Shape("p0")
	store(t, at("exported"), nil,
		tensor{"w.state1", "U8", shape, set.U8("m3")}, tensor{"w.state2", "U8", shape, set.U8("v3")},
		f32("w.absmax1", set.F32("mscale3"), 32), f32("w.absmax2", set.F32("vscale3"), 32),
		f32("w.qmap1", maps.F32("map.signed"), 256), f32("w.qmap2", maps.F32("map.unsigned"), 256),
		tensor{"w.step", "I64", []int64{}, binary.LittleEndian.AppendUint64(nil, 3)})
	require.Contains(t, succeeds(t, "convert-state", at("exported"), at("s"), "--from", "bitsandbytes", "--to", "adamw_8bit"),
		"qmap1 block 256 to dynamic8 block 256, codes kept")
	require.Contains(t, succeeds(t, "convert-state", at("exported"), at("s2"), "--from", "bitsandbytes", "--to", "adamw_8bit"),
		"wrote "+at("s2")+", from which an optimizer resumes whose configuration has\n{\"adam_8bit\":true,\"quant_block_size\":256}\n")
	require.Contains(t, succeeds(t, "convert-state", at("exported"), at("s3"), "--from", "bitsandbytes", "--to", "adamw_float32"),
		"wrote "+at("s3")+", from which an optimizer resumes whose configuration has all the defaults: {}\n"+
			"bitsandbytes's learning rate, betas, eps and weight decay are not in "+at("exported")+": give them in the configuration too\n")
	store(t, at("p"), nil, f32("w", set.F32("p3"), shape...))
	store(t, at("g"), nil, f32("w", set.F32("g4"), shape...))
	succeeds(t, "step", "--config", writeConfig(t, `{"lr": 0.01, "weight_decay": 0.01, "adam_8bit": true, "quant_block_size": 256}`),
		"--params", at("p"), "--grads", at("g"), "--state", at("s"), "--out-params", at("p4"), "--out-state", at("s4"))
	_, tensors := load(t, at("p4"))
	largest, off := float32(0), float32(0)
	for i, want := range set.F32("p4") {
		largest = max(largest, want-set.F32("p3")[i], set.F32("p3")[i]-want)
		off = max(off, want-float32s(tensors[0].data)[i], float32s(tensors[0].data)[i]-want)
	}
	require.Less(t, off, 1e-4*largest)
}

func TestConvertStateRefuses(t *testing.T) {
	folder, plain := small(t)
	at := func(name string) string { return filepath.Join(folder, name) }
	succeeds(t, "step", "--config", writeConfig(t, `{"adam_8bit": true, "quant_block_size": 16}`), "--params", plain, "--grads", plain, "--out-params", at("p"), "--out-state", at("s"))
	content, err := os.ReadFile(at("s"))
	require.NoError(t, err)
	content[len(content)-40] ^= 1
	require.NoError(t, os.WriteFile(at("altered"), content, 0o644))
	before := names(t, folder)
	for _, test := range []struct {
		want string
		args []string
	}{
		{"convert-state: want --to or --config", []string{at("s"), at("out")}},
		{"convert-state: want --to or --config", []string{at("s"), at("out"), "--to", "adamw_8bit", "--config", plain}},
		{`--to: "sgd" is not known, want one of adamw_float32, `, []string{at("s"), at("out"), "--to", "sgd"}},
		{"--from must be one of", []string{at("s"), at("out"), "--to", "adamw_8bit", "--from", "jax"}},
		{"the metadata has no lowbit.optimizer", []string{plain, at("out"), "--to", "adamw_8bit"}},
		{"it is a checkpoint of lowbit", []string{at("s"), at("out"), "--to", "adamw_8bit", "--from", "torch"}},
		{`tensor "w", want names of parameters followed by one of`, []string{plain, at("out"), "--to", "adamw_8bit", "--from", "torch"}},
		{"the checksum does not match", []string{at("altered"), at("out"), "--to", "adamw_8bit"}},
		{"the state is adamw's, which muon_8bit is not", []string{at("s"), at("out"), "--to", "muon_8bit"}},
		{"quant_block_size: got 16, want a power of two", []string{at("s"), at("out"), "--to", "adamw_4bit"}},
		{"are the same file", []string{at("s"), at("s"), "--to", "adamw_4bit", "--force"}},
		{"exists already", []string{at("s"), at("p"), "--to", "adamw_float32"}},
		{"no such file", []string{at("missing"), at("out"), "--to", "adamw_float32"}},
	} {
		fails(t, exitBadInput, test.want, append([]string{"convert-state"}, test.args...)...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	requireFailure(t, lowbitWith(ctx, 64, "convert-state", at("s"), at("out"), "--to", "adamw_float32"), exitInterrupted, "interrupted")
	require.Equal(t, before, names(t, folder))
	r := lowbit("convert-state", at("s"), at("bf16"), "--config", writeConfig(t, `{"moments_dtype": "bfloat16"}`))
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, "warning: betas[1]: got 0.999")
}

// TestEveryOptimizerIsARepresentation that a checkpoint can be converted to.
func TestEveryOptimizerIsARepresentation(t *testing.T) {
	for _, name := range optimizerNames() {
		require.Contains(t, representationNames(), name)
	}
}
