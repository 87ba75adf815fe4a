package cpufeature

import "github.com/klauspost/cpuid/v2"

// FastBF16Dot tells whether VDPBF16PS does more multiply-adds than float32 FMA: twice as
// many on AMD's processors that have it, but half as many on Intel's.
var FastBF16Dot = cpuid.CPU.VendorID == cpuid.AMD
