//go:build !unix && !windows

package scratchfile

import "os"

func open(folder string) (f *os.File, named bool, err error) {
	f, err = os.CreateTemp(folder, ".lowbit-scratch-*.tmp")
	return f, true, err
}

func reserve(*os.File, int64) error { return nil }
