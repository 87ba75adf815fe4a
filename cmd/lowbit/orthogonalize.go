package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

type orthogonalizeCmd struct {
	conversion
	Coeffs string `default:"jordan" placeholder:"NAME" help:"The Newton-Schulz polynomials: jordan by default, of ${polynomials}, polar-express:LxN for N steps from a lower bound L such as 1e-3, or triples in JSON such as [[3.4445,-4.775,2.0315]]."`
	Steps  *int   `placeholder:"N" help:"Newton-Schulz steps; as many as there are triples by default, or 5 for one."`
	DType  string `name:"dtype" enum:"float32,bfloat16" default:"float32" placeholder:"DTYPE" help:"What to compute in: float32 (the default) or bfloat16."`
	Method string `enum:"standard,gram" default:"standard" placeholder:"NAME" help:"standard (the default), or gram, which is faster for matrices far from square."`
}

var orthogonalizeVars = kong.Vars{"polynomials": strings.Join(kernels.PolynomialNames(), ", ")}

func (*orthogonalizeCmd) Help() string {
	return `Each F32, F16 or BF16 tensor of two axes or more becomes its polar factor, approximated by Newton-Schulz steps as in the
optimizer Muon: its singular vectors stay, its singular values go towards 1. The axes before the last two are a stack of
matrices. The dtype stays; all other tensors, and the metadata, are copied. A matrix of zeros stays one; one that holds
NaN or Inf becomes NaN.

Examples:

    lowbit orthogonalize gradients.safetensors updates.safetensors --coeffs polar-express --steps 8
    lowbit orthogonalize gradients.safetensors updates.safetensors --coeffs polar-express:1e-3x8
    lowbit orthogonalize gradients.safetensors updates.safetensors --coeffs '[[1.5,-0.5,0]]' --steps 20
`
}

func (c *orthogonalizeCmd) Validate() error {
	_, err := c.plan()
	return err
}

// plan checks the flags that say how to orthogonalise.
func (c *orthogonalizeCmd) plan() (*kernels.NewtonSchulzPlan, error) {
	bfloat16 := c.DType == "bfloat16"
	triples, safety, err := c.polynomials(bfloat16)
	if err != nil {
		return nil, badInput("--coeffs and --steps: %s", strings.TrimPrefix(err.Error(), "newton-schulz: "))
	}
	plan := kernels.PlanNewtonSchulz(triples, safety)
	plan.BFloat16, plan.Gram, plan.GramRestart = bfloat16, c.Method == "gram", bfloat16
	return plan, nil
}

func (c *orthogonalizeCmd) polynomials(bfloat16 bool) (triples []kernels.Triple, safety float64, err error) {
	coeffs := optim.NSCoeffs{Preset: c.Coeffs}
	if strings.HasPrefix(strings.TrimSpace(c.Coeffs), "[") {
		if err := json.Unmarshal([]byte(c.Coeffs), &coeffs); err != nil {
			return nil, 0, err
		}
	}
	if names := kernels.PolynomialNames(); coeffs.Triples == nil && !slices.Contains(names, c.Coeffs) && !strings.HasPrefix(c.Coeffs, "polar-express:") {
		return nil, 0, fmt.Errorf("polynomial %.100q is not known, want one of %s, polar-express:LxN or triples in JSON", c.Coeffs, strings.Join(names, ", "))
	}
	return coeffs.Polynomials(c.Steps, bfloat16)
}

func (c *orthogonalizeCmd) Run(e *env) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	defer c.Threads.use()()
	o, err := e.produce(&c.conversion, func(o *output) error {
		if err := refuseQuantised(o.in); err != nil {
			return err
		}
		for _, t := range o.in.Tensors {
			if !isFloat(t.DType) || len(t.Shape) < 2 {
				o.copy(e, t)
			} else if err := c.orthogonalize(e, o, t, plan); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range o.records {
		r.warn(e)
	}
	if c.JSON {
		return e.printJSON(newReport(o.records))
	}
	return printMatrices(e, o.records, c.Out)
}

// matrices counts those of a tensor.
type matrices struct {
	Matrices  int64 `json:"matrices"`
	Zero      int64 `json:"zero_matrices"`
	NonFinite int64 `json:"nonfinite_matrices"`
}

// orthogonalize adds the job that replaces a tensor's matrices, one after another.
func (c *orthogonalizeCmd) orthogonalize(e *env, o *output, t tensorfile.Tensor, plan *kernels.NewtonSchulzPlan) error {
	index := o.tensor(t.Name, t.DType, t.Shape...)
	r := recordOf(t)
	r.matrices = &matrices{}
	rank := len(t.Shape)
	if t.Elements() == 0 {
		o.add(r, func(*tensorfile.Writer, func(int64)) error { return nil })
		return nil
	}
	size := t.Shape[rank-2] * t.Shape[rank-1]
	if size > mostInMemory {
		return badInput("%s: tensor %.100q has matrices of %d elements, want at most %d, which have to fit into memory", o.in.Path, t.Name, size, int64(mostInMemory))
	}
	rows, cols := int(t.Shape[rank-2]), int(t.Shape[rank-1])
	r.Matrices = t.Elements() / size
	o.add(r, func(w *tensorfile.Writer, done func(int64)) error {
		x, work := make([]float32, size), make([]float32, plan.WorkSize(rows, cols))
		matrix := kernels.Stack{Data: kernels.Float32s(x), Count: 1, Rows: rows, Cols: cols, Stride: cols}
		for k := range r.Matrices {
			if err := e.ctx.Err(); err != nil {
				return err
			}
			if err := o.in.ReadFloat32(t, x, k*size); err != nil {
				return err
			}
			if kernels.Absmax(x) == 0 {
				r.Zero++
			}
			poisoned, err := kernels.NewtonSchulz(matrix, matrix, plan, work)
			if err != nil {
				return err
			}
			r.NonFinite += int64(poisoned)
			if err := writeFloats(w, index, t.DType, x, k*size, &o.scratch, c.Threads.limit()); err != nil {
				return err
			}
			done(size * t.DType.Bits() / 8)
		}
		return nil
	})
	return nil
}

// warn names a tensor with matrices that have no polar factor.
func (r *record) warn(e *env) {
	if r.matrices == nil {
		return
	}
	if r.Zero > 0 {
		e.warn("tensor %.100q: %d of %d matrices are zero, and stay so", r.Name, r.Zero, r.Matrices)
	}
	if r.NonFinite > 0 {
		e.warn("tensor %.100q: %d of %d matrices hold NaN or Inf, and become NaN", r.Name, r.NonFinite, r.Matrices)
	}
}

func printMatrices(e *env, records []*record, out string) error {
	rows := [][]string{{"TENSOR", "DTYPE", "SHAPE", "MATRICES", "ZERO", "NON-FINITE"}}
	for _, r := range records {
		cells := []string{"copied", "-", "-"}
		if m := r.matrices; m != nil {
			cells = []string{strconv.FormatInt(m.Matrices, 10), strconv.FormatInt(m.Zero, 10), strconv.FormatInt(m.NonFinite, 10)}
		}
		rows = append(rows, append([]string{printable(r.Name), string(r.DType), shapeText(r.Shape)}, cells...))
	}
	if err := printTable(e.stdout, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(e.stdout, "wrote %s\n", out)
	return err
}
