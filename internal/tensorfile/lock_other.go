//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package tensorfile

import (
	"fmt"
	"os"
	"runtime"
)

func lock(*os.File) {}

// hold does nothing: Windows replaces no open file, and this one has two names.
func hold(string) (*os.File, bool) { return nil, true }

// removeUnlocked relies on Windows, which removes no file that a process has open.
func removeUnlocked(path string) {
	if runtime.GOOS == "windows" {
		os.Remove(path)
	}
}

// closeAs gives a synced file its name once it is closed, since Windows renames no open
// file. A process that sweeps in the moment between makes that an error.
func closeAs(f *os.File, path string, overwrite bool) error {
	if err := f.Close(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return rename(f.Name(), path, overwrite)
}
