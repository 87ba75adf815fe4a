package asmcheck

import (
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/stretchr/testify/require"
)

// The tests of this file show that the checks find what they look for.

func machineCode(t *testing.T, code string) []byte {
	bytes, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
	require.NoError(t, err)
	return bytes
}

func TestFeaturesOfInstructions(t *testing.T) {
	const avx512 = cpufeature.AVX512
	for _, test := range []struct {
		code, text string
		want       cpufeature.Set
	}{
		{"48 89 c3", "MOVQ AX, BX", 0},
		{"0f 58 d1", "ADDPS X1, X2", 0},
		{"66 0f fe d1", "PADDD X1, X2", 0},
		{"c4 e2 78 f5 cb", "BZHIL AX, BX, CX", bmi},
		{"f3 0f bc d8", "TZCNT AX, BX", bmi},
		{"f3 0f b8 d8", "POPCNTL AX, BX", bmi},
		{"c5 f8 77", "VZEROUPPER", avx},
		{"c5 e9 fe d9", "VPADDD X1, X2, X3", avx},
		{"c5 ec 58 d9", "VADDPS Y1, Y2, Y3", avx},
		{"c5 fe 6f 18", "VMOVDQU (AX), Y3", avx},
		{"c4 e2 7d 17 d1", "VPTEST Y1, Y2", avx},
		{"c4 e3 7d 04 d1 01", "VPERMILPS $1, Y1, Y2", avx},
		{"c4 e2 7d 18 10", "VBROADCASTSS (AX), Y2", avx},
		{"c4 e2 7d 18 d1", "VBROADCASTSS X1, Y2", cpufeature.AVX2},
		{"c5 ed fe d9", "VPADDD Y1, Y2, Y3", cpufeature.AVX2},
		{"c4 e2 7d 33 18", "VPMOVZXWD (AX), Y3", cpufeature.AVX2},
		{"c4 e3 69 02 d9 01", "VPBLENDD $1, X1, X2, X3", cpufeature.AVX2},
		{"c4 e2 65 92 14 88", "VGATHERDPS Y3, (AX)(Y1*4), Y2", cpufeature.AVX2},
		{"c4 e2 6d b8 d9", "VFMADD231PS Y1, Y2, Y3", cpufeature.FMA},
		{"c4 e2 7d 13 d1", "VCVTPH2PS X1, Y2", cpufeature.F16C},
		{"c4 e3 7d 1d ca 00", "VCVTPS2PH $0, Y1, X2", cpufeature.F16C},
		{"c5 f8 92 c8", "KMOVW AX, K1", avx512},
		{"62 b1 6d 28 fe d9", "VPADDD Y17, Y2, Y3", avx512},
		{"62 f2 6d 48 b8 d9", "VFMADD231PS Z1, Z2, Z3", avx512},
		{"62 f2 7d 48 13 d1", "VCVTPH2PS Y1, Z2", avx512},
		{"62 f2 7d 49 89 d1", "VPEXPANDD Z1, K1, Z2", avx512},
		{"62 f1 7c 48 51 d1", "VSQRTPS Z1, Z2", avx512},
		{"62 f2 6d 48 8d d9", "VPERMB Z1, Z2, Z3", avx512 | cpufeature.VBMI},
		{"62 f2 6d 48 75 d9", "VPERMI2B Z1, Z2, Z3", avx512 | cpufeature.VBMI},
		{"62 f2 6e 48 52 d9", "VDPBF16PS Z1, Z2, Z3", avx512 | cpufeature.BF16},
	} {
		code, err := decode(machineCode(t, test.code))
		require.NoError(t, err, test.text)
		require.Len(t, code, 1, test.text)
		require.Equal(t, test.text, plain(code[0].text))
		needs, err := code[0].feature()
		require.NoError(t, err)
		require.Equal(t, names(test.want), names(needs), test.text)
	}
}

