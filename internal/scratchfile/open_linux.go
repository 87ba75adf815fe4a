package scratchfile

import (
	"os"

	"golang.org/x/sys/unix"
)

func open(folder string) (f *os.File, named bool, err error) {
	f, err = os.OpenFile(folder, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil { // some file systems have no files without names; whatever else it was, the other way says too
		return openUnlinked(folder)
	}
	return f, false, nil
}

func reserve(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch err {
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL: // the file system cannot reserve
			return nil
		}
		return err
	}
}
