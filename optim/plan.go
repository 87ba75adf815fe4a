package optim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// PlannedParam is a parameter as Plan sees it. Its fields are those of Param; tied
// parameters stand there once.
type PlannedParam struct {
	Name           string
	Shape          []int64
	Role           string
	StatePrecision string
	BFloat16       bool // the weights, and the gradients with them, are bf16, not float32
}

// PlannedBytes is what training a model holds, in bytes but for Parameters.
type PlannedBytes struct {
	Parameters         int64 // elements
	Weights, Gradients int64 // 4 bytes an element, or 2 in bf16
	Moments            int64 // codes, or numbers
	Metadata           int64 // scales of blocks, and factors of second moments
	Master             int64 // lower halves of split masters
	// PerRank is the most that one rank holds: all weights and gradients, and its share of
	// the rest.
	PerRank int64
	// Metrics are those that an Optimizer of these parameters has.
	Metrics map[string]int64
}

// State is what an optimizer's metrics call state_total_bytes: moments, metadata and master.
func (b PlannedBytes) State() int64 { return b.Moments + b.Metadata + b.Master }

// Total is all that is held without sharding: weights, gradients and state.
func (b PlannedBytes) Total() int64 { return b.Weights + b.Gradients + b.State() }

// Plan counts the bytes of weights, gradients and optimizer state without allocating any.
// What New of the same configuration and parameters refuses, Plan does too, except for
// what is wrong with slices.
//
// The state is shared out over ranks, 1 or more. A parameter is cut into units: Muon's
// whole matrices; 64 rows, or as many more as whole blocks and 4096 elements take, where
// the second moment is factored; else the least common multiple of the block and 4096
// elements. Every rank has the same number of a parameter's units, and each one left over
// goes to the rank that holds least, the first of several. Column factors are on each rank
// that has a unit of theirs.
func Plan(config Config, params []PlannedParam, ranks int) (PlannedBytes, error) {
	if ranks < 1 {
		return PlannedBytes{}, fmt.Errorf("optim: plan for %d ranks, want 1 or more", ranks)
	}
	planned, err := planParameters(config, params)
	if err != nil {
		return PlannedBytes{}, err
	}
	var b PlannedBytes
	var state stateBytes
	share := make([]int64, ranks)
	for i, p := range planned {
		n, _ := p.checkShape()
		width := int64(4)
		if params[i].BFloat16 {
			width = 2
		}
		if n > (math.MaxInt64/4-b.Total())/64 { // no state takes as much as 48 bytes an element
			return PlannedBytes{}, p.errorf("the model has more bytes than 63 bits count")
		}
		b.Parameters += n
		b.Weights += n * width
		b.Gradients += n * width
		for _, s := range p.layout.sizes(p.Shape, n) {
			state.add(p.storage, s)
		}
		p.share(share, n)
		b.Moments, b.Metadata, b.Master = state.moments(), state.metadata, state.master
	}
	b.Metrics = state.metrics(config)
	for _, bytes := range share {
		b.PerRank = max(b.PerRank, b.Weights+b.Gradients+bytes)
	}
	return b, nil
}

// planParameters settles parameters as New does.
func planParameters(config Config, params []PlannedParam) ([]*parameter, error) {
	if config == nil {
		return nil, fmt.Errorf("optim: no configuration, want an AdamWConfig or a MuonConfig")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	common := config.common()
	names, seen := make([]string, len(params)), map[string]bool{}
	for i, p := range params {
		if err := checkName(i, p.Name, seen); err != nil {
			return nil, err
		}
		names[i] = p.Name
	}
	groups, err := matchGroups(common.ParamGroups, names)
	if err != nil {
		return nil, err
	}
	planned := make([]*parameter, len(params))
	for i, param := range params {
		p := &parameter{step: new(int64), Param: &Param{Name: param.Name, Shape: param.Shape, Role: param.Role, StatePrecision: param.StatePrecision}}
		if _, err := p.checkShape(); err != nil {
			return nil, err
		}
		if err := p.settle(groups[i], config); err != nil {
			return nil, err
		}
		p.layout.master = common.Master == "split" && param.BFloat16
		planned[i] = p
	}
	return planned, common.checkMaster(planned)
}

// share adds the state of a parameter's units to the ranks' bytes.
func (p *parameter) share(ranks []int64, n int64) {
	if n == 0 {
		return
	}
	unit := min(p.unit(n), n)
	units := ceilDiv(n, unit)
	columns := int64(0)
	if p.layout.factored {
		_, cols := factorSizes(p.Shape, n)
		columns = 4 * cols
	}
	whole, last := p.unitBytes(unit), p.unitBytes(n-(units-1)*unit)
	each, left := units/int64(len(ranks)), units%int64(len(ranks))
	if each > 0 {
		for r := range ranks {
			ranks[r] += each*whole + columns
		}
		if left == 0 {
			ranks[len(ranks)-1] += last - whole
		}
	}
	order := make([]int, len(ranks)) // the ranks that hold least first
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ranks[a], ranks[b]) })
	for k := range left {
		bytes := whole
		if k == left-1 {
			bytes = last
		}
		if each == 0 {
			bytes += columns
		}
		ranks[order[k]] += bytes
	}
}

// unitBytes are those of the state of a unit's elements, but for column factors.
func (p *parameter) unitBytes(n int64) (bytes int64) {
	l := p.layout
	rows := int64(0)
	if l.factored {
		whole, _ := p.checkShape()
		_, cols := factorSizes(p.Shape, whole)
		rows, l.factored = n/cols, false
	}
	for _, s := range l.sizes(nil, n) {
		bytes += s.bytes()
	}
	return bytes + 4*rows
}

// unit is the number of elements that a rank has all or none of, or more than n.
func (p *parameter) unit(n int64) int64 {
	const chunk = 4096 // elements of a partial sum
	block := int64(1)
	if m := p.layout.m; m.quantized() {
		block = int64(m.format.Block)
	}
	if p.muon {
		return lcm(int64(p.shape.rows)*int64(p.shape.cols), block, n)
	}
	unit := lcm(block, chunk, n)
	if p.layout.factored {
		_, cols := factorSizes(p.Shape, n)
		unit = lcm(min(64*cols, n), unit, n)
	}
	return unit
}

// lcm is the least common multiple of two numbers that are not zero, or most+1 where it is
// more than most.
func lcm(a, b, most int64) int64 {
	b /= gcd(a, b)
	if a > most/b {
		return most + 1
	}
	return a * b
}
