//go:build unix

package tensorfile

import (
	"errors"
	"os"
	"syscall"
)

// syncFolder makes a rename in the folder last. Some file systems cannot sync a folder, and say so.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
