package tensorfile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"
)

// A Writer writes one safetensors file, which appears under its name only when Commit has succeeded. Its Write
// methods may be called from several goroutines.
type Writer struct {
	path      string
	overwrite bool
	f         *os.File // a temporary file beside path
	data      int64    // where the data starts
	tensors   []Tensor

	mu      sync.Mutex
	written []spans // of each tensor
	synced  bool    // since the last write
	closed  bool
}

// Create starts the file at path with tensors laid out in the given order; their Offset is ignored, and so is a
// Bytes of 0 where the dtype is known. An existing file is an error (fs.ErrExist) unless overwrite is true; what is
// no regular file is never replaced. Names that come twice or are not UTF-8, and sizes that do not match their shape
// and dtype, are a *FormatError. Nothing is left behind by an error, nor after Abort; what a killed process left, the
// next Create of the same path removes.
func Create(path string, metadata map[string]string, tensors []Tensor, overwrite bool) (*Writer, error) {
	tensors, err := layOut(metadata, tensors)
	if err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	header, err := encodeHeader(metadata, tensors)
	if err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	path = target(path)
	if err := checkOutput(path, overwrite); err != nil {
		return nil, err
	}
	f, err := begin(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	w := &Writer{
		path: path, overwrite: overwrite, f: f, data: int64(len(header)),
		tensors: tensors, written: make([]spans, len(tensors)),
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		w.Abort()
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	return w, nil
}

// WriteAt writes p to tensor index, in the order given to Create, from byte off on.
func (w *Writer) WriteAt(index int, p []byte, off int64) error {
	t, err := w.tensor(index)
	if err != nil {
		return err
	}
	if err := t.checkRange("bytes", off, len(p), t.Bytes); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	if _, err := w.f.WriteAt(p, w.data+t.Offset+off); err != nil {
		return fmt.Errorf("%s: tensor %.100q: %w", w.path, t.Name, bare(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.synced = false
	w.written[index] = w.written[index].add(span{off, off + int64(len(p))})
	return nil
}

// WriteFloat32 writes src to an F32 tensor from element first on. It allocates nothing.
func (w *Writer) WriteFloat32(index int, src []float32, first int64) error {
	t, err := w.tensor(index)
	if err != nil {
		return err
	}
	if t.DType != "F32" {
		return fmt.Errorf("%s: tensor %.100q is %s, want F32", w.path, t.Name, t.DType)
	}
	return writeElements(w, index, src, first, func(dst []byte, src []float32) {
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	})
}

// WriteUint16 writes patterns to an F16, BF16, U16 or I16 tensor from element first on. It allocates nothing.
func (w *Writer) WriteUint16(index int, src []uint16, first int64) error {
	t, err := w.tensor(index)
	if err != nil {
		return err
	}
	if t.DType.Bits() != 16 {
		return fmt.Errorf("%s: tensor %.100q is %s, want F16, BF16, U16 or I16", w.path, t.Name, t.DType)
	}
	return writeElements(w, index, src, first, func(dst []byte, src []uint16) {
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], x)
		}
	})
}

// Commit checks that every byte of every tensor was written, syncs the file and gives it its name. After an error
// nothing is left behind, unless it was the folder's sync that failed: then the file is there, whole.
func (w *Writer) Commit() error {
	if err := w.commit(); err != nil {
		w.Abort()
		return err
	}
	return nil
}

// Abort removes the file that was begun. After Commit it does nothing.
func (w *Writer) Abort() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.f.Close()
	return removeIfThere(w.f.Name())
}

func (w *Writer) commit() error {
	if err := w.Finish(); err != nil {
		return err
	}
	if err := checkOutput(w.path, w.overwrite); err != nil {
		return err
	}
	if err := closeAs(w.f, w.path, w.overwrite); err != nil {
		return err
	}
	w.closed = true
	return syncFolder(filepath.Dir(w.path))
}

// Finish does what takes time of Commit: it checks that every byte was written, and syncs
// the file.
func (w *Writer) Finish() error {
	if w.closed {
		return fmt.Errorf("%s: %w", w.path, os.ErrClosed)
	}
	for i, t := range w.tensors {
		if gap, ok := w.written[i].gap(t.Bytes); ok {
			return fmt.Errorf("%s: tensor %.100q: bytes %d to %d were never written", w.path, t.Name, gap.start, gap.end)
		}
	}
	if w.synced {
		return nil
	}
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("%s: %w", w.path, bare(err))
	}
	w.synced = true
	return nil
}

