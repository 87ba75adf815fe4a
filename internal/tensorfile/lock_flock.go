//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tensorfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// lock waits for the lock of a file. Where the file system has no locks, removeUnlocked
// gets none either.
func lock(f *os.File) {
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX) == syscall.EINTR {
	}
}

// hold locks the file at path; not ok says that somebody else removed it before. Whoever
// removes it has it locked for a moment; somebody who has it for longer keeps it from being
// removed as well.
func hold(path string) (held *os.File, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return nil, !errors.Is(err, fs.ErrNotExist) // a file that nobody can read can nobody lock
	}
	for range 100 {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !sameFile(f) {
		f.Close()
		return nil, false
	}
	return f, true
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
