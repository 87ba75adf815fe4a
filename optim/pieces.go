package optim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"github.com/lowbit-go/lowbit/bf16"
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
	copy(dst, t.U8[min(off, int64(len(t.U8))):])
	for i := range elements(t.F32, off, 4, dst) {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(t.F32[off/4+int64(i)]))
	}
	for i := range elements(t.BF16, off, 2, dst) {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(t.BF16[off/2+int64(i)]))
	}
	for i := range elements(t.U16, off, 2, dst) {
		binary.LittleEndian.PutUint16(dst[2*i:], t.U16[off/2+int64(i)])
	}
}

// decode is the reverse of encode.
func (t StateTensor) decode(src []byte, off int64) {
	copy(t.U8[min(off, int64(len(t.U8))):], src)
	for i := range elements(t.F32, off, 4, src) {
		t.F32[off/4+int64(i)] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	for i := range elements(t.BF16, off, 2, src) {
		t.BF16[off/2+int64(i)] = bf16.BF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
	for i := range elements(t.U16, off, 2, src) {
		t.U16[off/2+int64(i)] = binary.LittleEndian.Uint16(src[2*i:])
	}
}

// elements is how many elements of a slice that holds the tensor some bytes from off on are.
func elements[T any](slice []T, off, size int64, bytes []byte) int {
	if slice == nil {
		return 0
	}
	return len(bytes) / int(size)
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
