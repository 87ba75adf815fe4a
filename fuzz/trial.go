// Package fuzz holds one trial for each row of the table of package kernels: it turns
// any bytes into a valid input of the operation, runs an implementation on it and
// compares all that it wrote with the reference. Tests, fuzz targets and the verify
// command range over the trials; so can the tests of another implementation.
package fuzz

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lowbit-go/lowbit/kernels"
)

// Trial compares the implementations of one row of the table with its reference.
type Trial struct {
	row    kernels.Row
	decode func(in *input) any // an experiment
	find   func(implementation string) (f any, ok bool)
	run    func(f any, name string, in *input, mem memory) Result
}

// Result is what one comparison found. Every result of an operation counts: numbers,
// codes, scales, counts, and memory around the arrays that it was given.
type Result struct {
	Elements   int64   // results compared
	Mismatches int64   // of them: other bits than the reference's, or beyond the row's bound
	MaxError   float64 // the largest difference; of rows with a tolerance, as a fraction of the bound
	First      string  // describes the first mismatch and the input, with the bytes that Check takes
}

// Trials returns a trial for each row of kernels.Table, in its order.
func Trials() []Trial {
	ordered := []Trial{}
	for _, row := range kernels.Table() {
		for _, t := range all {
			if t.row.Name == row.Name && t.row.Variant == row.Variant {
				ordered = append(ordered, t)
			}
		}
	}
	return ordered
}

// TrialsOf returns the trials of the rows of an operation, such as quantize, in the
// table's order; none where no operation has that name.
func TrialsOf(operation string) []Trial {
	return slices.DeleteFunc(Trials(), func(t Trial) bool { return t.row.Name != operation })
}

var all = slices.Concat(quantizeTrials, dequantizeTrials, conversionTrials, sumTrials, factorTrials, adamWTrials,
	muonTrials, productTrials, newtonSchulzTrials)

// Row is the row of the table that is tried.
func (t Trial) Row() kernels.Row { return t.row }

// Check runs an implementation on the input that data stands for, which may be any
// bytes, and compares it with the reference. An implementation that this processor
// cannot run is a mismatch.
func (t Trial) Check(implementation string, data []byte) Result {
	in := newInput(data)
	return t.checkNamed(implementation, in, in.memory())
}

func (t Trial) checkNamed(implementation string, in *input, mem memory) Result {
	f, ok := t.find(implementation)
	if !ok {
		return Result{Mismatches: 1, First: t.name() + " " + implementation + ": no such implementation, or none for this processor"}
	}
	return t.run(f, implementation, in, mem)
}

// CheckFunc is Check for a function of the caller's, of the type that the row's
// implementations have in package kernels, such as kernels.QuantizeFunc. Another type is a
// mismatch.
func (t Trial) CheckFunc(f any, data []byte) Result {
	in := newInput(data)
	return t.run(f, "the caller's", in, in.memory())
}

func (t Trial) name() string { return strings.TrimSpace(t.row.Name + " " + t.row.Variant) }

// experiment is an input of an operation of signature F. It can be run many times.
type experiment[F any] interface {
	run(f F, mem memory) output
}

// trials makes the trials of rows that share a signature, from the function that decodes
// an input for one of them.
func trials[F any, E experiment[F]](decode func(op *kernels.Op[F], in *input) E, ops ...*kernels.Op[F]) []Trial {
	list := make([]Trial, len(ops))
	for i, op := range ops {
		experiment := func(in *input) any { return decode(op, in) }
		find := func(implementation string) (any, bool) { return find(op, implementation) }
		t := Trial{op.Row(), experiment, find, nil}
		t.run = func(f any, name string, in *input, mem memory) Result {
			name = t.name() + " " + name
			value, want := reflect.ValueOf(f), reflect.TypeFor[F]()
			if !value.IsValid() || !value.CanConvert(want) || value.IsNil() {
				return Result{Mismatches: 1, First: fmt.Sprintf("%s: it is %T, want %v", name, f, want)}
			}
			e := decode(op, in)
			got := e.run(value.Convert(want).Interface().(F), mem)
			result := got.compare(e.run(op.Impls[len(op.Impls)-1].Func, &padded{}))
			if damage := mem.damage(); damage != "" {
				result.mismatch(damage)
			}
			if result.First != "" {
				result.First = fmt.Sprintf("%s: %s, where %s", name, result.First, in.description())
			}
			return result
		}
		list[i] = t
	}
	return list
}

func find[F any](op *kernels.Op[F], name string) (f any, ok bool) {
	for _, impl := range op.Impls {
		if impl.Name == name && impl.Available() {
			return impl.Func, true
		}
	}
	return nil, false
}

func (r *Result) mismatch(what string) {
	r.Mismatches++
	if r.First == "" {
		r.First = what
	}
}
