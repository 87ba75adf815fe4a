// Package scratchfile keeps bytes on a disk that are of no use to anybody once the process has
// ended.
package scratchfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// File is a file of a fixed size that no other process can open by name: it has none from
// the start on Linux where the file system can do that, loses it at once on other Unix
// systems, and on Windows goes when its handle does. So it is gone after Close and after
// the process, however that ends. Only elsewhere it is Close that removes it.
//
// ReadAt and WriteAt may be called from several goroutines.
type File struct {
	f      *os.File
	folder string
	named  bool // until it is closed
}

// Create makes a file in a folder, with room for size bytes reserved where the system can
// do that; writing all of it reserves the room everywhere.
func Create(folder string, size int64) (*File, error) {
	s := &File{folder: folder}
	var err error
	if s.f, s.named, err = open(folder); err != nil {
		return nil, s.explain(err)
	}
	if err := reserve(s.f, size); err != nil {
		s.Close()
		return nil, s.explain(err)
	}
	return s, nil
}

// ReadAt fills p from byte off on.
func (s *File) ReadAt(p []byte, off int64) error {
	_, err := s.f.ReadAt(p, off)
	return s.explain(err)
}

// WriteAt writes p from byte off on. After an error the bytes there are undefined.
func (s *File) WriteAt(p []byte, off int64) error {
	_, err := s.f.WriteAt(p, off)
	return s.explain(err)
}

// Close gives the room back.
func (s *File) Close() error {
	err := s.f.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.f.Name()))
	}
	return s.explain(err)
}

// explain names the folder instead of a file that has no name.
func (s *File) explain(err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &Error{s.folder, err}
}

// Error is what the system says of a file in a folder.
type Error struct {
	Folder string
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: scratch file: %v", e.Folder, e.Err) }

func (e *Error) Unwrap() error { return e.Err }