func TestInstructionsWithoutAFeature(t *testing.T) {
	for code, want := range map[string]string{
		"62 f2 7d 49 63 ca":    "VPCOMPRESSB Z1, K1, Z2 is of AVX-512 VBMI2",
		"62 f2 6d 48 50 d9":    "VPDPBUSD Z1, Z2, Z3 is of AVX-512 VNNI",
		"c4 e2 6d 50 d9":       "VPDPBUSD Y1, Y2, Y3 is of AVX-512 VNNI",
		"62 f2 ed 48 b4 d9":    "VPMADD52LUQ Z1, Z2, Z3 is of AVX-512 IFMA",
		"62 f2 7d 48 55 d1":    "VPOPCNTD Z1, Z2 is of AVX-512 BITALG or VPOPCNTDQ",
		"62 f2 6d 48 cf d9":    "VGF2P8MULB Z1, Z2, Z3 is of cryptography",
		"62 f2 6d 48 dc d9":    "VAESENC Z1, Z2, Z3 is of cryptography",
		"c4 e2 7a 72 d9":       "VCVTNEPS2BF16 X1, X3 is of AVX10 or AVX-NE-CONVERT",
		"62 f5 6c 48 58 d9":    "byte 0, 62 f5 6c 48 58 d9: an instruction of FP16 or later",
		"f3 0f bd d8":          "LZCNT AX, BX is of ABM",
		"66 0f 38 00 d1":       "PSHUFB X1, X2 is of SSSE3 or SSE4",
		"f2 0f 7c d1":          "HADDPS X1, X2 is of SSE3",
		"c5 ed fe":             "byte 0, c5 ed fe: cut off",
		"c5 f8 77 c5 f8 77 c3": "", // a bug of x86asm is worked around
	} {
		list, err := decode(machineCode(t, code))
		if err == nil {
			_, _, err = features(list)
		}
		if want == "" {
			require.NoError(t, err)
			require.Len(t, list, 3)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestBytesAndTheirComments(t *testing.T) {
	const header = "// Requires: AVX\nTEXT ·F(SB), NOSPLIT, $0-8\n\tVMOVUPS (AX), Y0 // a comment\n"
	for body, want := range map[string]string{
		"\tLONG $0x486ef262; BYTE $0x52; BYTE $0xd9 // VDPBF16PS Z1, Z2, Z3":      "",
		"\t// VDPBF16PS Z1, Z2, Z3\n\tLONG $0x486ef262; WORD $0xd952":             "",
		"\tQUAD $0x00014052486ef262 // VDPBF16PS 64(AX), Z2, Z0":                  "found.s:4: byte 7, 00: cut off",
		"\tLONG $0x486ef262; WORD $0x4052; BYTE $1 // VDPBF16PS 0x40(AX), Z2, Z0": "",
		"\tLONG $0x486ef262; BYTE $0x52; BYTE $0xd9 // VDPBF16PS Z1, Z2, Z4":      "found.s:4: 62 f2 6e 48 52 d9 are VDPBF16PS Z1, Z2, Z3, want VDPBF16PS Z1, Z2, Z4",
		"\tLONG $0x486ef262; BYTE $0x52; BYTE $0xd9 // VDPBF16PS Z2, Z1, Z3":      "want VDPBF16PS Z2, Z1, Z3",
		"\tLONG $0x486ef262; BYTE $0x52; BYTE $0xd9 // VFMADD231PS Z1, Z2, Z3":    "want VFMADD231PS Z1, Z2, Z3",
		"\tLONG $0x486ef262; BYTE $0x52; BYTE $0xd9":                              "found.s:4: bytes without the text of an instruction",
		"\tLONG $0x486ef262; BYTE $0x52 // VDPBF16PS Z1, Z2, Z3":                  "found.s:4: byte 0, 62 f2 6e 48 52: cut off",
		"\tWORD $0x1ffff // MOVQ AX, BX":                                          "value out of range",
		"\tBYTE $0x90; NOP // NOP":                                                `found " NOP"`,
		"\tBYTE $0x90; BYTE $0x90 // NOP":                                         "90 90 are 2 instructions, want one",
	} {
		functions, err := parseSource("found.s", header+body+"\n\tRET\n")
		if err == nil {
			require.Equal(t, []string{"AVX"}, functions[0].requires)
			require.Len(t, functions[0].encoded, 1)
			err = functions[0].encoded[0].check()
		}
		if want == "" {
			require.NoError(t, err, body)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestOpcodesOfSourceAndCode(t *testing.T) {
	code, err := decode(machineCode(t, "c5 fc 10 18  48 89 c3  62 f1 7c 48 51 d1  c5 f8 77  c3"))
	require.NoError(t, err)
	for text, want := range map[string]string{
		"VMOVUPS VSQRTPS VZEROUPPER":         "",
		"VMOVUPS VSQRTPS.RZ_SAE VZEROUPPER":  "",
		"VMOVUPS VSUBPS VZEROUPPER":          "F: vector instruction 1 is VSUBPS in the source but VSQRTPS Z1, Z2 in the machine code",
		"VMOVUPS VSQRTPS":                    "F: 3 vector instructions in the machine code, want 2 as in the source",
		"VMOVUPS VSQRTPS VZEROUPPER VMOVUPS": "F: vector instruction 3 is VMOVUPS in the source but nothing in the machine code",
	} {
		err := (&source{name: "F", vector: strings.Fields(text)}).checkOpcodes(code)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

func TestUpperHalves(t *testing.T) {
	const (
		load, wide, zero, ret = "c5 fc 10 18 ", "62 f1 7c 48 11 18 ", "c5 f8 77 ", "c3 "
		scalar                = "c5 e9 fe d9 " // VPADDD X1, X2, X3
	)
	for code, want := range map[string]string{
		ret:                                "",
		scalar + ret:                       "",
		load + zero + ret:                  "",
		load + zero + scalar + ret:         "",
		load + ret:                         "byte 4: RET without VZEROUPPER",
		wide + ret:                         "byte 6: RET without VZEROUPPER",
		load + zero + wide + ret:           "byte 13: RET without VZEROUPPER",
		"74 01 " + ret + load + zero + ret: "",
		load + "74 03 " + zero + ret:       "byte 9: RET without VZEROUPPER", // JE past it
		load + "74 04 " + zero + ret + zero + ret: "",
		"eb 04 " + zero + ret + load + "eb f6 ":   "", // back to VZEROUPPER
		"eb 04 " + zero + ret + load + "eb f9 ":   "byte 5: RET without VZEROUPPER",
		"eb 05 " + zero + ret + load:              "goes to no instruction",
		"ff e0 ":                                  "goes to no instruction",
		load + zero:                               "runs past its end",
	} {
		list, err := decode(machineCode(t, code))
		require.NoError(t, err)
		err = checkUpper(list)
		if want == "" {
			require.NoError(t, err, code)
		} else {
			require.ErrorContains(t, err, want, code)
		}
	}
}

func TestNamesAndFeatures(t *testing.T) {
	const avx512 = cpufeature.AVX512
	require.NoError(t, checkSuffix("FAVX2", avx|bmi|cpufeature.AVX2|cpufeature.FMA|cpufeature.F16C))
	require.NoError(t, checkSuffix("FAVX512", avx512|cpufeature.VBMI))
	require.NoError(t, checkSuffix("FAVX512BF16", avx512|cpufeature.BF16))
	require.EqualError(t, checkSuffix("FAVX2", cpufeature.AVX2|avx512), "FAVX2: needs avx512, want no more than its name says")
	require.EqualError(t, checkSuffix("F", 0), "F: want a name that ends with the instruction set")
	_, err := required([]string{"AVX", "AVX512VBMI2"})
	require.EqualError(t, err, "requires AVX512VBMI2, which no feature stands for")
}

const rowsSource = `package kernels

import (
	"amd64"
	"cpufeature"
)

type Impl[F any] struct {
	Name  string
	Needs cpufeature.Set
	Func  F
}

type f func()

func avx2[F any](f F) []Impl[F] {
	return []Impl[F]{{Name: "amd64/avx2", Needs: cpufeature.AVX2 | cpufeature.FMA, Func: f}}
}

func avx512[F any](name string, also cpufeature.Set, f F, others []Impl[F]) []Impl[F] {
	return append([]Impl[F]{{Name: "amd64/" + name, Needs: cpufeature.AVX512 | also, Func: f}}, others...)
}

func plain() { amd64.AVX2() }

func wrap[F any](step F) f { return func() { run(step) } }
func run(any)              {}

type part struct{}

func (part) Do()     { amd64.AVX2() }
func (*part) other() {}

var engine = struct{ block func() }{block: amd64.AVX512}

func (p *part) engine() { engine.block() }

var OpOther = avx2[f](plain)

%s
`

// TestRows: each case is a list of one row, which stands for AVX-512's in kernels.
func TestRows(t *testing.T) {
	functions := map[string]uses{
		"AVX2":   {cpufeature.AVX2, map[cpufeature.Set]string{avx: "VZEROUPPER", cpufeature.AVX2: "VPADDD Y1, Y2, Y3"}},
		"AVX512": {cpufeature.AVX512, map[cpufeature.Set]string{bmi: "BZHIL AX, BX, CX", cpufeature.AVX512: "VPADDD Z1, Z2, Z3"}},
		"VBMI":   {cpufeature.AVX512 | cpufeature.VBMI, map[cpufeature.Set]string{cpufeature.VBMI: "VPERMB Z1, Z2, Z3"}},
	}
	for _, test := range []struct{ row, want string }{
		{`avx512[f]("avx512", 0, amd64.AVX512, nil)`, ""},
		{`avx512[f]("avx512", 0, amd64.AVX512, avx2[f](plain))`, ""},
		{`avx512[f]("avx512", 0, func() { engine.block() }, nil)`, ""},
		{`avx512[f]("avx512", 0, func() { _ = OpOther; amd64.AVX512() }, nil)`, ""},
		{`avx512[f]("avx512vbmi", cpufeature.VBMI, amd64.VBMI, nil)`, ""},
		{`avx512[f]("avx512", 0, amd64.VBMI, nil)`, "amd64/avx512 declares avx512, but VBMI needs vbmi for VPERMB Z1, Z2, Z3"},
		{`avx512[f]("avx512", 0, wrap(amd64.VBMI), nil)`, "needs vbmi"},
		{`avx512[f]("avx512", 0, plain, nil)`, "amd64/avx512 declares avx512, but AVX2 needs avx2 for VPADDD Y1, Y2, Y3"},
		{`avx512[f]("avx512", cpufeature.AVX2, plain, nil)`, ""},
		{`avx512[f]("avx512", 0, func() { amd64.AVX512(); plain() }, nil)`, "but AVX2 needs avx2"},
		{`avx512[f]("avx512", 0, func() { run(part{}) }, nil)`, "but AVX2 needs avx2"},
		{`avx512[f]("avx512", 0, amd64.None, nil)`, "None has no assembly"},
		{`avx2[f](amd64.AVX512)`, "amd64/avx2 declares avx2,fma, but AVX512 needs avx512 for VPADDD Z1, Z2, Z3"},
		{`func() []Impl[f] { chosen := amd64.AVX512; return avx2[f](chosen) }()`, "but AVX512 needs avx512"},
		{`func() []Impl[f] { for _, each := range []f{amd64.AVX512} { return avx2[f](each) }; return nil }()`, "but AVX512 needs avx512"},
		{`avx512[f]("avx512", cpufeature.Set(len("a")), amd64.AVX512, nil)`, ""},
		{`avx512[f]("avx512", some(), amd64.AVX512, nil)`, "not put together from constants and parameters"},
	} {
		rows, err := syntheticRows(t, "var fast = "+test.row+"\n\nfunc some() cpufeature.Set { return 0 }")
		for _, row := range rows {
			if err == nil {
				err = row.check(functions)
			}
		}
		if test.want == "" {
			require.NoError(t, err, test.row)
		} else {
			require.ErrorContains(t, err, test.want, test.row)
		}
	}
}

// TestRowsOfHelpers: the arguments of one call do not count for another's rows.
func TestRowsOfHelpers(t *testing.T) {
	rows, err := syntheticRows(t, `
func pair(also cpufeature.Set, first, second f) [2][]Impl[f] {
	return [2][]Impl[f]{avx512("avx512", also, wrap(first), nil), avx512("avx512", also, wrap(second), nil)}
}

var (
	plainPair = pair(0, amd64.AVX512, amd64.AVX2)
	vbmiPair  = pair(cpufeature.VBMI, amd64.VBMI, amd64.AVX512)
)`)
	require.NoError(t, err)
	found := []string{}
	for _, row := range rows {
		found = append(found, fmt.Sprint(row.needs, row.calls))
	}
	require.ElementsMatch(t, []string{"avx2,fma [AVX2]", "avx512 [AVX512]", "avx512 [AVX2]", "avx512,vbmi [VBMI]", "avx512,vbmi [AVX512]"}, found)
}

// syntheticRows are those of a small package kernels with this text.
func syntheticRows(t *testing.T, text string) ([]implementation, error) {
	fset, packages := token.NewFileSet(), imported{}
	parse := func(name, text string) []*ast.File {
		file, err := parser.ParseFile(fset, name+".go", text, 0)
		require.NoError(t, err)
		return []*ast.File{file}
	}
	for name, text := range map[string]string{
		"amd64":      "package amd64\n\nfunc AVX2()\nfunc AVX512()\nfunc VBMI()\nfunc None()",
		"cpufeature": fmt.Sprintf("package cpufeature\n\ntype Set uint32\n\nconst (\n\tAVX2 Set = %d\n\tFMA Set = %d\n\tAVX512 Set = %d\n\tVBMI Set = %d\n)", cpufeature.AVX2, cpufeature.FMA, cpufeature.AVX512, cpufeature.VBMI),
	} {
		p, err := (&types.Config{}).Check(name, fset, parse(name, text), nil)
		require.NoError(t, err)
		packages[name] = p
	}
	k, err := newKernels(fset, "kernels", "amd64", parse("kernels", fmt.Sprintf(rowsSource, text)), packages)
	require.NoError(t, err)
	return k.implementations()
}

type imported map[string]*types.Package

func (m imported) Import(path string) (*types.Package, error) { return m[path], nil }
