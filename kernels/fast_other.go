package kernels

var fast implementations
