package optim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// pieceBytes is how much of a tensor is converted to or from the bytes of a file at a time.
const pieceBytes = 1 << 20

func (t StateTensor) dtype() tensorfile.DType {
	switch {
	case t.BF16 != nil:
		return "BF16"
	case t.U16 != nil:
		return "U16"
	case t.U8 != nil:
		return "U8"
	default:
		return "F32"
	}
}

// encode writes the tensor's bytes from off on, little-endian.
func (t StateTensor) encode(dst []byte, off int64) {
	_, _ = binary.Encode(dst, binary.LittleEndian, t.slice(off, int64(len(dst)))) // sizes fit
}

// decode is the reverse of encode.
func (t StateTensor) decode(src []byte, off int64) {
	_, _ = binary.Decode(src, binary.LittleEndian, t.slice(off, int64(len(src))))
}

// slice is the slice of the elements that have n bytes from off on.
func (t StateTensor) slice(off, n int64) any {
	switch {
	case t.BF16 != nil:
		patterns := unsafe.Slice((*uint16)(unsafe.SliceData(t.BF16)), len(t.BF16)) // encoding/binary is fast for plain types
		return patterns[off/2 : (off+n)/2]
	case t.U16 != nil:
		return t.U16[off/2 : (off+n)/2]
	case t.U8 != nil:
		return t.U8[off : off+n]
	default:
		return t.F32[off/4 : (off+n)/4]
	}
}

// checkValues compares bytes of a file with the tensor's own.
func (t StateTensor) checkValues(src []byte, off int64) error {
	own := make([]byte, len(src))
	t.encode(own, off)
	if !bytes.Equal(own, src) {
		return errors.New("the codebook has other values than this version's")
	}
	return nil
}
