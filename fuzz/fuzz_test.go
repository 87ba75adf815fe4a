package fuzz

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

func FuzzAbsmax(f *testing.F)               { fuzzOperation(f, "absmax") }
func FuzzAccumulate(f *testing.F)           { fuzzOperation(f, "accumulate") }
func FuzzAdamW4bit(f *testing.F)            { fuzzOperation(f, "adamw_4bit") }
func FuzzAdamW8bit(f *testing.F)            { fuzzOperation(f, "adamw_8bit") }
func FuzzAdamWBFloat16(f *testing.F)        { fuzzOperation(f, "adamw_bfloat16") }
func FuzzAdamWFloat32(f *testing.F)         { fuzzOperation(f, "adamw_float32") }
func FuzzBF16Round(f *testing.F)            { fuzzOperation(f, "bf16_round") }
func FuzzBF16Stochastic(f *testing.F)       { fuzzOperation(f, "bf16_stochastic") }
func FuzzBF16Truncate(f *testing.F)         { fuzzOperation(f, "bf16_truncate") }
func FuzzBF16Widen(f *testing.F)            { fuzzOperation(f, "bf16_widen") }
func FuzzDequantize(f *testing.F)           { fuzzOperation(f, "dequantize") }
func FuzzDot(f *testing.F)                  { fuzzOperation(f, "dot") }
func FuzzFactorMeans(f *testing.F)          { fuzzOperation(f, "factor_means") }
func FuzzFloat16Round(f *testing.F)         { fuzzOperation(f, "float16_round") }
func FuzzFloat16Widen(f *testing.F)         { fuzzOperation(f, "float16_widen") }
func FuzzGemmBFloat16(f *testing.F)         { fuzzOperation(f, "gemm_bfloat16") }
func FuzzGemmFloat32(f *testing.F)          { fuzzOperation(f, "gemm_float32") }
func FuzzMuonDirection(f *testing.F)        { fuzzOperation(f, "muon_direction") }
func FuzzMuonUpdate(f *testing.F)           { fuzzOperation(f, "muon_update") }
func FuzzNewtonSchulzBFloat16(f *testing.F) { fuzzOperation(f, "newton_schulz_bfloat16") }
func FuzzNewtonSchulzFloat32(f *testing.F)  { fuzzOperation(f, "newton_schulz_float32") }
func FuzzNorm(f *testing.F)                 { fuzzOperation(f, "norm") }
func FuzzQuantize(f *testing.F)             { fuzzOperation(f, "quantize") }
func FuzzScale(f *testing.F)                { fuzzOperation(f, "scale") }
func FuzzSyrkBFloat16(f *testing.F)         { fuzzOperation(f, "syrk_bfloat16") }
func FuzzSyrkFloat32(f *testing.F)          { fuzzOperation(f, "syrk_float32") }

// properties are what must hold of an operation's public door whatever the reference
// does.
type properties interface {
	properties(t *testing.T, in *input)
}

// fuzzOperation checks every variant and implementation of an operation, and its
// properties.
func fuzzOperation(f *testing.F, name string) {
	for data := range first(30, Cases(3)) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, trial := range TrialsOf(name) {
			for _, implementation := range trial.row.Implementations {
				if implementation.Available {
					require.Empty(t, trial.Check(implementation.Name, data).First)
				}
			}
			in := newInput(data)
			trial.decode(in).(properties).properties(t, in)
			if t.Failed() {
				t.Fatalf("%s %s, where %s", name, trial.row.Variant, in.description())
			}
		}
	})
}

// targets are the fuzz functions of this file by the operation that they try.
func targets(t *testing.T) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "fuzz_test.go", nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	for _, d := range file.Decls {
		function, ok := d.(*ast.FuncDecl)
		if !ok || function.Recv != nil {
			continue
		}
		ast.Inspect(function, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && fmt.Sprint(call.Fun) == "fuzzOperation" {
				name, err := strconv.Unquote(call.Args[1].(*ast.BasicLit).Value)
				require.NoError(t, err)
				found[name] = function.Name.Name
			}
			return true
		})
	}
	return found
}

