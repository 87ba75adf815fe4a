package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

type inspectCmd struct {
	File    string      `arg:"" help:"The safetensors file to read."`
	Against string      `placeholder:"FILE" help:"The file that FILE was made from: print the errors of every tensor of numbers."`
	Threads threadCount `placeholder:"N" help:"Use at most N threads; 0 means one a core."`
	JSON    bool        `name:"json" help:"Print the table as one JSON object."`
}

func (*inspectCmd) Help() string {
	return `Bits are those of a whole stored tensor, scales included, for each of its elements.
Of an optimizer's checkpoint it tells how moments are kept, instead of bits, and how much of the second ones is zero.
--against compares moments that are numbers; lowbit convert-state makes numbers of codes.

Example:

    lowbit inspect model-nf4.safetensors --against model.safetensors
`
}

func (c *inspectCmd) Run(e *env) error {
	f, err := openInput(c.File)
	if err != nil {
		return err
	}
	defer f.Close()
	a, err := readArchive(f)
	if err != nil {
		return err
	}
	records := []*record{}
	for _, t := range a.Tensors {
		if q := a.quantised[t.Name]; q != nil {
			records = append(records, q.record())
		} else if !a.parts[t.Name] || slices.Contains(a.books, t.Name) {
			records = append(records, recordOf(t))
		}
	}
	var total errorStats
	if c.Against != "" {
		if total, err = c.compare(e, a, records); err != nil {
			return err
		}
	}
	saved, err := readDescription(f)
	if err != nil {
		return err
	}
	var moments []secondMoment
	if saved != nil {
		saved.describe(records)
		if moments, err = secondMoments(f, saved); err != nil {
			return err
		}
	}
	return c.print(e, a, records, total, saved, moments)
}

func (q *quantised) record() *record {
	r := recordOf(tensorfile.Tensor{Name: q.name, DType: q.dtype, Shape: q.shape})
	r.Format, r.Block = q.format.Codebook.Name(), int64(q.format.Block)
	r.BytesIn, r.BytesOut = r.Elements*q.dtype.Bits()/8, q.bytes
	return r
}

// compare measures the errors of the file's tensors of numbers against the source's of the same names.
func (c *inspectCmd) compare(e *env, a *archive, records []*record) (total errorStats, err error) {
	source, err := openInput(c.Against)
	if err != nil {
		return total, err
	}
	defer source.Close()
	if err := refuseQuantised(source); err != nil {
		return total, badInput("--against wants a file that is not quantised: %w", err)
	}
	for _, f := range []*tensorfile.File{a.File, source} {
		if err := refuseCodes(f); err != nil {
			return total, err
		}
	}
	compared, bytes := []*record{}, int64(0)
	for _, r := range records {
		if isFloat(r.DType) && !slices.Contains(a.books, r.Name) {
			compared = append(compared, r)
			bytes += r.BytesIn
		}
	}
	bar := e.progress(bytes)
	defer bar.end()
	var s scratch
	for _, r := range compared {
		stats, err := c.compareTensor(e, a, source, r, &s, bar)
		if err != nil {
			return total, err
		}
		r.setErrors(stats)
		total.merge(stats)
	}
	return total, nil
}

func (c *inspectCmd) compareTensor(e *env, a *archive, source *tensorfile.File, r *record, s *scratch, bar *progress) (stats errorStats, err error) {
	t, ok := source.Tensor(r.Name)
	switch {
	case !ok:
		return stats, badInput("%s: it has no tensor %.100q to compare that of %s with", source.Path, r.Name, a.Path)
	case !isFloat(t.DType):
		return stats, badInput("%s: tensor %.100q is %s, want F32, F16 or BF16 as in %s", source.Path, r.Name, t.DType, a.Path)
	case !slices.Equal(t.Shape, r.Shape):
		return stats, badInput("%s: tensor %.100q has shape %s, want %s as in %s", source.Path, r.Name, shapeText(t.Shape), shapeText(r.Shape), a.Path)
	}
	made, _ := a.Tensor(r.Name)
	align, read := 1, func(dst []float32, first int64) error { return a.ReadFloat32(made, dst, first) }
	if q := a.quantised[r.Name]; q != nil {
		align = q.align()
		read = func(dst []float32, first int64) error { return q.read(a, dst, first, s, c.Threads.limit()) }
	}
	err = e.pieces(r.Elements, align, func(first int64, n int) error {
		x, y := sized(&s.x, n), sized(&s.y, n)
		if err := source.ReadFloat32(t, x, first); err != nil {
			return err
		}
		if err := read(y, first); err != nil {
			return err
		}
		stats.add(x, y)
		bar.add(int64(n) * r.DType.Bits() / 8)
		return nil
	})
	return stats, err
}

type inspectJSON struct {
	report
	Total         inspectTotal   `json:"total"`
	SecondMoments []secondMoment `json:"second_moments,omitempty"`
}

type inspectTotal struct {
	Elements     int64  `json:"elements"`
	BytesIn      int64  `json:"bytes_in"`
	BytesOut     int64  `json:"bytes_out"`
	MaxAbsError  number `json:"max_abs_error"`
	MeanAbsError number `json:"mean_abs_error"`
	RMSError     number `json:"rms_error"`
}

func (c *inspectCmd) print(e *env, a *archive, records []*record, stats errorStats, saved *checkpoint, moments []secondMoment) error {
	total := &record{Name: "total"}
	total.MaxAbsError, total.MeanAbsError, total.RMSError = unknown, unknown, unknown
	if c.Against != "" {
		total.setErrors(stats)
	}
	for _, r := range records {
		total.Elements += r.Elements
		total.BytesIn += r.BytesIn
		total.BytesOut += r.BytesOut
	}
	if c.JSON {
		return e.printJSON(inspectJSON{newReport(records), inspectTotal{
			total.Elements, total.BytesIn, total.BytesOut, total.MaxAbsError, total.MeanAbsError, total.RMSError}, moments})
	}
	header := []string{"TENSOR", "DTYPE", "SHAPE", "FORMAT", "BLOCK", "BYTES", "BITS"}
	rows := [][]string{header}
	for _, r := range records {
		rows = append(rows, []string{printable(r.Name), string(r.DType), shapeText(r.Shape), r.formatText(), r.blockText(), strconv.FormatInt(r.BytesOut, 10), r.bitsText()})
	}
	rows = append(rows, []string{"total", "", "", "", "", strconv.FormatInt(total.BytesOut, 10), total.bitsText()})
	if saved != nil { // whose tensors of codes and scales are not those of one tensor's bits
		for i := range rows {
			rows[i] = rows[i][:len(rows[i])-1]
		}
	}
	if c.Against != "" {
		rows[0] = append(rows[0], "MAX ERROR", "MEAN ERROR", "RMS ERROR")
		for i, r := range append(records, total) {
			rows[i+1] = append(rows[i+1], r.errorTexts()...)
		}
	}
	if err := printTable(e.stdout, rows); err != nil {
		return err
	}
	summary := fmt.Sprintf("tensors: %d, quantised: %d", len(records), len(a.quantised))
	if saved != nil {
		summary = fmt.Sprintf("tensors: %d, a checkpoint of %s, step %d", len(records), printable(saved.Representation), saved.Step)
	}
	if _, err := fmt.Fprintln(e.stdout, summary); err != nil {
		return err
	}
	return e.printSecondMoments(moments)
}

// bitsText is the size of the stored tensor in bits an element.
func (r *record) bitsText() string {
	if r.Elements == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(r.BytesOut)*8/float64(r.Elements), 'f', 3, 64)
}
