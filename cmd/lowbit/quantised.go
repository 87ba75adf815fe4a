package main

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

// maxBlock is the largest block of a file, so that a piece of a tensor can hold one.
const maxBlock = 1 << 20

// quantised is a quantised tensor of a file.
type quantised struct {
	name   string
	dtype  tensorfile.DType // of the tensor that was quantised
	shape  []int64
	format kernels.Format
	codes  tensorfile.Tensor
	absmax tensorfile.Tensor
	nested *nested // nil where absmax is float32
	bytes  int64   // of all tensors that only this one uses
}

// nested is the quantisation of the scales themselves: a scale is its decoded code plus an offset.
type nested struct {
	format kernels.Format
	absmax tensorfile.Tensor
	offset float32
}

// archive is an open file and what is quantised in it.
type archive struct {
	*tensorfile.File
	quantised map[string]*quantised // by name
	parts     map[string]bool       // the names of the tensors that belong to quantised ones
	books     []string              // the names of the tensors that hold codebooks which several share
}

// readArchive finds what is quantised in a file, in either layout, and checks everything but the data of codes and
// scales.
func readArchive(f *tensorfile.File) (*archive, error) {
	a := &archive{File: f, quantised: map[string]*quantised{}, parts: map[string]bool{}}
	if err := a.readLowbit(); err != nil {
		return nil, err
	}
	if err := a.readBitsandbytes(); err != nil {
		return nil, err
	}
	return a, nil
}

// problem is the error of a tensor of the archive.
func (a *archive) problem(name, format string, args ...any) error {
	return badInput("%s: tensor %.100q: %s", a.Path, name, fmt.Sprintf(format, args...))
}

// part finds a tensor that belongs to the quantised tensor q and checks its dtype and number of elements.
func (a *archive) part(q *quantised, name string, dtype tensorfile.DType, elements int64) (tensorfile.Tensor, error) {
	t, ok := a.Tensor(name)
	switch {
	case !ok:
		return t, a.problem(q.name, "it is quantised, but there is no tensor %.100q", name)
	case t.DType != dtype:
		return t, a.problem(name, "it is %s, want %s for the quantised %.100q", t.DType, dtype, q.name)
	case t.Elements() != elements:
		return t, a.problem(name, "it has %d elements, want %d for the quantised %.100q of shape %s", t.Elements(), elements, q.name, shapeText(q.shape))
	}
	a.parts[name] = true
	q.bytes += t.Bytes
	return t, nil
}

// finish finds the codes of q and, where they are not nested, its scales, and adds it to the archive.
func (a *archive) finish(q *quantised) (err error) {
	n := q.elements()
	if q.codes, err = a.part(q, q.name, "U8", codeBytes(q.format, n)); err != nil {
		return err
	}
	dtype := tensorfile.DType("F32")
	if q.nested != nil {
		dtype = "U8"
	}
	if q.absmax, err = a.part(q, q.name+".absmax", dtype, blocks(n, q.format.Block)); err != nil {
		return err
	}
	if a.quantised[q.name] != nil {
		return a.problem(q.name, "it is quantised in the lowbit and in the bitsandbytes layout, want one of them")
	}
	a.quantised[q.name] = q
	return nil
}

func (q *quantised) elements() int64 { return tensorfile.Tensor{Shape: q.shape}.Elements() }

// align is the least number of elements after which a block begins, of scales too, and a byte of codes.
func (q *quantised) align() int {
	align := pieceAlign(q.format)
	if q.nested != nil {
		align *= q.nested.format.Block
	}
	return align
}

// read decodes the elements of dst from element first on, which is a multiple of align.
func (q *quantised) read(a *archive, dst []float32, first int64, s *scratch, threads kernels.Threads) error {
	codes := sized(&s.codes, q.format.CodeBytes(len(dst)))
	if err := a.ReadAt(q.codes, codes, codeBytes(q.format, first)); err != nil {
		return err
	}
	if i := codeWithoutValue(q.format, codes, len(dst)); i >= 0 {
		return a.problem(q.name, "element %d has code %d, want less than %d for %s", first+int64(i), q.format.Get(codes, i),
			q.format.Codebook.Len(), q.format.Codebook.Name())
	}
	scales := sized(&s.scales, q.format.Scales(len(dst)))
	if err := q.readScales(a, scales, first/int64(q.format.Block), s, threads); err != nil {
		return err
	}
	return kernels.Dequantize(dst, codes, scales, q.format, threads)
}

func (q *quantised) readScales(a *archive, scales []float32, first int64, s *scratch, threads kernels.Threads) error {
	if q.nested == nil {
		return a.ReadFloat32(q.absmax, scales, first)
	}
	codes := sized(&s.nested, len(scales))
	if err := a.ReadAt(q.absmax, codes, first); err != nil {
		return err
	}
	nestedScales := sized(&s.nestedScales, q.nested.format.Scales(len(scales)))
	if err := a.ReadFloat32(q.nested.absmax, nestedScales, first/int64(q.nested.format.Block)); err != nil {
		return err
	}
	return q.nested.decode(scales, codes, nestedScales, threads)
}

func (n *nested) decode(scales []float32, codes []uint8, nestedScales []float32, threads kernels.Threads) error {
	if err := kernels.Dequantize(scales, codes, nestedScales, n.format, threads); err != nil {
		return err
	}
	for i := range scales {
		scales[i] += n.offset
	}
	return nil
}

// codeWithoutValue returns the position of a code that the codebook has no value for, or -1.
func codeWithoutValue(f kernels.Format, codes []uint8, n int) int {
	if f.Codebook.Len() == 1<<f.Codebook.Bits() {
		return -1
	}
	for i := range n {
		if int(f.Get(codes, i)) >= f.Codebook.Len() {
			return i
		}
	}
	return -1
}

func pieceAlign(f kernels.Format) int {
	if f.Codebook.Bits() == 4 && f.Block%2 == 1 {
		return 2 * f.Block
	}
	return f.Block
}

// codeBytes and blocks count as the methods of kernels.Format do, in 64 bits.
func codeBytes(f kernels.Format, n int64) int64 {
	if f.Codebook.Bits() == 4 {
		return n/2 + n%2
	}
	return n
}

func blocks(n int64, block int) int64 {
	full := n / int64(block)
	if n%int64(block) != 0 {
		full++
	}
	return full
}

// checkShape is the error of a shape that no tensor can have.
func checkShape(shape []int64) error {
	product := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && product > math.MaxInt64/8/d {
			return fmt.Errorf("its shape is %s, want the shape of a tensor", shapeText(shape))
		}
		product *= max(d, 1)
	}
	return nil
}
