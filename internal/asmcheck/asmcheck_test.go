//go:build !purego

// Package asmcheck checks the assembly of package amd64 as a machine reads it: that bytes
// written by hand are what their comments say, and that no implementation of the table uses
// an instruction beyond the features that its row declares.
package asmcheck

import (
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	table "github.com/lowbit-go/lowbit/kernels"
	"github.com/stretchr/testify/require"
)

const (
	module   = "github.com/lowbit-go/lowbit"
	assembly = module + "/amd64"
)

func TestHandEncodedInstructions(t *testing.T) {
	for _, s := range readSources(t, "../../amd64/*.s") {
		for _, e := range s.encoded {
			require.NoError(t, e.check())
		}
	}
}

// TestFunctions compares each function's machine code with its source, with what the
// generator's comment says that it requires, and with its name.
func TestFunctions(t *testing.T) {
	sources := readSources(t, "../../amd64/*.s")
	machine := assemble(t, sources)
	for _, s := range sources {
		code := machine[s.name]
		require.NoError(t, s.checkOpcodes(code))
		needs, because, err := features(code)
		require.NoError(t, err, s.name)
		requires, err := required(s.requires)
		require.NoError(t, err, s.name)
		for _, e := range s.encoded {
			byHand, err := decode(e.code)
			require.NoError(t, err)
			more, _, err := features(byHand)
			require.NoError(t, err, e.where)
			requires |= more
		}
		require.Equalf(t, names(requires), names(needs), "%s: features by its comment, and by its code %v", s.name, because)
		require.NoError(t, checkSuffix(s.name, needs))
		require.NoError(t, checkUpper(code), s.name)
	}
}

func TestRowsDeclareTheirFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the table of this architecture has no rows of amd64")
	}
	k := readKernels(t, module+"/kernels", assembly)
	rows, err := k.implementations()
	require.NoError(t, err)
	sources := readSources(t, "../../amd64/*.s")
	needs := map[string]uses{}
	for name, code := range assemble(t, sources) {
		set, because, err := features(code)
		require.NoError(t, err, name)
		needs[name] = uses{set, because}
	}
	declared := map[string]bool{}
	unreached := k.named()
	for _, row := range rows {
		if row.name == "reference" {
			continue
		}
		declared[row.name+" "+row.needs.String()] = true
		require.NotEmptyf(t, row.calls, "%s, %s: an implementation without assembly", row.where, row.name)
		require.NoError(t, row.check(needs))
		for _, name := range row.calls {
			delete(unreached, name)
		}
	}
	require.Empty(t, unreached, "functions that package kernels names but no row reaches")
	inTable := map[string]bool{}
	for _, row := range table.Table() {
		for _, i := range row.Implementations {
			if i.Name != "reference" {
				inTable[i.Name+" "+strings.Join(i.Needs, ",")] = true
			}
		}
	}
	require.Equal(t, inTable, declared, "implementations of the table, and as found in the source")
}

// assemble links every function and decodes what comes out.
func assemble(t *testing.T, sources []source) map[string][]instruction {
	dir := t.TempDir()
	program := "package main\n\nimport \"" + assembly + "\"\n\nvar functions = []any{\n"
	for _, s := range sources {
		program += "\tamd64." + s.name + ",\n"
	}
	program += "}\n\nfunc main() { println(len(functions)) }\n"
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o666))
	goCommand(t, "build", "-o", binary, file)

	f, err := elf.Open(binary)
	require.NoError(t, err)
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	require.NoError(t, err)
	symbols, err := f.Symbols()
	require.NoError(t, err)
	named := map[uint64]string{}
	for _, s := range symbols {
		named[s.Value] = s.Name
	}
	machine := map[string][]instruction{}
	for _, s := range symbols {
		name, ours := strings.CutPrefix(s.Name, assembly+".")
		name, isAssembly := strings.CutSuffix(name, ".abi0") // else the wrapper that Go calls
		if !ours || !isAssembly || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		machine[name], err = decode(code[s.Value-text.Addr:][:s.Size])
		require.NoError(t, err, name)
		targets, err := calls(machine[name])
		require.NoError(t, err, name)
		for _, at := range targets {
			callee := named[s.Value+uint64(at)]
			require.Truef(t, strings.HasPrefix(callee, "runtime.morestack"), "%s calls %s, want only the growing of its stack", name, callee)
		}
	}
	for _, s := range sources {
		require.Containsf(t, machine, s.name, "not in the program")
	}
	return machine
}
