package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
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
		require.Equal(t, []secondMoment{{"m", 640, 2*64 + 10 - 2}, {"v", 100, 32}}, report.SecondMoments, config)
	}
}
