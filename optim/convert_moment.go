package optim

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/bf16"
	"github.com/lowbit-go/lowbit/codebook"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

// convertElements is how many elements are in memory at a time, or a block where that is more.
const convertElements = 1 << 18

// storedMoment is a moment in a file: numbers, codes or factors.
type storedMoment struct {
	from   *stateFile
	values tensorfile.Tensor // numbers, or codes where there is a codebook

	book   *codebook.Codebook
	block  int64
	scales tensorfile.Tensor

	factored bool
	row, col tensorfile.Tensor
}

// stateFile is a file with what reading from it needs.
type stateFile struct {
	*tensorfile.File
	codes  []byte
	scales []float32

	factorsOf *storedMoment // whose these are
	rowMean   float32
	columns   []float32 // all, or those of a piece where they are many
}

func (m *storedMoment) String() string {
	switch {
	case m.factored:
		return "factors"
	case m.book != nil:
		return quantizedName(m.book, m.block)
	}
	return map[tensorfile.DType]string{"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[m.values.DType]
}

func (l momentLayout) String() string {
	if l.quantized() {
		return quantizedName(l.format.Codebook, int64(l.format.Block))
	}
	return l.storage.String()
}

func quantizedName(book *codebook.Codebook, block int64) string {
	return fmt.Sprintf("%s block %d", book.Name(), block)
}

// read sets dst to the moment's elements from first on.
func (m *storedMoment) read(dst []float32, first int64) error {
	switch {
	case m.book != nil:
		return m.readCodes(dst, first)
	case m.factored:
		return m.readFactors(dst, first)
	}
	return m.from.ReadFloat32(m.values, dst, first)
}

func (m *storedMoment) readCodes(dst []float32, first int64) error {
	if len(dst) == 0 {
		return nil
	}
	perByte := int64(8 / m.book.Bits())
	last := first + int64(len(dst)) - 1
	codes := sized(&m.from.codes, last/perByte-first/perByte+1)
	if err := m.from.ReadAt(m.values, codes, first/perByte); err != nil {
		return err
	}
	scales := sized(&m.from.scales, last/m.block-first/m.block+1)
	if err := m.from.ReadFloat32(m.scales, scales, first/m.block); err != nil {
		return err
	}
	format, table := kernels.Format{Codebook: m.book}, m.book.Table()
	skipped, inBlock := int(first%perByte), first%m.block
	for i := range dst {
		dst[i] = table[format.Get(codes, skipped+i)] * scales[0]
		if inBlock++; inBlock == m.block {
			scales, inBlock = scales[1:], 0
		}
	}
	return nil
}

// readFactors multiplies factors, the rows' divided by their mean, as a step does.
func (m *storedMoment) readFactors(dst []float32, first int64) error {
	if err := m.openFactors(); err != nil || len(dst) == 0 {
		return err
	}
	f, cols := m.from, m.col.Elements()
	row, col := first/cols, first%cols
	rows := sized(&f.scales, (first+int64(len(dst))-1)/cols-row+1)
	if err := f.ReadFloat32(m.row, rows, row); err != nil {
		return err
	}
	for _, factor := range rows {
		n := min(cols-col, int64(len(dst)))
		columns := f.columns
		if cols <= convertElements {
			columns = columns[col : col+n]
		} else {
			columns = columns[:n]
			if err := f.ReadFloat32(m.col, columns, col); err != nil {
				return err
			}
		}
		if factor /= f.rowMean; f.rowMean == 0 {
			factor = 0
		}
		for i, x := range columns {
			dst[i] = factor * x
		}
		dst, col = dst[n:], 0
	}
	return nil
}

// openFactors computes the mean of the rows' factors, and reads the columns' if they are few.
func (m *storedMoment) openFactors() error {
	f := m.from
	if f.factorsOf == m {
		return nil
	}
	n, sum := m.row.Elements(), 0.0
	for at := int64(0); at < n; at += convertElements {
		x := sized(&f.scales, min(convertElements, n-at))
		if err := f.ReadFloat32(m.row, x, at); err != nil {
			return err
		}
		for _, v := range x {
			sum += float64(v)
		}
	}
	f.rowMean, f.factorsOf = float32(sum/float64(n)), m
	cols := m.col.Elements()
	f.columns = sized(&f.columns, min(convertElements, cols))
	if cols <= convertElements {
		return f.ReadFloat32(m.col, f.columns, 0)
	}
	return nil
}

// keeps tells whether numbers, or codes and scales, can stay as they are. For codes the block
// has to be the same, and the value of each but for a few units in the last place.
func (m *storedMoment) keeps(l momentLayout) bool {
	if m.factored {
		return false
	}
	if m.book == nil || !l.quantized() {
		return m.values.DType == map[storage]tensorfile.DType{storeFloat32: "F32", storeBF16: "BF16"}[l.storage]
	}
	const ulps = 4
	want, have := l.format.Codebook.Values(), m.book.Values()
	if m.block != int64(l.format.Block) || len(want) != len(have) {
		return false
	}
	for i, x := range want {
		a, b := math.Float32bits(x), math.Float32bits(have[i])
		if a-b+ulps > 2*ulps { // of the same sign, or unsigned arithmetic wraps far around
			return false
		}
	}
	return true
}

// sized returns the first n elements of a buffer, which it makes longer if need be.
func sized[E any](buffer *[]E, n int64) []E {
	if int64(cap(*buffer)) < n {
		*buffer = make([]E, n)
	}
	return (*buffer)[:n]
}

// converter makes the state of one parameter.
type converter struct {
	state  *SavedState
	p      *parameter
	saved  *savedParameter
	report *Converted
	n      int64
	*convertWork
}

// convertWork is the scratch memory of all parameters.
type convertWork struct {
	x      []float32
	codes  []byte
	scales []float32
}

func (s *SavedState) converter(p *parameter, saved *savedParameter, report *Converted) *converter {
	n, _ := p.checkShape()
	*report = Converted{Name: p.Name, Shape: p.Shape, FromM: saved.m.String(), ToM: p.layout.m.String(), KeptM: saved.m.keeps(p.layout.m)}
	if saved.v != nil {
		report.FromV = saved.v.String()
		report.ToV, report.KeptV = p.layout.v.String(), saved.v.keeps(p.layout.v)
		if p.layout.factored {
			report.ToV, report.KeptV = "factors", saved.v.factored
		}
	}
	return &converter{s, p, saved, report, n, &s.work}
}

// tensors are those of the parameter in a checkpoint, in its order.
func (c *converter) tensors() []checkpointTensor {
	list := c.moment("exp_avg", c.saved.m, c.p.layout.m, c.report.KeptM)
	switch v := c.saved.v; {
	case c.p.layout.factored && c.report.KeptV:
		list = append(list, c.state.copied(v.row), c.state.copied(v.col))
	case c.p.layout.factored:
		rows, cols := factorSizes(c.p.Shape, c.n)
		list = append(list, c.tensor("row", "F32", rows, 4*convertElements, c.fillRows), c.tensor("col", "F32", cols, 4*convertElements, c.fillCols))
	case c.p.layout.v.held:
		list = append(list, c.moment("exp_avg_sq", v, c.p.layout.v, c.report.KeptV)...)
	}
	for i, t := range list {
		list[i].fill = func(dst []byte, off int64) error {
			err := t.fill(dst, off)
			c.report.NonFinite += notFinite(t.DType, dst)
			return err
		}
	}
	if c.saved.low != nil {
		list = append(list, c.state.copied(*c.saved.low))
	}
	return list
}

func (c *converter) tensor(kind string, dtype tensorfile.DType, elements, chunk int64, fill func(dst []byte, off int64) error) checkpointTensor {
	size := stateSize{kind, dtype, elements}
	return checkpointTensor{tensorfile.Tensor{Name: kind + "/" + c.p.Name, DType: dtype, Shape: []int64{elements}, Bytes: size.bytes()}, chunk, fill}
}

// notFinite counts elements, but no codes.
func notFinite(dtype tensorfile.DType, raw []byte) (n int64) {
	switch dtype {
	case "F32":
		for ; len(raw) > 0; raw = raw[4:] {
			if bits := binary.LittleEndian.Uint32(raw); ^bits&0x7f800000 == 0 {
				n++
			}
		}
	case "BF16":
		for ; len(raw) > 0; raw = raw[2:] {
			if bits := binary.LittleEndian.Uint16(raw); ^bits&0x7f80 == 0 {
				n++
			}
		}
	}
	return n
}

// moment are the tensors of a moment that is not factors.
func (c *converter) moment(kind string, from *storedMoment, l momentLayout, kept bool) (list []checkpointTensor) {
	for _, size := range l.sizes(kind, c.n) {
		chunk, fill := c.filler(from, l, size)
		if kept {
			source := from.values
			if size.kind != kind {
				source = from.scales
			}
			chunk, fill = pieceBytes, func(dst []byte, off int64) error { return c.state.file.ReadAt(source, dst, off) }
		}
		list = append(list, c.tensor(size.kind, size.dtype, size.elements, chunk, fill))
	}
	return list
}

// filler makes the bytes of numbers, of codes or of scales.
func (c *converter) filler(from *storedMoment, l momentLayout, size stateSize) (chunk int64, fill func(dst []byte, off int64) error) {
	switch {
	case !l.quantized() && l.storage == storeBF16:
		return 2 * convertElements, func(dst []byte, off int64) error {
			x, err := c.read(from, off/2, int64(len(dst)/2))
			for i, v := range x {
				binary.LittleEndian.PutUint16(dst[2*i:], uint16(bf16.FromFloat32(v)))
			}
			return err
		}
	case !l.quantized():
		return 4 * convertElements, func(dst []byte, off int64) error {
			x, err := c.read(from, off/4, int64(len(dst)/4))
			putFloats(dst, x)
			return err
		}
	}
	// Blocks, and bytes, are whole: the elements of a chunk are a multiple of both.
	block := int64(l.format.Block)
	aligned := block * int64(8/l.format.Codebook.Bits())
	elements := max(convertElements/aligned, 1) * aligned
	if size.dtype == "U8" {
		perByte := int64(8 / l.format.Codebook.Bits())
		return elements / perByte, func(dst []byte, off int64) error {
			err := c.quantize(from, l.format, off*perByte, int64(len(dst))*perByte)
			copy(dst, c.codes)
			return err
		}
	}
	return elements / block * 4, func(dst []byte, off int64) error {
		err := c.quantize(from, l.format, off/4*block, int64(len(dst))/4*block)
		putFloats(dst, c.scales)
		return err
	}
}

func putFloats(dst []byte, x []float32) {
	for i, v := range x {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

// read returns n elements of a moment, or as many as there are.
func (c *converter) read(from *storedMoment, first, n int64) ([]float32, error) {
	x := sized(&c.x, min(n, c.n-first))
	return x, from.read(x, first)
}

// quantize codes n elements, or as many as there are, into c.codes and c.scales.
func (c *converter) quantize(from *storedMoment, format kernels.Format, first, n int64) error {
	x, err := c.read(from, first, n)
	if err != nil {
		return err
	}
	c.codes = sized(&c.codes, int64(format.CodeBytes(len(x))))
	c.scales = sized(&c.scales, int64(format.Scales(len(x))))
	_, err = kernels.Quantize(c.codes, c.scales, x, format)
	return err
}

// fillRows makes the means of some rows of the second moment.
func (c *converter) fillRows(dst []byte, off int64) error {
	_, cols := factorSizes(c.p.Shape, c.n)
	first, sums := off/4*cols, make([]float64, len(dst)/4)
	total := int64(len(sums)) * cols
	for at := int64(0); at < total; at += convertElements {
		x, err := c.read(c.saved.v, first+at, min(convertElements, total-at))
		if err != nil {
			return err
		}
		row, col := at/cols, at%cols
		for _, v := range x {
			sums[row] += float64(v)
			if col++; col == cols {
				row, col = row+1, 0
			}
		}
	}
	for i, sum := range sums {
		putFloats(dst[4*i:], []float32{float32(sum / float64(cols))})
	}
	return nil
}

// fillCols makes the means of some columns, reading as many rows at once as fit.
func (c *converter) fillCols(dst []byte, off int64) error {
	rows, cols := factorSizes(c.p.Shape, c.n)
	first, width := off/4, int64(len(dst)/4)
	sums := make([]float64, width)
	together := int64(1)
	if width == cols {
		together = max(convertElements/cols, 1)
	}
	for row := int64(0); row < rows; row += together {
		x, err := c.read(c.saved.v, row*cols+first, min(together, rows-row)*width)
		if err != nil {
			return err
		}
		for i, v := range x {
			sums[int64(i)%width] += float64(v)
		}
	}
	for i, sum := range sums {
		putFloats(dst[4*i:], []float32{float32(sum / float64(rows))})
	}
	return nil
}
