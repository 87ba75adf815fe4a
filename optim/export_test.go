package optim

import (
	"bytes"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
)

// LoadBytes is Load of a file in memory.
func (o *Optimizer) LoadBytes(content []byte) (map[string]string, error) {
	f, err := tensorfile.Decode(bytes.NewReader(content), int64(len(content)), "memory")
	if err != nil {
		return nil, err
	}
	return o.load(f)
}

// SmallBatches lets few elements of Muon's matrices make a batch, until restore.
func SmallBatches() (restore func()) {
	workerElements = 1 << 8
	return func() { workerElements = 1 << 18 }
}

// SetSteps pretends that every parameter has had n updates.
func (o *Optimizer) SetSteps(n int64) {
	o.step = n
	for _, p := range o.params {
		*p.step = n
	}
}

// PlanShares are the bytes of state of each rank in a plan.
func PlanShares(config Config, params []PlannedParam, ranks int) ([]int64, error) {
	planned, err := planParameters(config, params)
	shares := make([]int64, ranks)
	for _, p := range planned {
		n, _ := p.checkShape()
		p.share(shares, n)
	}
	return shares, err
}

// PolarExpressWithCushion is PolarExpress with another cushion than the paper's.
func PolarExpressWithCushion(lower float64, steps int, safety, cushion float64) []kernels.Triple {
	return polarExpress(lower, steps, safety, cushion)
}

// OpenStateBytes is OpenState of a file in memory.
func OpenStateBytes(content []byte, from string) (*SavedState, error) {
	f, err := tensorfile.Decode(bytes.NewReader(content), int64(len(content)), "memory")
	if err != nil {
		return nil, err
	}
	return readState(f, from)
}
