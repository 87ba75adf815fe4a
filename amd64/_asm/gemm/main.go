// Command gemm writes the matrix-product kernels of package amd64: the same bodies for
// each instruction set, from its vector width and the way it splits the rows of a block.
package main

import (
	"fmt"
	"os"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	for _, t := range []tier{avx2} {
		if err := write("gemm_"+t.file, t, (*generator).block, (*generator).normalize, (*generator).transpose, (*generator).rows, (*generator).peak); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", t.name, err)
			os.Exit(1)
		}
		t.name, t.bfloat16 = "BF16"+t.name, true
		if err := write("gemm_bf16_"+t.file, t, (*generator).block, (*generator).normalize); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", t.name, err)
			os.Exit(1)
		}
	}
}

func write(name string, t tier, functions ...func(*generator)) error {
	g := &generator{Context: build.NewContext(), tier: t}
	g.ConstraintExpr("!purego")
	for _, function := range functions {
		function(g)
	}
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
		if err := os.WriteFile("../"+name+suffix, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}
