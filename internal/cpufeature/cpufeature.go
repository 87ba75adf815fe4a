// Package cpufeature says which instruction sets this processor has and which of them
// the user has turned off.
package cpufeature

import (
	"fmt"
	"os"
	"strings"
)

// Set is a set of features.
type Set uint32

const (
	AVX2 Set = 1 << iota // with BMI1, BMI2 and POPCNT
	FMA
	F16C
	AVX512 // F, CD, BW, DQ and VL, with BMI1, BMI2 and POPCNT
	VBMI   // AVX512_VBMI
	BF16   // AVX512_BF16, or arm64's BF16
	NEON
)

var names = []string{"avx2", "fma", "f16c", "avx512", "vbmi", "bf16", "neon"}

var disabled, disableErr = Parse(os.Getenv("LOWBIT_DISABLE"))

// Detected are the features of this processor; Available those of them that
// LOWBIT_DISABLE does not name. Both are constant.
var (
	Detected  = detect()
	Available = Detected &^ disabled
)

// Disabled are the features that LOWBIT_DISABLE names. The error says which of its
// words are no feature.
func Disabled() (Set, error) { return disabled, disableErr }

// Has tells whether s contains every feature of other.
func (s Set) Has(other Set) bool { return s&other == other }

// Names lists the features, in a fixed order.
func (s Set) Names() []string {
	list := []string{}
	for i, name := range names {
		if s&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

func (s Set) String() string { return strings.Join(s.Names(), ",") }

// Parse reads a comma-separated list of features. Unknown words are an error; the
// known ones are returned with it.
func Parse(list string) (set Set, err error) {
	for word := range strings.SplitSeq(list, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		bit := Set(0)
		for i, name := range names {
			if word == name {
				bit = 1 << i
			}
		}
		if bit == 0 && word != "" {
			err = fmt.Errorf("unknown CPU feature %q, want some of %s", word, strings.Join(names, ", "))
		}
		set |= bit
	}
	return set, err
}
