package optim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"slices"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// checkpointTensor is a tensor of a checkpoint to be written: fill makes its bytes from off
// on, which is a multiple of chunk, and is asked for chunk bytes or all that are left.
type checkpointTensor struct {
	tensorfile.Tensor
	chunk int64
	fill  func(dst []byte, off int64) error
}

// checksum is the last tensor of a checkpoint, over all before it.
var checksum = tensorfile.Tensor{Name: checksumTensor, DType: "U8", Shape: []int64{sha256.Size}, Bytes: sha256.Size}

// checkpointWriter says where a checkpoint goes.
type checkpointWriter struct {
	path      string
	metadata  map[string]string
	overwrite bool
	progress  func(written, total int64) // or nil
}

// write writes the tensors one after another. The file appears whole or not at all.
func (c checkpointWriter) write(ctx context.Context, tensors []checkpointTensor) error {
	list := make([]tensorfile.Tensor, len(tensors))
	for i, t := range tensors {
		list[i] = t.Tensor
	}
	list = append(list, checksum)
	w, err := tensorfile.Create(c.path, c.metadata, list, c.overwrite)
	if err != nil {
		return err
	}
	defer w.Abort()
	sum := newChecksum(c.metadata, list)
	buffer, written, total := []byte{}, int64(0), int64(0)
	for _, t := range tensors {
		total += t.Bytes
	}
	for i, t := range tensors {
		for off := int64(0); off < t.Bytes; off += t.chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(t.chunk, t.Bytes-off)
			buffer = slices.Grow(buffer[:0], int(n))[:n]
			if err := t.fill(buffer, off); err != nil {
				return err
			}
			sum.Write(buffer)
			if err := w.WriteAt(i, buffer, off); err != nil {
				return err
			}
			if written += n; c.progress != nil {
				c.progress(written, total)
			}
		}
	}
	if err := w.WriteAt(len(tensors), sum.Sum(nil), 0); err != nil {
		return err
	}
	return w.Commit()
}

// newChecksum begins with the metadata and the list of tensors.
func newChecksum(metadata map[string]string, tensors []tensorfile.Tensor) hash.Hash {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(sum, "%q %q\n", key, metadata[key])
	}
	for _, t := range tensors {
		fmt.Fprintf(sum, "%q %s %v\n", t.Name, t.DType, t.Shape)
	}
	return sum
}
