package strips

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/lowbit/internal/workers"
	"github.com/lowbit-go/lowbit/kernels/reference"
)

// splitWork is the number of multiply-adds of a product from which on several threads are
// faster than one.
const splitWork = 1 << 22

// productsAStep is about how many products a step is: two of them symmetric, which cost half.
const productsAStep = 2

// NewtonSchulz is reference.NewtonSchulz of several stacks on several threads. Each takes a
// matrix of its own, the largest first, and helps others with theirs when none is left.
// Those that work does not have room for as many of come before, one after the other.
func (e *Kernels) NewtonSchulz(dst, src []reference.Stack, plan *reference.NewtonSchulzPlan, work []float32, threads int) (poisoned int) {
	c := idleCalls.Get().(*call)
	c.Kernels, c.plan, c.dst, c.src, c.work = e, plan, dst, src, work
	if total := c.sort(); total > 0 {
		c.prepare(c.useful(threads))
		c.crew = workers.Hire(c.threads)
		large, owners := c.divide()
		c.run(0, c.before(large), 1)
		c.run(large, total, owners)
		c.crew.Dismiss()
	}
	poisoned = int(c.poisoned.Swap(0))
	c.forget()
	idleCalls.Put(c)
	return poisoned
}

// call is a call of NewtonSchulz, and a task whose pieces are owners of parts of the
// workspace, which take one matrix after the other.
type call struct {
	*Kernels
	plan     *reference.NewtonSchulzPlan
	dst, src []reference.Stack
	work     []float32
	groups   []group
	threads  int
	crew     *workers.Crew
	rooms    []float32 // two blocks a worker

	owners   []*matrix
	first    int          // group of the largest matrix that they take
	end      int          // of the matrices
	next     atomic.Int64 // matrix that nobody has taken
	few      bool         // fewer owners than threads
	poisoned atomic.Int64
}

// group is a stack that is not empty.
type group struct {
	stack int
	size  int // of the workspace of a matrix
	last  int // matrices of it and those before
}

var idleCalls = sync.Pool{New: func() any { return new(call) }}

// forget lets the pool keep nobody's matrices alive.
func (c *call) forget() {
	for _, m := range c.owners {
		m.iteration = iteration{}
	}
	c.Kernels, c.plan, c.dst, c.src, c.work, c.crew = nil, nil, nil, nil, nil, nil
}

// sort puts those of large matrices first, and counts all matrices.
func (c *call) sort() (total int) {
	c.groups = c.groups[:0]
	for i := range c.src {
		if s := &c.src[i]; s.Count > 0 && s.Rows > 0 && s.Cols > 0 {
			c.groups = append(c.groups, group{stack: i, size: int(c.plan.WorkSize(s.Rows, s.Cols))})
		}
	}
	slices.SortStableFunc(c.groups, func(a, b group) int { return cmp.Compare(b.size, a.size) })
	for i := range c.groups {
		g := &c.groups[i]
		total += c.src[g.stack].Count
		g.last = total
	}
	return total
}

// lineElement is the number of multiply-adds that take as long as an element of a line, whose
// chain waits for each.
const lineElement = 128

// largestProduct is the number of multiply-adds of the largest product of a matrix, zeros of
// the strips included.
func (e *Kernels) largestProduct(rows, cols int) float64 {
	if min(rows, cols) == 1 {
		return lineElement * float64(max(rows, cols))
	}
	short, long := float64(e.strips(min(rows, cols))*e.Width), float64(e.strips(max(rows, cols))*e.Width)
	return short * short * long
}

// useful limits the threads to those that there is work for.
func (c *call) useful(threads int) int {
	total, most := 0., 0
	for _, g := range c.groups {
		s := &c.src[g.stack]
		one := c.largestProduct(s.Rows, s.Cols)
		total += float64(s.Count) * one * productsAStep * float64(len(c.plan.Steps))
		most += s.Count
		if one >= splitWork && min(s.Rows, s.Cols) > 1 {
			most = threads
		}
	}
	return max(min(threads, most, int(min(total/threadWork, 1<<20))), 1)
}

func (c *call) prepare(threads int) {
	c.threads = threads
	if need := 2*threads*c.Width*c.Width + slack; len(c.rooms) < need {
		c.rooms = aligned(make([]float32, need))
	}
	for len(c.owners) < threads {
		c.owners = append(c.owners, new(matrix))
	}
}

// room is a block of memory that a worker has.
func (c *call) room(worker, number int) []float32 {
	size := c.Width * c.Width
	return c.rooms[(2*worker+number)*size:][:size]
}

// divide is how many owners, more than half as many as threads, take all matrices but those
// of some large groups, as few as possible, for which the workspace is too small.
func (c *call) divide() (large, owners int) {
	large, owners = len(c.groups), 1
	for n := c.threads; n > c.threads/2; n-- {
		first := 0
		for first < large && c.part(first, n) > len(c.work) {
			first++
		}
		if first < large {
			large, owners = first, n
		}
	}
	return large, owners
}

// before is the number of matrices of the groups before one.
func (c *call) before(group int) int {
	if group == 0 {
		return 0
	}
	return c.groups[group-1].last
}

// part is where an owner's part of the workspace begins: after as many matrices as there are
// owners before, the largest of a group and those behind it.
func (c *call) part(first, owner int) (at int) {
	for _, g := range c.groups[first:] {
		n := min(c.src[g.stack].Count, owner)
		at += n * g.size
		if owner -= n; owner == 0 {
			break
		}
	}
	return at
}

// run does the matrices from a group on, up to the end. The owners begin with the first ones,
// in order, which their parts of the workspace are made for.
func (c *call) run(first, end, owners int) {
	begin := c.before(first)
	owners = min(owners, end-begin)
	c.first, c.end, c.few = first, end, owners < c.threads
	c.next.Store(int64(begin + owners))
	c.crew.Run(owners, c)
}

// helped tells whether others may have nothing else to do than to help.
func (c *call) helped() bool { return c.few || int(c.next.Load()) >= c.end }

// Do takes matrices for one owner until none is left.
func (c *call) Do(worker, owner int) {
	m, work := c.owners[owner], c.work[c.part(c.first, owner):]
	for i := c.before(c.first) + owner; i < c.end; i = int(c.next.Add(1)) - 1 {
		group, _ := slices.BinarySearchFunc(c.groups, i+1, func(g group, matrices int) int { return cmp.Compare(g.last, matrices) })
		stack, number := c.groups[group].stack, i-c.before(group)
		dst, src := c.dst[stack].Matrix(number), c.src[stack].Matrix(number)
		raceRead(src)
		raceWrite(dst)
		m.prepare(c, worker, src.Rows, src.Cols, work)
		if !m.orthogonalize(dst, src) {
			fill(dst, float32(math.NaN()))
			c.poisoned.Add(1)
		}
	}
}
