// Package lm is the small byte-level language model that lowbit train compares optimizers
// with: embedded bytes, residual blocks of a causal depthwise convolution and a hidden
// layer, and a projection to the 256 bytes that may follow. It has parameters of every
// role an optimizer treats differently, and its results do not depend on GOMAXPROCS.
package lm

import (
	"fmt"
	"math"

	"github.com/lowbit-go/lowbit/bf16"
)

// vocabulary is the number of different tokens: one per byte.
const vocabulary = 256

// Config sizes a model. Every field is at least 1.
type Config struct {
	Width   int // channels of the residual stream
	Hidden  int // channels inside a block
	Layers  int // residual blocks
	Kernel  int // bytes that one convolution sees, the current one included
	Context int // bytes predicted in one row of a batch
}

// Default is the model that lowbit train uses.
var Default = Config{Width: 64, Hidden: 256, Layers: 2, Kernel: 4, Context: 64}

// Param is one parameter of a model. Weight and Grad are row-major views of the model's
// memory: change their elements, not the slices.
type Param struct {
	Name   string
	Shape  []int64
	Role   string // token_embedding, matrix, conv or vector
	Weight []float32
	Grad   []float32

	// InputAxis is the axis of a matrix that its input meets: 0 where the shape is
	// [in, out], 1 where it is [out, in].
	InputAxis int

	offset int // of Weight in the weights of the whole model
}

// Model holds the parameters and the scratch memory of Step and Loss, which therefore
// must not run at the same time.
type Model struct {
	config    Config
	params    []*Param
	embedding *Param
	blocks    []block
	norm      *Param // gain of the last normalisation
	head      *Param
	headBias  *Param

	grad       []float32   // of all parameters
	rowGrads   [][]float32 // the part of each row of a batch, laid out as grad
	losses     []float64   // of each row, summed over its positions
	workspaces []*workspace
}

// block is x + silu(conv(norm(x))·up + upBias)·down.
type block struct {
	norm, conv, convBias, up, upBias, down *Param
}

// New returns a model whose weights depend on the configuration and the seed alone, on
// every platform. A weight is uniform with variance 1/fan-in, less in the head; gains are 1
// and biases 0.
func New(c Config, seed uint64) *Model {
	m := &Model{config: c}
	width, hidden, kernel := int64(c.Width), int64(c.Hidden), int64(c.Kernel)
	add := func(name, role string, inputAxis int, shape ...int64) *Param {
		p := &Param{Name: name, Role: role, InputAxis: inputAxis, Shape: shape}
		m.params = append(m.params, p)
		return p
	}
	m.embedding = add("embedding", "token_embedding", 0, vocabulary, width)
	for i := range c.Layers {
		name := fmt.Sprintf("blocks.%d.", i)
		m.blocks = append(m.blocks, block{
			norm:     add(name+"norm", "vector", 0, width),
			conv:     add(name+"conv", "conv", 1, width, 1, kernel),
			convBias: add(name+"conv_bias", "vector", 0, width),
			up:       add(name+"up", "matrix", 0, width, hidden),
			upBias:   add(name+"up_bias", "vector", 0, hidden),
			down:     add(name+"down", "matrix", 0, hidden, width),
		})
	}
	m.norm = add("norm", "vector", 0, width)
	m.head = add("head", "matrix", 1, vocabulary, width)
	m.headBias = add("head_bias", "vector", 0, vocabulary)
	m.allocate()

	m.draw(m.embedding, seed, c.Width)
	fill(m.norm.Weight, 1)
	for _, b := range m.blocks {
		fill(b.norm.Weight, 1)
		m.draw(b.conv, seed, c.Kernel)
		m.draw(b.up, seed, c.Width)
		m.draw(b.down, seed, c.Hidden)
	}
	m.draw(m.head, seed, 16*c.Width) // nearly even odds at the start
	return m
}

// allocate gives every parameter its part of one array of weights and one of gradients.
func (m *Model) allocate() {
	total := 0
	for _, p := range m.params {
		p.offset = total
		total += elements(p.Shape)
	}
	weights := make([]float32, total)
	m.grad = make([]float32, total)
	for _, p := range m.params {
		end := p.offset + elements(p.Shape)
		p.Weight = weights[p.offset:end:end]
		p.Grad = m.grad[p.offset:end:end]
	}
}

// draw sets the weights of a parameter: uniform, with variance 1/fanIn, from 24 random
// bits each so that every float32 operation is exact but the last product.
func (m *Model) draw(p *Param, seed uint64, fanIn int) {
	bound := float32(math.Sqrt(3 / float64(fanIn)))
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	for i := range p.Weight {
		at := uint64(p.offset + i)
		words := bf16.Philox4x32([4]uint32{uint32(at / 4), uint32(at / 4 >> 32), 0, drawWeights}, key)
		unit := float32(int32(words[at%4]>>8)-1<<23) / (1 << 23)
		p.Weight[i] = unit * bound
	}
}

// The streams of one seed, told apart by the last counter word.
const (
	drawWeights = iota
	drawRows
)

// Params returns the parameters in a fixed order; the names are unique.
func (m *Model) Params() []*Param { return m.params }

// Step returns the mean loss over the batch in nats a byte and overwrites every Grad with
// the gradient of that mean. Each row must hold Context+1 bytes.
func (m *Model) Step(batch Batch) (float64, error) {
	if err := m.check(batch); err != nil {
		return 0, err
	}
	loss := m.run(batch, true)
	m.sumGrads(len(batch))
	return loss, nil
}

// Loss returns the mean loss over the batch in nats a byte and leaves gradients alone.
func (m *Model) Loss(batch Batch) (float64, error) {
	if err := m.check(batch); err != nil {
		return 0, err
	}
	return m.run(batch, false), nil
}

func (m *Model) check(batch Batch) error {
	if len(batch) == 0 {
		return fmt.Errorf("lm: the batch has no rows")
	}
	for i, row := range batch {
		if want := m.config.Context + 1; len(row) != want {
			return fmt.Errorf("lm: row %d of the batch has %d bytes, want %d", i, len(row), want)
		}
	}
	return nil
}

func elements(shape []int64) int {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return int(n)
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}
