//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tensorfile

import (
	"os"
	"syscall"
)

// lock waits for the lock of a file. Where the file system has no locks, removeUnlocked
// gets none either.
func lock(f *os.File) {
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX) == syscall.EINTR {
	}
}

func removeUnlocked(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		os.Remove(path)
	}
}

// closeAs gives a synced file its name while it is still locked.
func closeAs(f *os.File, path string, overwrite bool) error {
	if err := rename(f.Name(), path, overwrite); err != nil {
		return err
	}
	f.Close() // everything is on the disk
	return nil
}
