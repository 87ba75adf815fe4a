package optim

import (
	"fmt"
	"math"
	"strings"

	"github.com/lowbit-go/lowbit/kernels"
)

// Param is a parameter of a model as the optimizer sees it.
type Param struct {
	// Name is unique. It names the parameter in groups, checkpoints and errors, and seeds
	// its random streams.
	Name string
	// Shape is row-major; a scalar has none. Weights has as many elements.
	Shape []int64
	// Role is token_embedding, matrix, conv or vector. Empty means matrix for two axes or
	// more, of which all but the last two are a stack of matrices, and vector otherwise. A
	// conv is one matrix, [Shape[0], the rest].
	//
	// With adam_8bit a token_embedding keeps float32 moments; other AdamW configurations
	// make no difference between roles. Muon steps every matrix, conv and token_embedding,
	// and AdamW the vectors: send an embedding to AdamW by a group with optimizer adamw.
	Role string
	// InputAxis is the axis of a matrix that its input meets: 0 for [in, out], 1 for
	// [out, in] as torch has them. Muon scales its update by it, whatever its variant. A conv
	// is always [out, in].
	InputAxis int
	// StatePrecision is 8bit or fp32 (uint8 and int8, float32 are other names), or empty
	// for what the group, the role and the configuration say, in this order.
	StatePrecision string
	// Weights are updated in place by each step; Gradients are read. Both are float32 or
	// bf16, and may be different. A parameter without gradients is left alone. Both may be
	// replaced between steps by others of the same length and format; only New checks that no
	// other parameter's weights lie in them.
	Weights, Gradients kernels.Floats
}

const (
	roleTokenEmbedding = "token_embedding"
	roleMatrix         = "matrix"
	roleConv           = "conv"
	roleVector         = "vector"
)

// storage is how the moments of a parameter are kept.
type storage int

const (
	storeFloat32 storage = iota
	storeBF16
	store8bit
	store4bit     // codes for both moments
	storeFactored // codes for the first moment, factors for the second
)

var storageNames = [...]string{"float32", "bfloat16", "8-bit", "4-bit", "4-bit factored"}

func (s storage) String() string { return storageNames[s] }

// parameter is a Param with everything that the configuration settled for it, and its
// state.
type parameter struct {
	*Param
	n                    int  // elements
	narrow               bool // whether the weights are bf16
	hasSums              bool
	muon                 bool // else AdamW
	storage              storage
	lrScale, weightDecay float64
	step                 *int64   // updates so far
	tied                 []*Param // later names of it
	moments              moments

	// What follows is not read for each of many small parameters.
	role   string
	shape  matrixShape
	layout stateLayout
	home   *batch   // that it is offloaded with, or nil
	sums   []uint16 // bf16 sums of the gradients of micro-batches, or nil

	seedM, seedV, seedW uint64

	adamWStep kernels.AdamWScalars // of the current step
	muonStep  muonStep
	skipped   int64 // elements that Muon's current step left untouched
}

// matrixShape is a parameter seen as a stack of matrices.
type matrixShape struct{ count, rows, cols int }

// gradients are the summed ones where micro-batches were accumulated.
func (p *parameter) gradients() kernels.Floats {
	if p.hasSums {
		return kernels.BF16s(p.sums)
	}
	return p.Gradients
}

func newParameter(param *Param, group ParamGroup, config Config) (*parameter, error) {
	p := &parameter{Param: param, lrScale: 1}
	if err := p.checkWeights(); err != nil {
		return nil, err
	}
	return p, p.settle(group, config)
}

