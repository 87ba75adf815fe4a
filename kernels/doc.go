// Package kernels holds lowbit's operations on slices: blockwise quantisation with
// dynamic and other codebooks, conversions to and from bfloat16 and binary16, norms,
// matrix products, Newton-Schulz iterations, and the steps of the optimizers. Each call
// picks, from one table, the best implementation that the processor can run; all of them
// give the bits of package reference wherever the contract says exact, for any number of
// threads, any alignment and any splitting of the input into calls.
//
// Every function whose slices must have sizes that agree checks them before it writes
// anything, and returns an error that names the operation, what was found and what was
// wanted. Slices that a call writes may not overlap others of the call unless its comment
// says so.
//
// Work is split over GOMAXPROCS goroutines that end soon after the call; an optional last
// argument of type Threads limits their number. Small inputs stay on the caller's.
package kernels
