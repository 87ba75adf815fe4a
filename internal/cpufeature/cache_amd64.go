package cpufeature

import "github.com/klauspost/cpuid/v2"

// L1Data is the size of a core's first-level cache in bytes, or negative where the processor
// does not say. A way of it has 4096.
var L1Data = cpuid.CPU.Cache.L1D
