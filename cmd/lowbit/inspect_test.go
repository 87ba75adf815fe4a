package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	x := numbers(1000)
	store(t, at("in"), nil, f32("w", x, 10, 100), f32("v", x[:65], 65), tensor{"i", "I64", []int64{}, make([]byte, 8)}, f32("none", nil, 0))
	for _, c := range []struct {
		flags []string
		bytes map[string]int64
	}{
		{[]string{"dynamic8"}, map[string]int64{"w": 1000 + 8*4, "v": 65 + 4, "lowbit.codebook.dynamic8": 1024}},
		{[]string{"nf4"}, map[string]int64{"w": 500 + 16*4, "v": 33 + 2*4, "lowbit.codebook.nf4": 64}},
		{[]string{"nf4", "--exclude", "v"}, map[string]int64{"w": 500 + 16*4, "v": 260, "lowbit.codebook.nf4": 64}},
		{[]string{"nf4", "--layout", "bitsandbytes"}, map[string]int64{"w": 500 + 16*4 + 64, "v": 33 + 2*4 + 64, "none": 64}},
	} {
		out := at(fmt.Sprint(c.flags))
		succeeds(t, append([]string{"quantize", at("in"), out, "--format"}, c.flags...)...)
		var got inspectJSON
		require.NoError(t, json.Unmarshal([]byte(succeeds(t, "inspect", out, "--against", at("in"), "--json")), &got))
		total, absolute, squares, elements := int64(0), 0.0, 0.0, 0.0
		_, stored := load(t, out)
		for _, x := range stored { // the JSON of bitsandbytes counts too
			if name, _, ok := strings.Cut(x.name, bitsandbytesMark); ok {
				c.bytes[name] += int64(len(x.data))
			}
		}
		for _, r := range got.Tensors {
			if want, ok := c.bytes[r.Name]; ok {
				require.Equal(t, want, r.BytesOut, r.Name)
			}
			total += r.BytesOut
			if r.Name == "w" || r.Name == "v" {
				n := float64(r.Elements)
				elements += n
				absolute += n * float64(r.MeanAbsError)
				squares += n * float64(r.RMSError) * float64(r.RMSError)
			}
		}
		require.Equal(t, total, got.Total.BytesOut)
		require.InEpsilon(t, absolute/elements, float64(got.Total.MeanAbsError), 1e-12)
		require.InEpsilon(t, math.Sqrt(squares/elements), float64(got.Total.RMSError), 1e-12)

		// The statistics are those of the decoded file.
		succeeds(t, "dequantize", out, out+".d")
		var decoded inspectJSON
		require.NoError(t, json.Unmarshal([]byte(succeeds(t, "inspect", out+".d", "--against", at("in"), "--json")), &decoded))
		require.Equal(t, got.Total.RMSError, decoded.Total.RMSError)
		require.Equal(t, got.Total.MaxAbsError, decoded.Total.MaxAbsError)
		_, tensors := load(t, out+".d")
		worst := 0.0
		for i, v := range float32s(find(t, tensors, "w").data) {
			worst = max(worst, math.Abs(float64(v)-float64(x[i])))
		}
		for _, r := range decoded.Tensors {
			if r.Name == "w" {
				require.Equal(t, worst, float64(r.MaxAbsError))
			}
		}
	}
	text := succeeds(t, "inspect", at("[nf4]"))
	require.Regexp(t, `(?m)^w +F32 +\[10,100\] +nf4 +64 +564 +4\.512$`, text)
	require.Regexp(t, `(?m)^i +I64 +\[\] +- +- +8 +64\.000$`, text)
	require.Regexp(t, `(?m)^none +F32 +\[0\] +nf4 +64 +0 +-$`, text)
	require.Contains(t, text, "\ntensors: 5, quantised: 3\n")
}