// settle decides everything that does not depend on the weights.
func (p *parameter) settle(group ParamGroup, config Config) error {
	if err := p.settleRole(group); err != nil {
		return err
	}
	if group.LRScale != nil {
		p.lrScale = *group.LRScale
	}
	if axis := p.InputAxis; axis != 0 && axis != 1 {
		return p.errorf("input axis %d, want 0 for [in, out] or 1 for [out, in]", axis)
	}
	precision := statePrecision(p.StatePrecision)
	if precision == "" {
		precision = group.StatePrecision
	}
	if precision != "" && precision != "8bit" && precision != "fp32" {
		return p.errorf("state precision %q, want 8bit or fp32", p.StatePrecision)
	}
	return config.settle(p, precision, group)
}

func (p *parameter) errorf(format string, args ...any) error {
	return fmt.Errorf("optim: parameter %q: "+format, append([]any{p.Name}, args...)...)
}

// checkShape counts the elements. It leaves zeros out of the product, so that no part of
// it overflows.
func (p *parameter) checkShape() (elements int64, err error) {
	elements = 1
	product := int64(1)
	for _, n := range p.Shape {
		if n < 0 || n > 0 && product > math.MaxInt64/n {
			return 0, p.errorf("shape %v, want sizes of 0 or more with a product below 2^63", p.Shape)
		}
		elements *= n
		product *= max(n, 1)
	}
	return elements, nil
}

func (p *parameter) checkWeights() error {
	elements, err := p.checkShape()
	if err != nil {
		return err
	}
	if p.Weights.F32 != nil && p.Weights.BF16 != nil {
		return p.errorf("weights are given in float32 and in bf16, want one of them")
	}
	p.n, p.narrow = p.Weights.Len(), p.Weights.BF16 != nil
	if int64(p.n) != elements {
		return p.errorf("%d weights, want %d for shape %v", p.n, elements, p.Shape)
	}
	return nil
}

// checkSlices compares what the caller may have replaced with what New was given.
func (p *parameter) checkSlices() error {
	w, g := p.Weights, p.Gradients
	switch {
	case g.F32 != nil && g.BF16 != nil:
		return p.errorf("gradients are given in float32 and in bf16, want one of them")
	case w.F32 != nil && w.BF16 != nil || (w.BF16 != nil) != p.narrow || w.Len() != p.n:
		return p.errorf("the weights were replaced by others of another length or format")
	case g.Len() != 0 && g.Len() != p.n:
		return p.errorf("%d gradients, want %d as weights", g.Len(), p.n)
	case g.Len() != 0 && memoryOf(g).overlaps(memoryOf(w)):
		return p.errorf("weights and gradients overlap, want separate memory")
	}
	for _, later := range p.tied {
		if err := checkTiedGradients(p.Param, later); err != nil {
			return err
		}
	}
	return nil
}

func (p *parameter) settleRole(group ParamGroup) error {
	rank := len(p.Shape)
	p.role = p.Role
	if p.role == "" {
		p.role = group.Role
	}
	if p.role == "" {
		p.role = roleVector
		if rank >= 2 {
			p.role = roleMatrix
		}
	}
	switch p.role {
	case roleVector:
		return nil
	case roleTokenEmbedding, roleMatrix, roleConv:
	default:
		return p.errorf("role %q, want one of %s", p.role, strings.Join([]string{roleTokenEmbedding, roleMatrix, roleConv, roleVector}, ", "))
	}
	if rank < 2 {
		return p.errorf("role %s needs two axes or more, found shape %v", p.role, p.Shape)
	}
	p.shape = matrixShape{1, int(p.Shape[0]), 1}
	if p.role == roleConv {
		for _, n := range p.Shape[1:] {
			p.shape.cols *= int(n)
		}
		return nil
	}
	p.shape.rows, p.shape.cols = int(p.Shape[rank-2]), int(p.Shape[rank-1])
	for _, n := range p.Shape[:rank-2] {
		p.shape.count *= int(n)
	}
	return nil
}

// fans are the sizes of a matrix's input and output.
func (p *parameter) fans() (in, out int) {
	if p.InputAxis == 1 || p.role == roleConv {
		return p.shape.cols, p.shape.rows
	}
	return p.shape.rows, p.shape.cols
}
