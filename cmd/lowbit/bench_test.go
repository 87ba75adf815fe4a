package main

import (
	"context"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/bench"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

func TestBench(t *testing.T) {
	text := succeeds(t, "bench", "--filter", "^quantize/4bit", "--elements", "1000", "--threads", "1")
	require.Regexp(t, `(?m)^processor: .*\nthreads: 1; copies [\d.]+ GB/s, multiply-adds \S+ GFLOP/s, dot products of bfloat16 \S+ GFLOP/s$`, text)
	require.Regexp(t, `(?m)^quantize +4bit \(nf4, block 64\) +\S+ +\[1000\] +1 +[\d.e-]+ ms +[\d.]+ +[\d.]+ +[\d.]+ % +- +-$`, text)
	require.NotContains(t, text, "dequantize")
}

func TestBenchJSON(t *testing.T) {
	object := decode(t, succeeds(t, "bench", "--filter", "^(absmax/|dot/|adamw_8bit/bfloat16_float32)", "--elements", "300", "--reference", "--json"))
	requireKeys(t, object["machine"], "brand", "threads", "stream_bytes_per_s", "fma_flops", "bf16_dot_flops")
	want := 0
	for _, row := range kernels.Table() {
		if row.Name == "absmax" || row.Name == "dot" || row.Name == "adamw_8bit" && row.Variant == "bfloat16_float32" {
			for _, impl := range row.Implementations {
				if impl.Available {
					want += len((&benchCmd{}).threadCounts())
				}
			}
		}
	}
	rows := object["rows"].([]any)
	require.Len(t, rows, want)
	for _, r := range rows {
		requireKeys(t, r, "operation", "variant", "implementation", "method", "dtype", "format", "block", "elements", "shape", "threads",
			"seconds", "elements_per_s", "streams", "bytes_per_s", "limit_fraction", "flops", "peak_fraction")
		row := r.(map[string]any)
		for _, name := range []string{"seconds", "elements_per_s", "bytes_per_s", "limit_fraction"} {
			require.Positive(t, row[name], "%s of %v", name, row)
		}
		require.Nil(t, row["flops"])
		require.Nil(t, row["peak_fraction"])
		if row["operation"] == "adamw_8bit" {
			require.Equal(t, "bfloat16", row["dtype"])
			require.Equal(t, "dynamic8+dynamic8u", row["format"])
			require.Equal(t, 256.0, row["block"])
			require.Equal(t, map[string]any{"read": []any{4.0}, "write": []any{}, "in_place": []any{2.0, 1.0, 1.0}}, row["streams"])
		}
	}
}

func TestBenchMatrices(t *testing.T) {
	loads := []bench.Load{}
	for _, l := range bench.Loads() {
		if l.Row.Name == "newton_schulz_float32" {
			l.Shapes = []bench.Shape{{8, 24}}
			loads = append(loads, l)
		}
	}
	var stdout strings.Builder
	e := &env{ctx: context.Background(), stdout: &stdout, stderr: &stdout}
	r, err := (&benchCmd{Elements: 100, Threads: 1}).measure(e, loads)
	require.NoError(t, err)
	methods := map[string]bool{}
	for _, row := range r.Rows {
		require.Positive(t, row.Flops)
		require.False(t, row.BytesPerS == row.BytesPerS, "bytes of matrices")
		require.False(t, row.LimitFraction == row.LimitFraction, "a limit of matrices")
		methods[row.Method] = true
	}
	require.Equal(t, map[string]bool{"standard": true, "gram": true}, methods)
	require.NoError(t, r.print(e))
	for _, variant := range []string{"-", "gram"} {
		require.Regexp(t, `(?m)^newton_schulz_float32 +`+variant+` +\S+ +\[8,24\] +1 +[\d.e-]+ ms +[\d.]+ +- +- +[\d.]+ +(-|[\d.]+ %)$`, stdout.String())
	}
}

func TestBenchEndsWhenInterrupted(t *testing.T) {
	for last := range 12 {
		asked := 0
		r := lowbitWith(hooked{context.Background(), &asked, func(time int) error {
			if time > last {
				return context.Canceled
			}
			return nil
		}}, 64, "bench", "--filter", "^(gemm_float32|absmax)/", "--elements", "100")
		require.Equal(t, result{exitInterrupted, "", "lowbit: interrupted\n"}, r)
	}
}

func TestBillions(t *testing.T) {
	texts := []string{}
	for _, n := range []number{unknown, 1234e9, 56.78e9, 1.234e9, 0.0125e9} {
		texts = append(texts, billions(n))
	}
	require.Equal(t, "- 1234 56.8 1.23 0.013", strings.Join(texts, " "))
}

func TestBenchRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--elements is 0, want 1 to 1073741824":          {"--elements", "0"},
		"--elements is 1073741825, want 1 to 1073741824": {"--elements", "1073741825"},
		"--threads: got 1025, want 1 to 1024":            {"--threads", "1025"},
		"--filter: error parsing regexp":                 {"--filter", "("},
		"--filter: \"nothing\" matches none of the":      {"--filter", "nothing"},
	} {
		fails(t, exitBadInput, want, append([]string{"bench"}, args...)...)
	}
}
