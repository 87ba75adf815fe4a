// Package metal is the place of the Metal backend: an import of it will load the
// framework at run time, without cgo, and add its implementations to the table of
// package kernels, after checking each against that operation's known answers. It has
// none yet.
package metal
