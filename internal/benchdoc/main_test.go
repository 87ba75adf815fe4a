package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const ours = `{"machine": {"brand": "A CPU", "threads": 2, "stream_bytes_per_s": 40e9, "fma_flops": 200e9, "bf16_dot_flops": null}, "rows": [
{"operation": "quantize", "variant": "4bit", "implementation": "amd64/avx2", "format": "nf4", "block": 64, "shape": [100], "threads": 1,
 "seconds": 1e-7, "elements_per_s": 1e9, "bytes_per_s": 4.5e9, "limit_fraction": 0.254, "flops": null, "peak_fraction": null},
{"operation": "quantize", "variant": "4bit", "implementation": "amd64/avx2", "format": "nf4", "block": 64, "shape": [100], "threads": 2,
 "seconds": 5e-8, "elements_per_s": 2e9, "bytes_per_s": 9e9, "limit_fraction": 0.5, "flops": null, "peak_fraction": null},
{"operation": "newton_schulz_float32", "variant": "", "implementation": "reference", "method": "gram", "shape": [2, 8, 16], "threads": 2,
 "seconds": 0.0125, "elements_per_s": 1e9, "bytes_per_s": null, "limit_fraction": null, "flops": 1e9, "peak_fraction": null}]}`

const peers = `{"machine": {"threads": 1, "versions": {"torch": "2"}}, "rows": [
{"operation": "quantize", "variant": "4bit", "implementation": "torch", "method": "", "shape": [7], "threads": 1, "seconds": 1, "elements_per_s": 4e8},
{"operation": "quantize", "variant": "8bit", "implementation": "torch", "method": "", "shape": [7], "threads": 1, "seconds": 1, "elements_per_s": 4e8},
{"operation": "newton_schulz_float32", "variant": "", "implementation": "torch", "method": "standard", "shape": [2, 8, 16], "threads": 2, "seconds": 0.05, "elements_per_s": 2.5e8}]}`

func TestPage(t *testing.T) {
	folder := t.TempDir()
	files := []string{filepath.Join(folder, "ours"), filepath.Join(folder, "peers")}
	require.NoError(t, os.WriteFile(files[0], []byte(ours), 0o666))
	require.NoError(t, os.WriteFile(files[1], []byte(peers), 0o666))
	var out strings.Builder
	steps := filepath.Join(folder, "steps")
	require.NoError(t, os.WriteFile(steps, []byte("go test . -bench X\ngoos: linux\nBenchmarkX-2  10  5 ns/op\nPASS\n"), 0o666))
	require.NoError(t, run(steps, files, &out))
	for _, line := range []string{
		"Here, on 2 threads: a copy reads and writes 40 GB/s",
		"200 GFLOP/s of float32.\n",
		"\n| operation | variant | implementation | Gelem/s, 1 thread | GB/s, 1 thread | of limit, 1 thread | Gelem/s, 2 threads | GB/s, 2 threads | of limit, 2 threads |\n",
		"\n| quantize | 4bit (nf4, block 64) | amd64/avx2 | 1 | 4.5 | 25 % | 2 | 9 | 50 % |\n\n",
		"\n| newton_schulz_float32 | 2×8×16 | reference gram | – | – | – | 12.5 | 1 | – |\n\n",
		"## Steps, threads, blocks",
		"\n\n    go test . -bench X\n\n    BenchmarkX-2  10  5 ns/op\n\n## Beside",
		"torch 2, each as its users call it",
		"\n| quantize | 4bit | torch | 1 | 0.4 Gelem/s | amd64/avx2 2.50 |\n",
		"\n| newton_schulz_float32 | 2×8×16 | torch | 2 | 50 ms | reference gram 4.00 |\n",
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "| quantize | 8bit")

	out.Reset()
	require.NoError(t, run("", files[:1], &out))
	require.NotContains(t, out.String(), "Beside other libraries")
	require.NotContains(t, out.String(), "Steps")
	require.ErrorContains(t, run("", nil, &out), "want the JSON of lowbit bench")
	require.ErrorContains(t, run("", []string{filepath.Join(folder, "none")}, &out), "none")
}
