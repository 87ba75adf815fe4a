package asmcheck

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

// AVX, and BMI with POPCNT, are no features of cpufeature: they come with AVX2 and with AVX512.
const (
	avx cpufeature.Set = 1 << (31 - iota)
	bmi
)

// provided is what a row that declares these features may use.
func provided(needs cpufeature.Set) cpufeature.Set {
	if needs&(cpufeature.AVX2|cpufeature.AVX512) != 0 {
		needs |= avx | bmi
	}
	return needs
}

func names(set cpufeature.Set) string {
	list := set.Names()
	if set&avx != 0 {
		list = append(list, "avx")
	}
	if set&bmi != 0 {
		list = append(list, "bmi")
	}
	return strings.Join(list, ",")
}

// extensions are those of avo's comments.
var extensions = map[string]cpufeature.Set{
	"SSE": 0, "SSE2": 0, "CMOV": 0, "MMX+": 0, // of every amd64 processor
	"AVX": avx, "AVX2": cpufeature.AVX2, "FMA3": cpufeature.FMA, "F16C": cpufeature.F16C,
	"BMI": bmi, "BMI2": bmi, "POPCNT": bmi,
	"AVX512F": cpufeature.AVX512, "AVX512CD": cpufeature.AVX512, "AVX512BW": cpufeature.AVX512,
	"AVX512DQ": cpufeature.AVX512, "AVX512VL": cpufeature.AVX512,
	"AVX512VBMI": cpufeature.VBMI, "AVX512_BF16": cpufeature.BF16,
}

func required(names []string) (set cpufeature.Set, err error) {
	for _, name := range names {
		bits, ok := extensions[name]
		if !ok {
			return 0, fmt.Errorf("requires %s, which no feature stands for", name)
		}
		set |= bits
	}
	return set, nil
}

// rule is the first whose encodings and opcodes are an instruction's.
type rule struct {
	extension string
	needs     cpufeature.Set // 0: no feature stands for the extension
	encodings []encoding
	opcodes   *regexp.Regexp
}

func opcodes(pattern string) *regexp.Regexp { return regexp.MustCompile("^(" + pattern + ")$") }

var (
	anyVector = []encoding{vex, evex}
	anyCode   = []encoding{legacy, vex, evex}

	rules = []rule{
		{"AVX-512 BF16", cpufeature.AVX512 | cpufeature.BF16, []encoding{evex}, opcodes(`VDPBF16PS|VCVTNE2?PS2BF16`)},
		{"AVX-512 VBMI", cpufeature.AVX512 | cpufeature.VBMI, []encoding{evex}, opcodes(`VPERMB|VPERM[IT]2B|VPMULTISHIFTQB`)},
		{"AVX-512 VBMI2", 0, anyVector, opcodes(`VP(COMPRESS|EXPAND)[BW]|VPSH[LR]DV?[WDQ]`)},
		{"AVX-512 VNNI", 0, anyVector, opcodes(`VPDP[BW].*`)},
		{"AVX-512 IFMA", 0, anyVector, opcodes(`VPMADD52.*`)},
		{"AVX-512 BITALG or VPOPCNTDQ", 0, anyVector, opcodes(`VPOPCNT.|VPSHUFBITQMB`)},
		{"AVX-512 VP2INTERSECT", 0, anyVector, opcodes(`VP2INTERSECT.`)},
		{"AVX-512 ER, PF or 4FMAPS", 0, anyVector, opcodes(`VEXP2P.|VRCP28.*|VRSQRT28.*|V(GATHER|SCATTER)PF.*|V4FN?M.*|VP4DP.*`)},
		{"AVX-512 FP16", 0, []encoding{evex}, opcodes(`V(CMP|FPCLASS|GETMANT|REDUCE|RNDSCALE)[PS]H`)}, // the others are in tables of their own
		{"AVX10 or AVX-NE-CONVERT", 0, anyVector, opcodes(`.*BF16.*|V.*BF8S?|V.*HF8.*|V.*IU?BS|VCVTT.*S|VMINMAX.*|VU?COMX.*|VMOVRS.|VDPPHPS|VCVTNE.*|VBCSTNE.*`)},
		{"cryptography", 0, anyCode, opcodes(`V?AES.*|V?PCLMUL.*|V?GF2P8.*|V?SHA[0-9].*|VSM[34].*`)},
		{"ABM", 0, anyCode, opcodes(`LZCNT`)},
		{"SSE3", 0, []encoding{legacy}, opcodes(`ADDSUBP.|H(ADD|SUB)P.|MOVS[LH]DUP|MOVDDUP|LDDQU|MONITOR|MWAIT|FISTTP`)},
		{"no baseline", 0, []encoding{legacy}, opcodes(`PREFETCHW|RD(RAND|SEED|TSCP|FSBASE|GSBASE)|X(SAVE|RSTOR|BEGIN|END|TEST|ABORT).*`)},
		{"BMI or POPCNT", bmi, anyCode, opcodes(`POPCNT|ANDN|BEXTR|BLSI|BLSMSK|BLSR|TZCNT|BZHI|MULX|PDEP|PEXT|RORX|SARX|SHLX|SHRX`)},
		{"AVX-512", cpufeature.AVX512, anyCode, opcodes(`K.*`)},
		{"AVX-512", cpufeature.AVX512, []encoding{evex}, opcodes(`V.*`)},
		{"F16C", cpufeature.F16C, []encoding{vex}, opcodes(`VCVTPH2PS|VCVTPS2PH`)},
		{"FMA", cpufeature.FMA, []encoding{vex}, opcodes(`VFN?M(ADD|SUB|ADDSUB|SUBADD)(132|213|231)[PS][SD]`)},
		{"AVX2", cpufeature.AVX2, []encoding{vex}, opcodes(`VPBROADCAST.*|VPBLENDD|VPS[LR][LA]V.|VPERM(D|PS|Q|PD)|V(PERM2|INSERT|EXTRACT|BROADCAST)I128|VPMASKMOV.|VP?GATHER.*`)},
	}

	ofFloats     = opcodes(`VPTEST|VPERM2F128|VPERMILP[SD]`)
	ofIntegers   = opcodes(`VP.*|VMPSADBW|VMOVNTDQA`)
	ofOneElement = opcodes(`VBROADCASTS[SD]`)
)