func TestEveryOperationHasAFuzzTarget(t *testing.T) {
	names := map[string]bool{}
	for _, row := range kernels.Table() {
		names[row.Name] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(targets(t))))
}

var update = flag.Bool("update", false, "write the corpora of the fuzz targets")

// TestCorpora compares testdata/fuzz with what Cases has first of everything noteworthy,
// or writes it: go test ./fuzz -run TestCorpora -update.
func TestCorpora(t *testing.T) {
	for name, target := range targets(t) {
		folder := filepath.Join("testdata", "fuzz", target)
		want := corpus(name)
		require.NotEmpty(t, want)
		if *update {
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.MkdirAll(folder, 0o755))
			for file, text := range want {
				require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644))
			}
		}
		for file, text := range want {
			found, err := os.ReadFile(filepath.Join(folder, file))
			require.NoError(t, err)
			require.Equal(t, text, string(found), "%s is not the first such input; write it with -update", file)
		}
	}
}

// TestCorpus: every row has the inputs of its operation's folder, and every implementation
// takes them.
func TestCorpus(t *testing.T) {
	folders := targets(t)
	for _, trial := range Trials() {
		entries, err := os.ReadDir(filepath.Join("testdata", "fuzz", folders[trial.row.Name]))
		require.NoError(t, err)
		inputs := trial.Corpus()
		require.NotEmpty(t, inputs)
		require.Len(t, inputs, len(entries), trial.name())
		features := map[string]bool{}
		for _, data := range inputs {
			maps.Copy(features, trial.features(data))
			for _, implementation := range trial.row.Implementations {
				if implementation.Available {
					require.Empty(t, trial.Check(implementation.Name, data).First)
				}
			}
		}
		wanted := []string{"more_than_32_rows_and_columns"}
		if features["empty"] { // the input has a length
			wanted = []string{"longer_than_256", "longer_than_4096", "one_less_than_64", "one_more_than_64",
				"one_less_than_128", "one_more_than_128", "one_less_than_1024", "one_more_than_1024"}
		}
		for _, feature := range wanted {
			require.True(t, features[feature], "%s: no input with %s", trial.name(), feature)
		}
	}
}

// corpus has, by file, an input with each feature for each variant: the first, unless what
// another variant has chosen will do.
func corpus(name string) map[string]string {
	files, chosen := map[string]string{}, [][]byte{}
	for _, trial := range TrialsOf(name) {
		has := map[string]bool{}
		for _, data := range chosen {
			maps.Copy(has, trial.features(data))
		}
		for data := range first(200, Cases(4)) {
			features := trial.features(data)
			for feature := range features {
				if has[feature] {
					continue
				}
				file := feature
				for i := 2; files[file] != ""; i++ {
					file = fmt.Sprintf("%s_%d", feature, i)
				}
				files[file] = fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", data)
				chosen = append(chosen, data)
			}
			maps.Copy(has, features)
		}
	}
	return files
}

func (t Trial) features(data []byte) map[string]bool {
	in := newInput(data)
	t.decode(in)
	return in.features
}

// TestCorporaReachMainLoops: an implementation that is wrong only far from the beginning
// is found by the corpus of every row.
func TestCorporaReachMainLoops(t *testing.T) {
	for _, trial := range TrialsOf("quantize") {
		for _, at := range []int{100, 1000} {
			wrong := func(codes []uint8, scales, x []float32, f kernels.Format) int {
				poisoned := reference.Quantize(codes, scales, x, f)
				if len(codes) > at {
					codes[at] ^= 1
				}
				return poisoned
			}
			require.True(t, slices.ContainsFunc(trial.Corpus(), func(data []byte) bool {
				return trial.CheckFunc(wrong, data).Mismatches > 0
			}), "%s: code %d", trial.name(), at)
		}
	}
}
