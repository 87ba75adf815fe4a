package cpufeature

import "github.com/klauspost/cpuid/v2"

// Every arm64 processor that Go runs on has NEON.
func detect() Set {
	if cpuid.CPU.Supports(cpuid.BF16) {
		return NEON | BF16
	}
	return NEON
}
