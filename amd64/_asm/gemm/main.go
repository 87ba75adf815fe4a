// Command gemm writes the matrix-product kernels of package amd64: the same bodies for
// each instruction set, from its vector width and the tiles of its blocks.
package main

import (
	"fmt"
	"os"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	for _, t := range []tier{avx2, avx512} {
		write("gemm_"+t.file, t, func(g *generator) {
			g.products(plain)
			g.line(plain)
			g.normalize(plain)
			g.transposeWords()
			g.mirrorBlock()
			g.copyRows()
			g.peak(plain)
		})
		write("gemm_bf16_"+t.file, t, func(g *generator) {
			g.products(paired, rounded)
			g.line(paired)
			g.normalize(rounded)
			g.widenTransposed()
			g.widenRows()
			g.narrowRows()
		})
	}
	t := avx512
	t.name = "AVX512BF16"
	write("gemm_avx512bf16", t, func(g *generator) {
		g.products(dotted, dottedRounded)
		g.normalize(dottedRounded)
		g.transposePairs()
		g.pairTransposed()
		g.pairRows()
		g.unpairRows()
		g.peak(dotted)
	})
}

func write(name string, t tier, generate func(*generator)) {
	if err := tryWrite(name, t, generate); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func tryWrite(name string, t tier, generate func(*generator)) error {
	g := &generator{Context: build.NewContext(), tier: t}
	g.ConstraintExpr("!purego")
	generate(g)
	file, err := g.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
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
		if err := os.WriteFile("../"+name+suffix, encodeDots(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}
