package scratchfile

import (
	"crypto/rand"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

func open(folder string) (f *os.File, named bool, err error) {
	path := filepath.Join(folder, ".lowbit-scratch-"+rand.Text()+".tmp")
	const temporary = os.O_RDWR | os.O_CREATE | os.O_EXCL | windows.FILE_FLAG_DELETE_ON_CLOSE
	f, err = os.OpenFile(path, temporary, 0o600)
	return f, false, err
}

func reserve(*os.File, int64) error { return nil }
