//go:build race

// Package race tells the race detector what assembly reads and writes. Without the
// detector it does nothing.
package race

import (
	"runtime"
	"unsafe"
)

// Enabled tells whether there is a detector to tell.
const Enabled = true

// Read says that the slice is read.
func Read[T any](s []T) {
	if len(s) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&s[0]), len(s)*int(unsafe.Sizeof(s[0])))
	}
}

// Write says that the slice is written.
func Write[T any](s []T) {
	if len(s) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&s[0]), len(s)*int(unsafe.Sizeof(s[0])))
	}
}
