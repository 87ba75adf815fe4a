package kernels

import (
	"fmt"

	"github.com/lowbit-go/lowbit/kernels/reference"
)

// The signatures of Muon's elementwise rows.
type (
	MuonDirectionFunc func(dst []float32, t MuonTensors, s *MuonScalars)
	MuonUpdateFunc    func(t MuonTensors, s *MuonScalars)
)

// muonStorages are the ways to keep a momentum, and the bytes of an element.
var muonStorages = [...]struct {
	name  string
	bytes float64
}{{"float32", 4}, {"bfloat16", 2}, {"8bit", 1}}

var (
	OpMuonDirection = declareMuonDirection()
	OpMuonUpdate    = declareMuonUpdate()
)

// declareMuonDirection makes a row for each storage of the momentum and format of the
// gradients, float32 and bf16.
func declareMuonDirection() (ops [len(muonStorages)][2]*Op[MuonDirectionFunc]) {
	for i, storage := range muonStorages {
		for j, gradients := range muonStorages[:2] {
			ops[i][j] = declare(Op[MuonDirectionFunc]{
				Name: "muon_direction", Variant: storage.name + "_" + gradients.name,
				Streams: Streams{Read: []float64{storage.bytes, gradients.bytes}, Write: []float64{4}},
			}, reference.MuonDirection, fast.muonDirection[i][j])
		}
	}
	return ops
}

// declareMuonUpdate makes a row for each storage of the momentum and pair of formats of
// weights and gradients.
func declareMuonUpdate() (ops [len(muonStorages)][len(adamWPairs)]*Op[MuonUpdateFunc]) {
	for i, storage := range muonStorages {
		for j, pair := range adamWPairs {
			ops[i][j] = declare(Op[MuonUpdateFunc]{
				Name: "muon_update", Variant: storage.name + "_" + pair.name,
				Streams: Streams{Read: []float64{pair.gradient, 4}, InPlace: []float64{pair.weight, storage.bytes}},
			}, reference.MuonUpdate, fast.muonUpdate[i][j])
		}
	}
	return ops
}

func muonStorage(m Moment) int {
	switch {
	case m.Quantized():
		return 2
	case m.BF16 != nil:
		return 1
	default:
		return 0
	}
}

// MuonDirection sets dst to the direction that Muon (Jordan et al., 2024) orthogonalises:
// a combination of the gradient and of the momentum as this gradient will make it. It
// changes neither, so a step can still be given up. dst and the tensors have one length;
// the momentum is float32, bf16 or 8-bit codes; t.Weights and t.Update are not used.
func MuonDirection(dst []float32, t *MuonTensors, s *MuonScalars, limit ...Threads) error {
	const op = "muon_direction"
	if err := checkMomentum(op, t, len(dst)); err != nil {
		return err
	}
	if err := disjoint(op, spanOf("dst", dst), floatsSpan("gradients", t.Gradients), floatsSpan("momentum", t.Momentum.Floats),
		spanOf("momentum codes", t.Momentum.Codes), spanOf("momentum scales", t.Momentum.Scales)); err != nil {
		return err
	}
	gradients := 0
	if t.Gradients.BF16 != nil {
		gradients = 1
	}
	piece := *t
	piece.Weights, piece.Low, piece.Update = Floats{}, nil, nil
	run := OpMuonDirection[muonStorage(t.Momentum)][gradients].run
	if small(len(dst)) {
		run(dst, piece, s)
		return nil
	}
	muonDirectionSplit.run(muonArgs{dst: dst, tensors: piece, scalars: *s, direction: run}, len(dst), muonAlign(t), limit)
	return nil
}

// MuonUpdate stores the new momentum and updates the weights by t.Update, the
// orthogonalised direction of the same gradient, in one pass. All tensors have one length;
// weights and gradients are float32 or bf16, the momentum float32, bf16 or 8-bit codes.
func MuonUpdate(t *MuonTensors, s *MuonScalars, limit ...Threads) error {
	n := t.Weights.Len()
	if err := CheckMuon(t); err != nil {
		return err
	}
	if len(t.Update) != n {
		return lengthError("muon_update", "update", len(t.Update), n, "as the weights")
	}
	for i, pair := range adamWPairs {
		if pair.of(t.Weights, t.Gradients) {
			run := OpMuonUpdate[muonStorage(t.Momentum)][i].run
			if small(n) {
				run(*t, s)
				return nil
			}
			muonUpdateSplit.run(muonArgs{tensors: *t, scalars: *s, update: run}, n, muonAlign(t), limit)
		}
	}
	return nil
}

// CheckMuon is the error that MuonUpdate has of these tensors without their update, if any.
func CheckMuon(t *MuonTensors) error {
	const op = "muon_update"
	if err := checkWeights(op, t.Weights, t.Low); err != nil {
		return err
	}
	if err := checkMomentum(op, t, t.Weights.Len()); err != nil {
		return err
	}
	return disjoint(op, floatsSpan("weights", t.Weights), spanOf("low", t.Low), spanOf("update", t.Update),
		floatsSpan("gradients", t.Gradients), floatsSpan("momentum", t.Momentum.Floats),
		spanOf("momentum codes", t.Momentum.Codes), spanOf("momentum scales", t.Momentum.Scales))
}

func checkMomentum(op string, t *MuonTensors, n int) error {
	if err := checkFirst(op, t.First); err != nil {
		return err
	}
	if err := checkFloats(op, "gradients", t.Gradients, n); err != nil {
		return err
	}
	if t.Momentum.Factored() {
		return fmt.Errorf("%s: the momentum is factored, want numbers or codes", op)
	}
	if t.Momentum.Quantized() && t.Momentum.Format.Codebook.Bits() != 8 {
		return fmt.Errorf("%s: the momentum has codes of %d bits, want 8", op, t.Momentum.Format.Codebook.Bits())
	}
	return checkMoment(op, "momentum", "muon momentum", t.Momentum, n)
}

func muonAlign(t *MuonTensors) int {
	if t.Momentum.Quantized() {
		return pieceAlign(t.Momentum.Format)
	}
	return randomGroup
}

type muonArgs struct {
	dst       []float32
	tensors   MuonTensors
	scalars   MuonScalars
	direction MuonDirectionFunc
	update    MuonUpdateFunc
}

var muonDirectionSplit = split(func(a *muonArgs, lo, hi int) Counts {
	a.direction(a.dst[lo:hi], a.tensors.Slice(lo, hi), &a.scalars)
	return Counts{}
})

var muonUpdateSplit = split(func(a *muonArgs, lo, hi int) Counts {
	a.update(a.tensors.Slice(lo, hi), &a.scalars)
	return Counts{}
})
