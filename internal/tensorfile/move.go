package tensorfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Temporary is a name beside path for a file that Move will give the name of path. The
// next Create of path removes it if a killed process left it.
func Temporary(path string) string {
	path = target(path)
	return filepath.Join(filepath.Dir(path), temporaryPrefix(path)+rand.Text()+".tmp")
}

// A Moved file has a new name. One of its methods has to be called.
type Moved struct{ path, replaced string }

// Move renames a whole, synced file beside path to path, under the rules of Create.
func Move(from, path string, overwrite bool) (*Moved, error) {
	path = target(path)
	if err := checkOutput(path, overwrite); err != nil {
		return nil, err
	}
	m := &Moved{path: path}
	if overwrite {
		kept := Temporary(path)
		err := os.Link(path, kept)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file system without links, or another's file
			err = os.Rename(path, kept)
		}
		switch {
		case err == nil:
			m.replaced = kept
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if err := rename(from, path, overwrite); err != nil {
		if m.replaced != "" {
			err = errors.Join(err, m.Undo())
		}
		return nil, err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, m.Undo())
	}
	return m, nil
}

// Keep forgets the file that was replaced.
func (m *Moved) Keep() {
	if m.replaced != "" {
		os.Remove(m.replaced)
	}
}

// Undo gives the file that was replaced its name again, or nobody.
func (m *Moved) Undo() error {
	if m.replaced == "" {
		return os.Remove(m.path)
	}
	return os.Rename(m.replaced, m.path)
}

// target is the file that a symbolic link stands for.
func target(path string) string {
	if t, err := filepath.EvalSymlinks(path); err == nil {
		return t
	}
	return path
}

// rename never replaces a file that another process has just made, unless it may, or the
// file system has no links.
func rename(from, to string, overwrite bool) error {
	if !overwrite {
		err := os.Link(from, to)
		if err == nil {
			return os.Remove(from)
		}
		if errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "create", Path: to, Err: fs.ErrExist}
		}
	}
	return os.Rename(from, to)
}
