package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// number is a float64 that JSON has as null where it is not finite: unknown, or the error of a NaN.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return json.Marshal(f)
	}
	return []byte("null"), nil
}

var unknown = number(math.NaN())

// record is what a report says of a tensor.
type record struct {
	Name  string           `json:"name"`
	DType tensorfile.DType `json:"dtype"`
	Shape []int64          `json:"shape"`

	Format   string `json:"format"` // empty where it is stored as it is
	Block    int64  `json:"block"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
	Elements int64  `json:"elements"`

	MaxAbsError     number `json:"max_abs_error"`
	MeanAbsError    number `json:"mean_abs_error"`
	RMSError        number `json:"rms_error"`
	NonFiniteBlocks int64  `json:"nonfinite_blocks"`

	*matrices // of orthogonalize

	overflows        int64 // of dequantize: finite values that the dtype has as Inf
	copied, measured bool
	clipped          bool // whether values have no code near them, being negative
}

func recordOf(t tensorfile.Tensor) *record {
	return &record{
		Name: t.Name, DType: t.DType, Shape: append([]int64{}, t.Shape...), BytesIn: t.Bytes, BytesOut: t.Bytes,
		Elements: t.Elements(), MaxAbsError: unknown, MeanAbsError: unknown, RMSError: unknown,
	}
}

// setErrors fills in the error statistics.
func (r *record) setErrors(s errorStats) {
	r.measured = true
	r.MaxAbsError, r.MeanAbsError, r.RMSError = number(s.max), number(s.mean()), number(s.rms())
}

// report is the JSON of the commands that work on tensors.
type report struct {
	Tensors []*record `json:"tensors"`
	Copied  []string  `json:"copied"`
}

func newReport(records []*record) report {
	r := report{[]*record{}, []string{}}
	for _, record := range records {
		if record.copied {
			r.Copied = append(r.Copied, record.Name)
		} else {
			r.Tensors = append(r.Tensors, record)
		}
	}
	return r
}

func (e *env) printRecords(records []*record) error {
	rows := [][]string{{"TENSOR", "DTYPE", "SHAPE", "FORMAT", "BLOCK", "BYTES IN", "BYTES OUT", "MAX ERROR", "MEAN ERROR", "RMS ERROR"}}
	for _, r := range records {
		rows = append(rows, append([]string{
			printable(r.Name), printable(string(r.DType)), shapeText(r.Shape), r.formatText(), r.blockText(),
			strconv.FormatInt(r.BytesIn, 10), strconv.FormatInt(r.BytesOut, 10)}, r.errorTexts()...))
	}
	return printTable(e.stdout, rows)
}

func (r *record) formatText() string {
	switch {
	case r.copied:
		return "copied"
	case r.Format == "":
		return "-"
	}
	return r.Format
}

func (r *record) blockText() string {
	if r.Block == 0 {
		return "-"
	}
	return strconv.FormatInt(r.Block, 10)
}

func (r *record) errorTexts() []string {
	if !r.measured {
		return []string{"-", "-", "-"}
	}
	texts := []string{}
	for _, n := range []number{r.MaxAbsError, r.MeanAbsError, r.RMSError} {
		texts = append(texts, errorText(n))
	}
	return texts
}

func errorText(n number) string { return strconv.FormatFloat(float64(n), 'g', 4, 64) }

func (e *env) printJSON(v any) error {
	encoder := json.NewEncoder(e.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// printTable prints rows of cells in columns, the first row being their titles.
func printTable(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// printable quotes a name that would break a line or a table.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || name == "" || strings.Contains(name, " ") {
		return quoted
	}
	return name
}

func shapeText(shape []int64) string {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(dims, ",") + "]"
}
