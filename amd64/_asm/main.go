// Command _asm writes the assembly files of package amd64 and their Go stubs.
package main

import (
	"fmt"
	"os"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/printer"
)

var files = []struct {
	name     string
	generate func(*generator)
}{
	{"round_avx2", roundAVX2},
	{"round_avx512", roundAVX512},
	{"float16_avx2", float16AVX2},
	{"float16_avx512", float16AVX512},
	{"split_avx2", splitAVX2},
	{"stochastic_avx2", stochasticAVX2},
	{"split_avx512", splitAVX512},
	{"stochastic_avx512", stochasticAVX512},
	{"sums_avx2", sumsAVX2},
	{"sums_avx512", sumsAVX512},
	{"accumulate_avx2", accumulateAVX2},
	{"accumulate_avx512", accumulateAVX512},
	{"muon_avx2", muonAVX2},
	{"muon_avx512", muonAVX512},
	{"factored_avx2", factoredAVX2},
	{"factored_avx512", factoredAVX512},
	{"factored_small_avx512", factoredSmallAVX512},
	{"quantize_avx2", quantizeAVX2},
	{"quantize_decades_avx2", quantizeDecadesAVX2},
	{"quantize_avx512", quantizeAVX512},
	{"dequantize_avx2", dequantizeAVX2},
	{"dequantize_avx512", dequantizeAVX512},
	{"quantize4_avx2", quantize4AVX2},
	{"dequantize4_avx2", dequantize4AVX2},
	{"quantize4_avx512", quantize4AVX512},
	{"dequantize4_avx512", dequantize4AVX512},
	{"adamw_float32_avx2", adamWFloat32AVX2},
	{"adamw_bf16_avx2", adamWBF16AVX2},
	{"adamw_float32_avx512", adamWFloat32AVX512},
	{"adamw_bf16_avx512", adamWBF16AVX512},
	{"adamw_optax_avx2", adamWOptaxAVX2},
	{"adamw_optax_avx512", adamWOptaxAVX512},
	{"adamw_8bit_avx2", adamW8bitAVX2},
	{"adamw_8bit_avx512vbmi", adamW8bitAVX512VBMI},
	{"adamw_4bit_avx512", adamW4bitAVX512},
	{"stream_avx2", streamAVX2},
	{"stream_avx512", streamAVX512},
}

func main() {
	for _, f := range files {
		if err := write(f.name, f.generate); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", f.name, err)
			os.Exit(1)
		}
	}
}

func write(name string, generate func(*generator)) error {
	g := &generator{Context: build.NewContext(), constants: map[string]mem{}}
	g.ConstraintExpr("!purego")
	generate(g)
	file, err := g.Result()
	if err != nil {
		return err
	}
	if err := compile.Execute(file); err != nil {
		return err
	}
	config := printer.Config{Name: "the module in _asm", Pkg: "amd64"}
	for suffix, p := range map[string]printer.Printer{
		"_amd64.s":  printer.NewGoAsm(config),
		"_amd64.go": printer.NewStubs(config),
	} {
		text, err := p.Print(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile("../"+name+suffix, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}