// bare leaves out the name of the temporary file.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func (w *Writer) tensor(index int) (Tensor, error) {
	if index < 0 || index >= len(w.tensors) {
		return Tensor{}, fmt.Errorf("%s: tensor number %d, it has %d", w.path, index, len(w.tensors))
	}
	return w.tensors[index], nil
}

func writeElements[E any](w *Writer, index int, src []E, first int64, encode func([]byte, []E)) error {
	t := w.tensors[index]
	if err := t.checkRange("elements", first, len(src), t.Elements()); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	size := t.DType.Bits() / 8
	piece := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(piece)
	for len(src) > 0 {
		n := min(len(src), pieceBytes/int(size))
		p := piece[:n*int(size)]
		encode(p, src[:n])
		if err := w.WriteAt(index, p, first*size); err != nil {
			return err
		}
		src = src[n:]
		first += int64(n)
	}
	return nil
}

// layOut returns a copy of tensors with their offsets and sizes.
func layOut(metadata map[string]string, tensors []Tensor) ([]Tensor, error) {
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("%s: %.100q: %.100q is not UTF-8", metadataKey, key, value)
		}
	}
	tensors = slices.Clone(tensors)
	names := make(map[string]bool, len(tensors))
	end := int64(0)
	for i := range tensors {
		t := &tensors[i]
		switch {
		case !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("tensor %.100q: the name is not UTF-8", t.Name)
		case t.Name == metadataKey:
			return nil, fmt.Errorf("tensor %q: the name is the metadata's", t.Name)
		case names[t.Name]:
			return nil, fmt.Errorf("tensor %.100q comes twice", t.Name)
		case t.DType == "" || !utf8.ValidString(string(t.DType)):
			return nil, fmt.Errorf("tensor %.100q: dtype %.100q, want a name in UTF-8", t.Name, t.DType)
		}
		names[t.Name] = true
		size, err := t.size()
		if err != nil {
			return nil, err
		}
		if t.Bytes != 0 && t.Bytes != size {
			return nil, fmt.Errorf("tensor %.100q: %d bytes, shape %s of %s takes %d", t.Name, t.Bytes, shapeText(t.Shape), t.DType, size)
		}
		if size > math.MaxInt64/2-end {
			return nil, fmt.Errorf("tensor %.100q: the file would be longer than 62 bits count", t.Name)
		}
		t.Shape = append([]int64{}, t.Shape...) // a nil shape would be written as null
		t.Offset, t.Bytes = end, size
		end += size
	}
	return tensors, nil
}

// checkOutput refuses to replace a file that the caller did not offer, and a device or a folder always.
func checkOutput(path string, overwrite bool) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil // what is wrong with the folder, creating a file in it will tell
	case !info.Mode().IsRegular():
		return &FormatError{path, fmt.Sprintf("%s, want a file to replace or a new name", modeText(info.Mode()))}
	case !overwrite:
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	return nil
}

type span struct{ start, end int64 }

// spans are apart and in order.
type spans []span

func (s spans) add(n span) spans {
	if n.start == n.end {
		return s
	}
	i, _ := slices.BinarySearchFunc(s, n.start, func(old span, start int64) int { return cmp.Compare(old.end, start) })
	j := i
	for ; j < len(s) && s[j].start <= n.end; j++ {
		n.start, n.end = min(n.start, s[j].start), max(n.end, s[j].end)
	}
	return slices.Replace(s, i, j, n)
}

// gap returns the first part of [0, size) that no span covers.
func (s spans) gap(size int64) (span, bool) {
	end := int64(0)
	for _, covered := range s {
		if covered.start > end {
			return span{end, covered.start}, true
		}
		end = covered.end
	}
	return span{end, size}, end < size
}