// feature is what the instruction needs.
func (i *instruction) feature() (cpufeature.Set, error) {
	for _, r := range rules {
		for _, encoding := range r.encodings {
			if encoding != i.encoding || !r.opcodes.MatchString(i.op) {
				continue
			}
			if r.needs == 0 {
				return 0, fmt.Errorf("byte %d: %s is of %s, which no feature stands for", i.at, i.text, r.extension)
			}
			return r.needs, nil
		}
	}
	switch {
	case i.encoding == vex && i.wide() && ofIntegers.MatchString(i.op) && !ofFloats.MatchString(i.op):
		return cpufeature.AVX2, nil
	case i.encoding == vex && ofOneElement.MatchString(i.op) && !strings.Contains(i.text, "("):
		return cpufeature.AVX2, nil // AVX has it from memory only
	case i.encoding == vex:
		return avx, nil
	case i.Opcode>>16 == 0x0f38, i.Opcode>>16 == 0x0f3a:
		return 0, fmt.Errorf("byte %d: %s is of SSSE3 or SSE4, which no feature stands for", i.at, i.text)
	}
	return 0, nil
}

// features are what the function needs, with the first instruction that needs each.
func features(code []instruction) (set cpufeature.Set, because map[cpufeature.Set]string, err error) {
	because = map[cpufeature.Set]string{}
	for _, i := range code {
		needs, err := i.feature()
		if err != nil {
			return 0, nil, err
		}
		for bit := cpufeature.Set(1); bit != 0; bit <<= 1 {
			if needs&^set&bit != 0 {
				because[bit] = i.text
			}
		}
		set |= needs
	}
	return set, because, nil
}

// checkSuffix compares a function's name with its code.
func checkSuffix(name string, needs cpufeature.Set) error {
	beyond := needs & (cpufeature.AVX512 | cpufeature.VBMI | cpufeature.BF16)
	switch {
	case strings.HasSuffix(name, "AVX2") && beyond != 0:
		return fmt.Errorf("%s: needs %s, want no more than its name says", name, names(beyond))
	case !strings.HasSuffix(name, "AVX2") && !strings.Contains(name, "AVX512"):
		return fmt.Errorf("%s: want a name that ends with the instruction set", name)
	}
	return nil
}
