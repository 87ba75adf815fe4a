// Package amd64 holds the kernels that are written in amd64 assembly: functions only,
// each equal to the Go loop in its comment, bit for bit (any NaN being any NaN unless
// the contract gives its bits).
//
// A function's suffix is what it needs: AVX2 functions need AVX2 and FMA; AVX512 ones the F,
// CD, BW, DQ and VL sets of AVX-512, and no AVX2; AVX512BF16 ones its BF16 set too. They
// check nothing: slices have the lengths that the comments give, and only what the
// comments say may overlap. They cannot be preempted while they run, so callers split long
// work; the comments say how many elements take about 100 µs. The race detector does not
// see what they read and write.
package amd64

//go:generate go -C _asm run .
//go:generate go -C _asm run ./gemm
