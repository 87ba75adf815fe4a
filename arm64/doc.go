// Package arm64 is the place of the kernels in arm64 assembly (NEON, BF16): functions
// only, as in package amd64, with their generator under _asm. It has none yet; on arm64
// every operation runs on its reference.
package arm64