func TestInspectAgainstAnotherFile(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("in"), nil, f32("w", numbers(4), 4))
	succeeds(t, "quantize", at("in"), at("q"), "--format", "nf4")
	store(t, at("name"), nil, f32("v", numbers(4), 4))
	store(t, at("dtype"), nil, tensor{"w", "I32", []int64{4}, make([]byte, 16)})
	store(t, at("shape"), nil, f32("w", numbers(4), 2, 2))
	for other, words := range map[string]string{
		"name":  `it has no tensor "w"`,
		"dtype": `tensor "w" is I32, want F32, F16 or BF16`,
		"shape": `tensor "w" has shape [2,2], want [4]`,
	} {
		fails(t, exitBadInput, at(other)+": "+words, "inspect", at("q"), "--against", at(other))
		fails(t, exitBadInput, at(other)+": "+words, "inspect", at("in"), "--against", at(other))
	}
}

// TestInspectComparesCheckpoints of moments that are numbers, and names those that are codes.
func TestInspectComparesCheckpoints(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	store(t, at("p"), nil, f32("w", numbers(300), 300))
	succeeds(t, "step", "--config", writeConfig(t, `{}`), "--params", at("p"), "--grads", at("p"), "--out-params", at("p2"), "--out-state", at("s"))
	for _, to := range []string{"adamw_8bit", "adamw_4bit", "adamw_bfloat16"} {
		succeeds(t, "convert-state", at("s"), at(to), "--to", to)
	}
	for _, name := range []string{"adamw_8bit", "adamw_4bit"} {
		words := at(name) + `: the moments of parameter "w" are ` + map[string]string{"adamw_8bit": "8-bit", "adamw_4bit": "4-bit"}[name] + " codes"
		fails(t, exitBadInput, words, "inspect", at(name), "--against", at("s"))
		fails(t, exitBadInput, words, "inspect", at("s"), "--against", at(name))
	}
	require.Regexp(t, `(?m)^exp_avg/w +BF16 .* [0-9.e-]+ +[0-9.e-]+ +[0-9.e-]+$`, succeeds(t, "inspect", at("adamw_bfloat16"), "--against", at("s")))
	succeeds(t, "convert-state", at("adamw_8bit"), at("numbers"), "--to", "adamw_float32")
	require.Regexp(t, `(?m)^exp_avg_sq/w +F32 .* [0-9.e-]+ +[0-9.e-]+ +[0-9.e-]+$`, succeeds(t, "inspect", at("numbers"), "--against", at("s")))
}

// TestJSON pins the names of the fields.
func TestJSON(t *testing.T) {
	source, path := quantisedFile(t, "nf4")
	out := filepath.Join(t.TempDir(), "out")
	tensorKeys := []string{"name", "dtype", "shape", "format", "block", "bytes_in", "bytes_out", "max_abs_error", "mean_abs_error", "rms_error"}
	for _, args := range [][]string{
		{"quantize", source, out, "--format", "nf4"}, {"round", source, out, "--to", "bfloat16"},
		{"dequantize", path, out}, {"inspect", path, "--against", source}, {"inspect", source},
	} {
		if args[0] != "inspect" {
			args = append(args, "--force")
		}
		object := decode(t, succeeds(t, append(args, "--json")...))
		require.Equal(t, []any{}, object["copied"])
		requireKeys(t, object["tensors"].([]any)[0], tensorKeys...)
	}
	object := decode(t, succeeds(t, "info", "--json"))
	requireKeys(t, object, "version", "go", "os", "arch", "cpu", "disabled", "devices", "operations")
	requireKeys(t, object["cpu"], "brand", "features", "cores")
	require.Equal(t, []any{}, object["devices"])
	operation := object["operations"].([]any)[0]
	requireKeys(t, operation, "name", "variant", "class", "selected", "implementations")
	requireKeys(t, operation.(map[string]any)["implementations"].([]any)[0], "name", "available", "needs", "why")
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}

func requireKeys(t *testing.T, object any, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.Contains(t, object, key)
	}
}
