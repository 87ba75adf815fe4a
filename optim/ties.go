package optim

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/lowbit-go/lowbit/kernels"
)

// memory is where the numbers of a vector lie.
type memory struct {
	lo, hi uintptr
	bf16   bool
}

func memoryOf(f kernels.Floats) memory {
	if f.BF16 != nil {
		lo := uintptr(unsafe.Pointer(unsafe.SliceData(f.BF16)))
		return memory{lo, lo + 2*uintptr(len(f.BF16)), true}
	}
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(f.F32)))
	return memory{lo, lo + 4*uintptr(len(f.F32)), false}
}

func (m memory) overlaps(other memory) bool { return m.lo < other.hi && other.lo < m.hi }

// untie drops the parameters whose weights an earlier one has, and lists them by that one.
func untie(params []Param) (distinct []*Param, tied map[*Param][]*Param, err error) {
	names := map[string]bool{}
	owners := map[memory]*Param{}
	tied = map[*Param][]*Param{}
	for i := range params {
		p := &params[i]
		if err := checkName(i, p.Name, names); err != nil {
			return nil, nil, err
		}
		at := memoryOf(p.Weights)
		owner := owners[at]
		if owner == nil || p.Weights.Len() == 0 {
			owners[at] = p
			distinct = append(distinct, p)
			continue
		}
		if err := checkTie(owner, p); err != nil {
			return nil, nil, err
		}
		tied[owner] = append(tied[owner], p)
	}
	return distinct, tied, checkApart(distinct)
}

// checkName adds the name of parameter i to those seen before.
func checkName(i int, name string, seen map[string]bool) error {
	switch {
	case name == "":
		return fmt.Errorf("optim: parameter %d has no name", i)
	case !utf8.ValidString(name):
		return fmt.Errorf("optim: the name of parameter %d, %q, is not UTF-8", i, name)
	case seen[name]:
		return fmt.Errorf("optim: two parameters are called %q, want distinct names", name)
	}
	seen[name] = true
	return nil
}

// checkTie refuses what the later name of a parameter says and the first does not.
func checkTie(first, later *Param) error {
	for _, setting := range []struct{ name, first, later string }{
		{"role", first.Role, later.Role},
		{"state precision", statePrecision(first.StatePrecision), statePrecision(later.StatePrecision)},
	} {
		if setting.later != "" && setting.later != setting.first {
			return fmt.Errorf("optim: parameters %q and %q are tied but have %s %q and %q, want one",
				first.Name, later.Name, setting.name, setting.first, setting.later)
		}
	}
	return checkTiedGradients(first, later)
}

func checkTiedGradients(first, later *Param) error {
	if later.Gradients.Len() > 0 && memoryOf(later.Gradients) != memoryOf(first.Gradients) {
		return fmt.Errorf("optim: parameters %q and %q are tied but have different gradients, want one", first.Name, later.Name)
	}
	return nil
}

// checkApart refuses weights that share a part of their memory, or lie in others' gradients.
func checkApart(params []*Param) error {
	type vector struct {
		memory
		*Param
		weights bool
	}
	var vectors []vector
	for _, p := range params {
		if p.Weights.Len() > 0 {
			vectors = append(vectors, vector{memoryOf(p.Weights), p, true})
		}
		if p.Gradients.Len() > 0 {
			vectors = append(vectors, vector{memoryOf(p.Gradients), p, false})
		}
	}
	slices.SortStableFunc(vectors, func(a, b vector) int { return cmp.Compare(a.lo, b.lo) })
	var weights, gradients vector // that reach furthest
	for _, v := range vectors {
		switch {
		case v.weights && weights.overlaps(v.memory):
			return fmt.Errorf("optim: parameters %q and %q share a part of their weights, want all or nothing", weights.Name, v.Name)
		case v.weights && gradients.overlaps(v.memory) && gradients.Param != v.Param:
			return fmt.Errorf("optim: the gradients of parameter %q overlap the weights of %q, want separate memory", gradients.Name, v.Name)
		case !v.weights && weights.overlaps(v.memory) && weights.Param != v.Param:
			return fmt.Errorf("optim: the gradients of parameter %q overlap the weights of %q, want separate memory", v.Name, weights.Name)
		}
		if v.weights {
			weights = v
		} else if v.hi > gradients.hi {
			gradients = v
		}
	}
	return nil
}
