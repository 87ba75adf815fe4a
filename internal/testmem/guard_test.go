//go:build darwin || freebsd || linux || netbsd || openbsd

package testmem

import (
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestGuardPages(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	b := New[float32](t, 100)
	require.Panics(t, func() { read(&b.AtEnd(100)[99], 4) })
	require.Panics(t, func() { read(&b.AtStart(100)[0], -1) })
}

var readByte byte // kept, or the read would be removed

func read(p *float32, offset int) {
	readByte = *(*byte)(unsafe.Add(unsafe.Pointer(p), offset))
}
