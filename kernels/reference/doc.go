// Package reference is the numerics contract in plain Go. Every other implementation of
// an operation, on any processor or device, is checked against the function here.
//
// Its functions check nothing: package kernels is the public door, which checks sizes
// once and then dispatches to the best implementation.
package reference
