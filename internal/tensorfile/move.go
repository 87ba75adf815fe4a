package tensorfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Place has a file written under another name in the same folder, whole and synced, and
// gives it the name path, under the rules of Create. One of the methods of what it returns
// has to be called. Errors name path.
func Place(path string, overwrite bool, write func(temporary string) error) (*Moved, error) {
	path = target(path)
	for {
		temporary := temporaryPath(path)
		err := write(temporary)
		if err != nil {
			return nil, renamed(err, temporary, path)
		}
		moved, err := move(temporary, path, overwrite)
		if err == nil {
			return moved, nil
		}
		// Nobody locks a file between its two names, so that another process can have taken it for abandoned.
		if os.Remove(temporary) == nil || !errors.Is(err, fs.ErrNotExist) {
			return nil, renamed(err, temporary, path)
		}
	}
}

// renamed says of a file what an error says of it under another name.
func renamed(err error, from, to string) error {
	return &renamedError{strings.ReplaceAll(err.Error(), from, to), err}
}

type renamedError struct {
	text string
	err  error
}

func (e *renamedError) Error() string { return e.text }

func (e *renamedError) Unwrap() error { return e.err }

// temporaryPath is a name beside path. The next Create of path removes what a killed process
// left under it.
func temporaryPath(path string) string {
	return filepath.Join(filepath.Dir(path), temporaryPrefix(path)+rand.Text()+".tmp")
}

// Moved is a file that has a new name.
type Moved struct {
	path     string
	replaced string   // the name that the file which had the name has now, or none
	held     *os.File // that file, locked so that nobody takes it for abandoned, or nil
}

func move(from, path string, overwrite bool) (*Moved, error) {
	if err := checkOutput(path, overwrite); err != nil {
		return nil, err
	}
	m := &Moved{path: path}
	if overwrite {
		if err := m.keepReplaced(); err != nil {
			return nil, err
		}
	}
	if err := rename(from, path, overwrite); err != nil {
		if _, missing := os.Lstat(path); missing == nil {
			m.Keep()
			return nil, err
		}
		return nil, errors.Join(err, m.Undo())
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, m.Undo())
	}
	return m, nil
}

// keepReplaced gives the file at path, if there is one, a name more.
func (m *Moved) keepReplaced() error {
	for {
		kept := temporaryPath(m.path)
		err := os.Link(m.path, kept)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file system without links, or another's file
			err = os.Rename(m.path, kept)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		held, ok := hold(kept)
		if ok {
			m.replaced, m.held = kept, held
			return nil
		}
	}
}

// Keep forgets the file that was replaced.
func (m *Moved) Keep() {
	if m.replaced != "" {
		os.Remove(m.replaced)
	}
	m.held.Close()
}

// Undo gives the file that was replaced its name again, or nobody.
func (m *Moved) Undo() error {
	defer m.held.Close()
	if m.replaced == "" {
		return os.Remove(m.path)
	}
	err := os.Rename(m.replaced, m.path)
	os.Remove(m.replaced) // which is there still where both were names of one file
	return err
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
			return removeIfThere(from)
		}
		if errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "create", Path: to, Err: fs.ErrExist}
		}
	}
	err := os.Rename(from, to)
	var link *os.LinkError
	if errors.As(err, &link) {
		return &fs.PathError{Op: "rename", Path: to, Err: link.Err}
	}
	return err
}
