package main

import (
	"context"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/fuzz"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

func TestVerify(t *testing.T) {
	text := succeeds(t, "verify", "--filter", "^(quantize/4bit|bf16_round/)", "--cases", "20")
	require.Regexp(t, `(?m)^quantize +4bit +\S+ +exact +20 +[1-9]\d+ +0 +0$`, text)
	require.Regexp(t, `(?m)^bf16_round +- +\S+ +exact +20 +[1-9]\d+ +0 +0$`, text)
	require.NotContains(t, text, "dequantize")

	object := decode(t, succeeds(t, "verify", "--filter", "^gemm_bfloat16/", "--cases", "2", "--json"))
	require.Equal(t, true, object["ok"])
	operation := object["operations"].([]any)[0]
	requireKeys(t, operation, "name", "variant", "implementation", "class", "cases", "elements", "mismatches", "max_error", "bound")
	require.Equal(t, 1.0, operation.(map[string]any)["bound"])

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Equal(t, result{exitInterrupted, "", "lowbit: interrupted\n"}, lowbitWith(ctx, 64, "verify"))
}

// fake is a trial whose implementations differ as they are told to.
type fake struct {
	row     kernels.Row
	results map[string]fuzz.Result
}

func (f fake) Row() kernels.Row { return f.row }

func (f fake) Check(implementation string, _ []byte) fuzz.Result { return f.results[implementation] }

func TestVerifyFindsDifferences(t *testing.T) {
	implementations := func(names ...string) (list []kernels.Implementation) {
		for _, name := range names {
			list = append(list, kernels.Implementation{Name: name, Available: !strings.HasPrefix(name, "absent")})
		}
		return list
	}
	good := fuzz.Result{Elements: 10}
	bad := fuzz.Result{Elements: 10, Mismatches: 2, MaxError: 0.5, First: "op wrong: 1, want 2"}
	two := fake{kernels.Row{Name: "op", Variant: "x", Implementations: implementations("absent", "wrong", "right", "reference")},
		map[string]fuzz.Result{"wrong": bad, "right": good}}
	alone := fake{kernels.Row{Name: "alone", Class: kernels.Tolerance, Implementations: implementations("absent", "reference")},
		map[string]fuzz.Result{"reference": good}}

	var stdout strings.Builder
	e := &env{ctx: context.Background(), stdout: &stdout, stderr: &stdout}
	err := (&verifyCmd{Cases: 3}).verify(e, []trial{two, alone})
	require.EqualError(t, err, "1 of 3 implementations differ from the reference, the first: op wrong: 1, want 2")
	require.Equal(t, exitFailed, exitCode(err))
	require.Regexp(t, `(?m)^op +x +wrong +exact +3 +30 +6 +0\.5$`, stdout.String())
	require.Regexp(t, `(?m)^op +x +right +exact +3 +30 +0 +0$`, stdout.String())
	require.Regexp(t, `(?m)^alone +- +reference +tolerance +3 +30 +0 +0$`, stdout.String())
	require.Contains(t, stdout.String(), "operations: 2, implementations beside the reference: 2\n")
	require.NotContains(t, stdout.String(), "absent")

	stdout.Reset()
	require.NoError(t, (&verifyCmd{Cases: 1}).verify(e, []trial{alone}))
	require.Contains(t, stdout.String(), "operations: 1; the reference is the only implementation, and was compared with itself\n")
	stdout.Reset()
	require.Error(t, (&verifyCmd{Cases: 1, JSON: true}).verify(e, []trial{two}))
	require.Equal(t, false, decode(t, stdout.String())["ok"])
}
