package cpufeature

import "github.com/klauspost/cpuid/v2"

func detect() (set Set) {
	for feature, ids := range map[Set][]cpuid.FeatureID{
		AVX2:   {cpuid.AVX2, cpuid.BMI1, cpuid.BMI2, cpuid.POPCNT},
		FMA:    {cpuid.FMA3},
		F16C:   {cpuid.F16C},
		AVX512: {cpuid.AVX512F, cpuid.AVX512CD, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.BMI1, cpuid.BMI2, cpuid.POPCNT},
		VBMI:   {cpuid.AVX512VBMI},
		BF16:   {cpuid.AVX512BF16},
	} {
		if cpuid.CPU.Supports(ids...) {
			set |= feature
		}
	}
	return set
}
