package kernels

import (
	"slices"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

// Class says how closely the implementations of an operation agree.
type Class int

const (
	Exact     Class = iota // the same bits as the reference
	Tolerance              // within a stated bound of the reference
)

func (c Class) String() string { return [...]string{"exact", "tolerance"}[c] }

// Op is a row of the table: one operation in one variant, with its implementations,
// best first and the reference last. F is its signature.
type Op[F any] struct {
	Name, Variant string
	Class         Class
	Streams       Streams
	Impls         []Impl[F]

	run      F // the first available implementation, chosen once
	many     adamWManyFunc
	matrices adamWMatricesFunc
}

// Streams are the arrays that an operation goes through, each by its bytes an element:
// those that it reads, those that it writes, and those that it does both with, in place.
// Scales, which are a few bytes a block, are left out. Matrix products have none.
type Streams struct{ Read, Write, InPlace []float64 }

// Bytes is how many are read and written an element.
func (s Streams) Bytes() (sum float64) {
	for _, bytes := range slices.Concat(s.Read, s.Write, s.InPlace, s.InPlace) {
		sum += bytes
	}
	return sum
}

// Impl is one implementation of an operation and the CPU features that it needs.
type Impl[F any] struct {
	Name     string
	Needs    cpufeature.Set
	Func     F
	many     adamWManyFunc     // does what Func does, for many small parameters; nil where there is none
	matrices adamWMatricesFunc // the same of those that have factors, with them
}

// Available tells whether this process can run the implementation.
func (i Impl[F]) Available() bool { return cpufeature.Available.Has(i.Needs) }

// Row describes an operation without its signature.
type Row struct {
	Name, Variant   string
	Class           Class
	Streams         Streams
	Selected        string           // the name of the implementation that calls use
	Implementations []Implementation // best first, the reference last
}

// Implementation describes an implementation of a row.
type Implementation struct {
	Name      string
	Available bool
	Needs     []string // CPU features
	Missing   []string // those of them that the processor lacks or LOWBIT_DISABLE names
}

var table []Row

// Table lists every operation, in a fixed order. It is shared: nobody changes it.
func Table() []Row { return table }

// declare adds a row to the table and chooses its implementation.
func declare[F any](op Op[F], reference F, fast []Impl[F]) *Op[F] {
	op.Impls = append(fast[:len(fast):len(fast)], Impl[F]{Name: "reference", Func: reference})
	row := Row{Name: op.Name, Variant: op.Variant, Class: op.Class, Streams: op.Streams}
	for _, impl := range op.Impls {
		if impl.Available() && row.Selected == "" {
			row.Selected = impl.Name
			op.run, op.many, op.matrices = impl.Func, impl.many, impl.matrices
		}
		row.Implementations = append(row.Implementations, Implementation{
			Name: impl.Name, Available: impl.Available(),
			Needs: impl.Needs.Names(), Missing: (impl.Needs &^ cpufeature.Available).Names(),
		})
	}
	table = append(table, row)
	return &op
}

// Row is the operation's row of the table.
func (op *Op[F]) Row() Row {
	for _, row := range table {
		if row.Name == op.Name && row.Variant == op.Variant {
			return row
		}
	}
	return Row{}
}
