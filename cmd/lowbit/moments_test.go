package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

// TestInspectProbesSecondMoments steps parameters of which some gradients are zero.
func TestInspectProbesSecondMoments(t *testing.T) {
	matrix := make([]float32, 10*64) // rows 2 and 5 and column 7 have no gradient
	vector := make([]float32, 100)   // the second block of 32 has none
	for i := range matrix {
		if row, col := i/64, i%64; row != 2 && row != 5 && col != 7 {
			matrix[i] = float32(i%5 + 1)
		}
	}
	for i := range vector {
		if i/32 != 1 {
			vector[i] = 1
		}
	}
	for _, config := range []string{
		`{}`,
		`{"moments_dtype": "bfloat16"}`,
		`{"adam_8bit": true}`,
		`{"adam_4bit": true, "quant_block_size": 32}`,
		`{"type": "muon", "lr": 0.1, "param_groups": [{"params": ["*"], "optimizer": "adamw"}]}`,
		`{"type": "muon", "lr": 0.1, "param_groups": [{"params": ["m"], "role": "vector"}]}`,
	} {
		parsed, err := optim.ParseConfig([]byte(config))
		require.NoError(t, err)
		opt, err := optim.New(parsed, []optim.Param{
			{Name: "m", Shape: []int64{10, 64}, Weights: kernels.Float32s(make([]float32, 640)), Gradients: kernels.Float32s(matrix)},
			{Name: "v", Shape: []int64{100}, Weights: kernels.Float32s(make([]float32, 100)), Gradients: kernels.Float32s(vector)},
			{Name: "none", Shape: []int64{0, 4}, Weights: kernels.Float32s([]float32{})},
		})
		require.NoError(t, err, config)
		_, err = opt.Step()
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
		require.NoError(t, opt.Save(path, optim.SaveOptions{}))
		var stdout, stderr bytes.Buffer
		require.Zero(t, run(context.Background(), []string{"inspect", path, "--json"}, &stdout, &stderr), stderr.String())
		var report struct {
			SecondMoments []secondMoment `json:"second_moments"`
		}
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
		text := succeeds(t, "inspect", path)
		require.Contains(t, text, "ZERO  SHARE")
		require.NotContains(t, text, "BITS")
		require.NotContains(t, text, "quantised:")
		if strings.Contains(config, "adam_8bit") {
			require.Regexp(t, `(?m)^exp_avg/m +U8 +\[640\] +8-bit +128 +640$`, text)
			require.Contains(t, text, `, a checkpoint of "adam 8-bit block 128", step 1`)
		}
		want := []secondMoment{{"m", 640, 2*64 + 10 - 2}, {"v", 100, 32}}
		if !strings.Contains(config, `["m"]`) { // where Muon steps the empty matrix
			want = append(want, secondMoment{"none", 0, 0})
		}
		require.Equal(t, want, report.SecondMoments, config)
	}
}

// TestInspectRefusesBrokenCheckpoints reads descriptions that do not fit the file's tensors.
func TestInspectRefusesBrokenCheckpoints(t *testing.T) {
	for words, parameter := range map[string]string{
		`has shape [-1], want one of at most 2^62 elements`:                   `{"name": "m", "shape": [-1]}`,
		`has shape [4611686018427387904 4], want one of at most`:              `{"name": "m", "shape": [4611686018427387904, 4]}`,
		`tensor "exp_avg_sq/m" has 4 elements, want 5`:                        `{"name": "m", "shape": [5]}`,
		`tensor "exp_avg_sq_absmax/m" has 1 elements, want 4`:                 `{"name": "m", "shape": [4], "precision": "4-bit"}`,
		`tensor "exp_avg_sq/whole" is "I32", want numbers or codes`:           `{"name": "whole", "shape": [2]}`,
		`the checkpoint lacks tensor "row/f"`:                                 `{"name": "f", "shape": [2, 3]}`,
		`metadata lowbit.optimizer: json: cannot unmarshal string into Go st`: `{"name": "m", "shape": "4"}`,
	} {
		path := filepath.Join(t.TempDir(), "broken")
		metadata := map[string]string{checkpointKey: `{"parameters": [` + parameter + `]}`}
		store(t, path, metadata, f32("exp_avg_sq/m", numbers(4), 4), f32("exp_avg_sq_absmax/m", numbers(1), 1), f32("col/f", numbers(3), 3),
			tensor{"exp_avg_sq/whole", "I32", []int64{2}, make([]byte, 8)})
		fails(t, exitBadInput, words, "inspect", path)
	}
}
