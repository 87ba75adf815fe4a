// Package tensorfile reads and writes safetensors files (https://github.com/huggingface/safetensors) in pieces,
// so that a file may be larger than memory. What the format forbids is refused when a file is opened; tensors of
// unknown dtypes are kept as bytes. Data is little-endian in the file on every host.
package tensorfile

import (
	"fmt"
	"math"
)

// A DType is a tensor's element type as the file spells it: F32, BF16, F16, U8, I64, … or one unknown to us.
type DType string

var dtypeBits = map[DType]int64{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16,
	"U32": 32, "I32": 32, "F32": 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
}

// Bits returns the bits of one element, 0 where the dtype is unknown.
func (d DType) Bits() int64 { return dtypeBits[d] }

// A Tensor describes one tensor of a file. Offset counts bytes from the start of the data, which follows the header.
type Tensor struct {
	Name          string
	DType         DType
	Shape         []int64
	Offset, Bytes int64
}

// Elements returns the product of the shape, 1 for a scalar. It fits for every tensor that a file holds.
func (t Tensor) Elements() int64 {
	product := int64(1)
	for _, d := range t.Shape {
		product *= d
	}
	return product
}

// A FormatError says what makes a file no safetensors file that we accept, or its parts unfit to be one.
// Failures of the disk are other errors.
type FormatError struct{ Path, Problem string }

func (e *FormatError) Error() string { return e.Path + ": " + e.Problem }

// size returns the bytes that shape and dtype ask for, and the bytes it is given where the dtype is unknown.
// Zeros in the shape are left out of the overflow check: no product of some of its dimensions may overflow.
func (t Tensor) size() (int64, error) {
	product := int64(1)
	for _, d := range t.Shape {
		if d < 0 {
			return 0, fmt.Errorf("tensor %.100q: shape %s has a negative dimension", t.Name, shapeText(t.Shape))
		}
		if d == 0 {
			continue
		}
		if product > math.MaxInt64/d {
			return 0, fmt.Errorf("tensor %.100q: shape %s has more elements than 63 bits count", t.Name, shapeText(t.Shape))
		}
		product *= d
	}
	elements, bits := t.Elements(), t.DType.Bits()
	if bits == 0 && t.Bytes < 0 {
		return 0, fmt.Errorf("tensor %.100q: %d bytes, want at least 0", t.Name, t.Bytes)
	}
	if bits == 0 {
		return t.Bytes, nil
	}
	if elements > math.MaxInt64/bits {
		return 0, fmt.Errorf("tensor %.100q: shape %s of %s has more bits than 63 bits count", t.Name, shapeText(t.Shape), t.DType)
	}
	if elements*bits%8 != 0 {
		return 0, fmt.Errorf("tensor %.100q: shape %s of %s is %d bits, want whole bytes", t.Name, shapeText(t.Shape), t.DType, elements*bits)
	}
	return elements * bits / 8, nil
}

// shapeText keeps an error to one readable line whatever a file claims.
func shapeText(shape []int64) string {
	if len(shape) > 8 {
		return fmt.Sprintf("%d… (%d dimensions)", shape[:8], len(shape))
	}
	return fmt.Sprint(shape)
}
