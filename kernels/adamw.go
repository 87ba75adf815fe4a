package kernels

import (
	"fmt"
	"sync"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// AdamWFunc is the signature of the adamw rows.
type AdamWFunc func(t *AdamWTensors, s *AdamWScalars) Counts

// AdamWOps are the rows of one storage of the moments: one for each pair of formats of
// the weights and the gradients.
type AdamWOps [len(adamWPairs)]*Op[AdamWFunc]

type adamWPair struct {
	name               string
	weights, gradients bool    // whether in bf16
	weight, gradient   float64 // bytes
}

// adamWPairs are the formats of weights and gradients.
var adamWPairs = [4]adamWPair{
	{"float32", false, false, 4, 4},
	{"bfloat16", true, true, 2, 2},
	{"bfloat16_float32", true, false, 2, 4},
	{"float32_bfloat16", false, true, 4, 2},
}

var (
	OpAdamWFloat32  = declareAdamW("adamw_float32", "", []float64{4, 4}, fast.adamWFloat32)
	OpAdamWBF16     = declareAdamW("adamw_bfloat16", "", []float64{2, 2}, fast.adamWBF16)
	OpAdamW8bit     = declareAdamW("adamw_8bit", "", []float64{1, 1}, fast.adamW8bit)
	OpAdamW4bit     = declareAdamW("adamw_4bit", "vector_", []float64{0.5, 0.5}, fast.adamW4bit)
	OpAdamWFactored = declareAdamW("adamw_4bit", "factored_", []float64{0.5}, fast.adamWFactored)
)

func declareAdamW(name, storage string, moments []float64, fast [len(adamWPairs)][]Impl[AdamWFunc]) AdamWOps {
	var ops AdamWOps
	for i, pair := range adamWPairs {
		streams := Streams{Read: []float64{pair.gradient}, InPlace: append([]float64{pair.weight}, moments...)}
		op := Op[AdamWFunc]{Name: name, Variant: storage + pair.name, Streams: streams}
		ops[i] = declare(op, referenceAdamW, fast[i])
	}
	return ops
}

func referenceAdamW(t *AdamWTensors, s *AdamWScalars) Counts { return reference.AdamW(*t, s) }

func (p adamWPair) of(weights, gradients Floats) bool {
	return p.weights == (weights.BF16 != nil) && p.gradients == (gradients.BF16 != nil)
}

// Of is the row for the formats of these weights and gradients.
func (ops *AdamWOps) Of(t *AdamWTensors) *Op[AdamWFunc] {
	for i, pair := range adamWPairs {
		if pair.of(t.Weights, t.Gradients) {
			return ops[i]
		}
	}
	return nil
}

// OpAdamW is the row that steps these tensors.
func OpAdamW(t *AdamWTensors) *Op[AdamWFunc] {
	switch {
	case t.V.Factored():
		return OpAdamWFactored.Of(t)
	case t.M.Quantized() && t.M.Format.Codebook.Bits() == 4:
		return OpAdamW4bit.Of(t)
	case t.M.Quantized():
		return OpAdamW8bit.Of(t)
	case t.M.BF16 != nil:
		return OpAdamWBF16.Of(t)
	default:
		return OpAdamWFloat32.Of(t)
	}
}

// AdamW does one step of AdamW (Loshchilov and Hutter, 2019) on a parameter, or of
// NAdamW, in one pass: gradients are widened to float32, moments too, and the update
// uses the new moments before each is rounded or quantised once to its storage, and the
// weights to theirs.
//
// Weights and gradients are float32 or bf16. Both moments have one storage: float32,
// bf16, or codes of one width and block size, which for 4-bit codes may go with a
// factored second moment. A step may be split into pieces that begin at multiples of
// the block (t.First says where).
//
// Where s.SkipNonFinite is set, an element (float32 and bf16 moments) or a block (codes)
// with a gradient, new moment or new weight that is not finite is left as it was. The
// result counts both.
func AdamW(t *AdamWTensors, s *AdamWScalars, limit ...Threads) (Counts, error) {
	if err := checkAdamW(t); err != nil {
		return Counts{}, err
	}
	if n := t.Weights.Len(); 0 < n && n <= smallAdamW {
		return stepSmall(t, s), nil
	}
	align := randomGroup
	if t.M.Quantized() {
		align = pieceAlign(t.M.Format)
	}
	return adamWSplit.run(adamWArgs{*t, *s, OpAdamW(t).run}, t.Weights.Len(), align, limit), nil
}

// smallAdamW is a number of elements that are stepped without splitting them, which takes
// longer than the step of a few.
const smallAdamW = 2048

// stepSmall works on a copy, so that the caller's need not be on the heap.
func stepSmall(t *AdamWTensors, s *AdamWScalars) Counts {
	args := adamWSmall.Get().(*adamWArgs)
	args.tensors, args.scalars = *t, *s
	counts := OpAdamW(t).run(&args.tensors, &args.scalars)
	args.tensors = AdamWTensors{} // the pool keeps nobody's slices alive
	adamWSmall.Put(args)
	return counts
}

var adamWSmall = sync.Pool{New: func() any { return new(adamWArgs) }}

// randomGroup is the number of elements whose random bits are drawn together.
const randomGroup = 8

type adamWArgs struct {
	tensors AdamWTensors
	scalars AdamWScalars
	run     AdamWFunc
}

var adamWSplit = split(func(a *adamWArgs, lo, hi int) Counts {
	piece := adamWPieces.Get().(*AdamWTensors)
	*piece = a.tensors.Slice(lo, hi)
	counts := a.run(piece, &a.scalars)
	*piece = AdamWTensors{} // the pool keeps nobody's slices alive
	adamWPieces.Put(piece)
	return counts
})

var adamWPieces = sync.Pool{New: func() any { return new(AdamWTensors) }}

func checkAdamW(t *AdamWTensors) error {
	const op = "adamw"
	n := t.Weights.Len()
	if err := checkFirst(op, t.First); err != nil {
		return err
	}
	if err := checkWeights(op, t.Weights, t.Low); err != nil {
		return err
	}
	if err := checkFloats(op, "gradients", t.Gradients, n); err != nil {
		return err
	}
	if err := checkMoment(op, "first moment", "adamw first moment", t.M, n); err != nil {
		return err
	}
	if err := checkSecondMoment(t, n); err != nil {
		return err
	}
	return disjoint(op,
		floatsSpan("weights", t.Weights), spanOf("low", t.Low), floatsSpan("gradients", t.Gradients),
		floatsSpan("first moment", t.M.Floats), floatsSpan("second moment", t.V.Floats),
		spanOf("first moment codes", t.M.Codes), spanOf("second moment codes", t.V.Codes),
		spanOf("first moment scales", t.M.Scales), spanOf("second moment scales", t.V.Scales),
		spanOf("row factors", t.V.Row), spanOf("column factors", t.V.Col))
}

func checkWeights(op string, weights Floats, low []uint16) error {
	n := weights.Len()
	if err := checkFloats(op, "weights", weights, n); err != nil {
		return err
	}
	if low != nil && len(low) != n {
		return lengthError(op, "low", len(low), n, "as the weights")
	}
	if low != nil && n > 0 && weights.BF16 == nil {
		return fmt.Errorf("%s: a split master needs bf16 weights, found float32", op)
	}
	return nil
}

func checkFloats(op, name string, f Floats, n int) error {
	if f.F32 != nil && f.BF16 != nil {
		return fmt.Errorf("%s: %s are given in float32 and in bf16, want one of them", op, name)
	}
	if f.Len() != n {
		return lengthError(op, name, f.Len(), n, "as the weights")
	}
	return nil
}

// checkMoment takes the operation and the name also as one string, which is not put
// together on every call.
func checkMoment(op, name, opName string, m Moment, n int) error {
	if m.Quantized() {
		if m.Floats.Len() != 0 {
			return fmt.Errorf("%s has codes and numbers, want one of them", opName)
		}
		return checkFormat(opName, m.Codes, m.Scales, n, m.Format)
	}
	return checkFloats(op, name, m.Floats, n)
}

func checkSecondMoment(t *AdamWTensors, n int) error {
	m, v := &t.M, &t.V
	if v.Factored() {
		if v.Quantized() || v.Floats.Len() != 0 {
			return fmt.Errorf("adamw: the second moment has factors and elements, want one of them")
		}
		if !m.Quantized() || m.Format.Codebook.Bits() != 4 {
			return fmt.Errorf("adamw: a factored second moment needs a first moment of 4-bit codes")
		}
		rows, cols := int64(len(v.Row)), int64(len(v.Col))
		if t.First > rows*cols-int64(n) {
			return fmt.Errorf("adamw: %d elements from %d on are outside of the %dx%d factors", n, t.First, rows, cols)
		}
		return nil
	}
	if err := checkMoment("adamw", "second moment", "adamw second moment", *v, n); err != nil {
		return err
	}
	switch {
	case m.Quantized() != v.Quantized() || (m.BF16 != nil) != (v.BF16 != nil):
		return fmt.Errorf("adamw: the moments have different storage, want the same for both")
	case !m.Quantized():
		return nil
	case m.Format.Block != v.Format.Block:
		return fmt.Errorf("adamw: the moments have blocks of %d and %d, want the same for both", m.Format.Block, v.Format.Block)
	case m.Format.Codebook.Bits() != v.Format.Codebook.Bits():
		return fmt.Errorf("adamw: the moments have codes of %d and %d bits, want the same for both", m.Format.Codebook.Bits(), v.Format.Codebook.Bits())
	}
	return nil
}
