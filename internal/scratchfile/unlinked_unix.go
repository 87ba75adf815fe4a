//go:build unix

package scratchfile

import "os"

// openUnlinked leaves an empty file where the process is killed between its two calls.
func openUnlinked(folder string) (f *os.File, named bool, err error) {
	f, err = os.CreateTemp(folder, pattern)
	if err != nil {
		return nil, false, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, false, err
	}
	return f, false, nil
}

const pattern = ".lowbit-scratch-*.tmp"
