package tensorfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/lowbit-go/lowbit/internal/float16"
)

// A File is a safetensors file open for reading. Its methods may be called from several goroutines.
type File struct {
	Path     string
	Metadata map[string]string
	Tensors  []Tensor // in the order of their data

	r     io.ReaderAt
	close func() error
	data  int64 // where the data starts
	index map[string]int
}

// Open opens a safetensors file. The header is read and checked whole: a *FormatError names what was found and what
// was wanted. No data is read.
func Open(path string) (*File, error) {
	// Opening a pipe would wait for its writer, so look first.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &FormatError{path, fmt.Sprintf("%s, want a safetensors file", modeText(info.Mode()))}
	}
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := Decode(r, info.Size(), path)
	if err != nil {
		r.Close()
		return nil, err
	}
	f.close = r.Close
	return f, nil
}

// Decode reads the header of a safetensors file of size bytes from r, as Open does. The name stands for the path.
func Decode(r io.ReaderAt, size int64, name string) (*File, error) {
	f := &File{Path: name, r: r, close: func() error { return nil }, index: map[string]int{}}
	bad := func(format string, args ...any) (*File, error) {
		return nil, &FormatError{name, fmt.Sprintf(format, args...)}
	}
	if size < lengthBytes {
		return bad("%d bytes, want at least %d for the length of a header", size, lengthBytes)
	}
	var length [lengthBytes]byte
	if err := f.readFull(length[:], 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeaderBytes {
		return bad("no safetensors file: its first 8 bytes stand for a header of %d bytes, at most %d are allowed", n, maxHeaderBytes)
	}
	if n > uint64(size-lengthBytes) {
		return bad("no safetensors file, or cut off: its first 8 bytes stand for a header of %d bytes, the file has %d after its length", n, size-lengthBytes)
	}
	header := make([]byte, n)
	if err := f.readFull(header, lengthBytes); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var err error
	if f.Metadata, f.Tensors, err = parseHeader(header); err != nil {
		return bad("%v", err)
	}
	f.data = lengthBytes + int64(n)
	if err := arrange(f.Tensors, size-f.data); err != nil {
		return bad("%v", err)
	}
	for i, t := range f.Tensors {
		f.index[t.Name] = i
	}
	return f, nil
}

// Close closes what Open opened.
func (f *File) Close() error { return f.close() }

// Tensor finds a tensor by its name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// ReadAt fills p with the bytes of t from byte off on. A range outside the tensor is an error before anything is
// read; io.ErrUnexpectedEOF means that the file was truncated after it was opened.
func (f *File) ReadAt(t Tensor, p []byte, off int64) error {
	if err := t.checkRange("bytes", off, len(p), t.Bytes); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if err := f.readFull(p, f.data+t.Offset+off); err != nil {
		return fmt.Errorf("%s: tensor %.100q: %w", f.Path, t.Name, err)
	}
	return nil
}

// ReadFloat32 fills dst with the elements of an F32, F16 or BF16 tensor from element first on, widened exactly.
// It allocates nothing; a range outside the tensor is an error before anything is read.
func (f *File) ReadFloat32(t Tensor, dst []float32, first int64) error {
	widen, ok := widenings[t.DType]
	if !ok {
		return fmt.Errorf("%s: tensor %.100q is %s, want F32, F16 or BF16", f.Path, t.Name, t.DType)
	}
	return readElements(f, t, dst, first, widen)
}

// ReadUint16 fills dst with the patterns of an F16, BF16, U16 or I16 tensor from element first on.
// It allocates nothing; a range outside the tensor is an error before anything is read.
func (f *File) ReadUint16(t Tensor, dst []uint16, first int64) error {
	if t.DType.Bits() != 16 {
		return fmt.Errorf("%s: tensor %.100q is %s, want F16, BF16, U16 or I16", f.Path, t.Name, t.DType)
	}
	return readElements(f, t, dst, first, decodeUint16)
}

var widenings = map[DType]func([]float32, []byte){
	"F32": func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	},
	"F16": func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float16.ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	},
	"BF16": func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	},
}

func decodeUint16(dst []uint16, src []byte) {
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint16(src[2*i:])
	}
}

const pieceBytes = 64 << 10

// pieces holds the buffers through which elements go to and from a file.
var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

func readElements[E any](f *File, t Tensor, dst []E, first int64, decode func([]E, []byte)) error {
	if err := t.checkRange("elements", first, len(dst), t.Elements()); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	size := t.DType.Bits() / 8
	piece := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(piece)
	for len(dst) > 0 {
		n := min(len(dst), pieceBytes/int(size))
		p := piece[:n*int(size)]
		if err := f.ReadAt(t, p, first*size); err != nil {
			return err
		}
		decode(dst[:n], p)
		dst = dst[n:]
		first += int64(n)
	}
	return nil
}

func (t Tensor) checkRange(unit string, first int64, n int, have int64) error {
	if first < 0 || first > have-int64(n) {
		return fmt.Errorf("tensor %.100q: %s %d to %d, it has %d", t.Name, unit, first, first+int64(n), have)
	}
	return nil
}

// readFull fills p from byte off of the file.
func (f *File) readFull(p []byte, off int64) error {
	n, err := f.r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the file ends at byte %d, want %d: %w", off+int64(n), off+int64(len(p)), io.ErrUnexpectedEOF)
	}
	return err
}

func modeText(mode os.FileMode) string {
	if mode.IsDir() {
		return "a directory"
	}
	return fmt.Sprintf("not a regular file (%v)", mode)
}
