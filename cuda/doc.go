// Package cuda is the place of the CUDA backend: an import of it will load the driver
// at run time, without cgo, and add its implementations to the table of package
// kernels, after checking each against that operation's known answers. It has none yet.
package cuda
