package lm

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/viterin/vek/vek32"
)

// workspace is what one worker needs for one row of a batch: what forward leaves for
// backward, and scratch. Positions are the bytes of the row.
type workspace struct {
	blocks  []activations
	stream  []float32 // the residual stream after the blocks [positions, width]
	inv     []float32 // of the last normalisation [positions]
	normed  []float32 // [positions, width]
	logits  []float32 // [positions, 256], then their softmax, then their gradient
	hidden  []float32 // before the activation [positions, hidden]
	dStream []float32 // [positions, width]
	dMixed  []float32 // [positions, width]
	dNormed []float32 // [positions, width]
	dHidden []float32 // [positions, hidden]
	dTaps   []float32 // [kernel, width]
	scratch []float32 // one transposed factor
}

// activations are the values inside one block.
type activations struct {
	stream []float32 // the residual stream before the block [positions, width]
	inv    []float32 // [positions]
	normed []float32 // [positions, width]
	taps   []float32 // the convolution's weights as [kernel, width]
	mixed  []float32 // [positions, width]
	gate   []float32 // [positions, hidden]
	active []float32 // [positions, hidden]
}

func newWorkspace(c Config) *workspace {
	floats := func(n int) []float32 { return make([]float32, n) }
	wide, hidden, taps := c.Context*c.Width, c.Context*c.Hidden, c.Kernel*c.Width
	w := &workspace{
		stream: floats(wide), inv: floats(c.Context), normed: floats(wide), logits: floats(c.Context * vocabulary), hidden: floats(hidden),
		dStream: floats(wide), dMixed: floats(wide), dNormed: floats(wide), dHidden: floats(hidden), dTaps: floats(taps),
		scratch: floats(max(c.Context, c.Width) * max(c.Width, c.Hidden, vocabulary)),
	}
	for range c.Layers {
		w.blocks = append(w.blocks, activations{
			stream: floats(wide), inv: floats(c.Context), normed: floats(wide), taps: floats(taps), mixed: floats(wide),
			gate: floats(hidden), active: floats(hidden),
		})
	}
	return w
}

// run passes the batch forward and, where asked, backward into rowGrads, and returns the
// mean loss.
func (m *Model) run(batch Batch, backward bool) float64 {
	for backward && len(m.rowGrads) < len(batch) {
		m.rowGrads = append(m.rowGrads, make([]float32, len(m.grad)))
	}
	if len(m.losses) < len(batch) {
		m.losses = make([]float64, len(batch))
	}
	positions := len(batch) * m.config.Context
	m.parallel(len(batch), func(w *workspace, i int) {
		m.losses[i] = m.forward(w, batch[i])
		if backward {
			m.backward(w, batch[i], m.rowGrads[i], 1/float32(positions))
		}
	})
	sum := 0.0
	for _, l := range m.losses[:len(batch)] {
		sum += l
	}
	return sum / float64(positions)
}

// sumGrads adds the rows' gradients in their order.
func (m *Model) sumGrads(rows int) {
	const piece = 1 << 14
	m.parallel((len(m.grad)+piece-1)/piece, func(_ *workspace, i int) {
		from, to := i*piece, min(len(m.grad), (i+1)*piece)
		copy(m.grad[from:to], m.rowGrads[0][from:to])
		for _, g := range m.rowGrads[1:rows] {
			vek32.Add_Inplace(m.grad[from:to], g[from:to])
		}
	})
}

// parallel calls f for 0 to n-1 on up to GOMAXPROCS workers, each with its own workspace.
func (m *Model) parallel(n int, f func(w *workspace, i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	for len(m.workspaces) < workers {
		m.workspaces = append(m.workspaces, newWorkspace(m.config))
	}
	var next atomic.Int64
	var done sync.WaitGroup
	for _, w := range m.workspaces[:workers] {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(w, i)
			}
		})
	}
	done.Wait()
}

// forward returns the loss summed over the row's positions, and leaves their softmax in
// w.logits.
func (m *Model) forward(w *workspace, row []byte) float64 {
	c := m.config
	for t, token := range row[:c.Context] {
		copy(w.before(0)[t*c.Width:][:c.Width], m.embedding.Weight[int(token)*c.Width:])
	}
	for i, b := range m.blocks {
		a, out := &w.blocks[i], w.before(i+1)
		transpose(a.taps, b.conv.Weight, c.Width, c.Kernel)
		rmsNorm(a.normed, a.inv, a.stream, b.norm.Weight)
		causalConv(a.mixed, a.normed, a.taps, b.convBias.Weight)
		mul(w.hidden, a.mixed, b.up.Weight, c.Context, c.Width, c.Hidden)
		addToRows(w.hidden, b.upBias.Weight)
		silu(a.active, a.gate, w.hidden)
		mul(out, a.active, b.down.Weight, c.Context, c.Hidden, c.Width)
		vek32.Add_Inplace(out, a.stream)
	}
	rmsNorm(w.normed, w.inv, w.stream, m.norm.Weight)
	mulTransposedB(w.logits, w.normed, m.head.Weight, w.scratch, c.Context, c.Width, vocabulary)
	addToRows(w.logits, m.headBias.Weight)

	loss := 0.0
	for t, target := range row[1:] {
		loss += crossEntropy(w.logits[t*vocabulary:][:vocabulary], target)
	}
	return loss
}

// before is the residual stream that enters block i, or leaves the last one.
func (w *workspace) before(i int) []float32 {
	if i == len(w.blocks) {
		return w.stream
	}
	return w.blocks[i].stream
}

// backward overwrites grad with the gradient of scale times the loss that forward just
// returned for the same row.
func (m *Model) backward(w *workspace, row []byte, grad []float32, scale float32) {
	c := m.config
	of := func(p *Param) []float32 { return grad[p.offset:][:len(p.Weight)] }
	clear(grad)

	for t, target := range row[1:] {
		w.logits[t*vocabulary+int(target)]--
	}
	vek32.MulNumber_Inplace(w.logits, scale)
	sumRows(of(m.headBias), w.logits)
	mulTransposedA(of(m.head), w.logits, w.normed, w.scratch, c.Context, vocabulary, c.Width)
	mul(w.dNormed, w.logits, m.head.Weight, c.Context, vocabulary, c.Width)
	clear(w.dStream)
	rmsNormBackward(w.dStream, of(m.norm), w.dNormed, w.stream, w.inv, m.norm.Weight)

	for i := len(m.blocks) - 1; i >= 0; i-- {
		b, a := m.blocks[i], &w.blocks[i]
		mulTransposedA(of(b.down), a.active, w.dStream, w.scratch, c.Context, c.Hidden, c.Width)
		mulTransposedB(w.dHidden, w.dStream, b.down.Weight, w.scratch, c.Context, c.Width, c.Hidden)
		siluBackward(w.dHidden, a.active, a.gate)
		sumRows(of(b.upBias), w.dHidden)
		mulTransposedA(of(b.up), a.mixed, w.dHidden, w.scratch, c.Context, c.Width, c.Hidden)
		mulTransposedB(w.dMixed, w.dHidden, b.up.Weight, w.scratch, c.Context, c.Hidden, c.Width)
		clear(w.dTaps)
		causalConvBackward(w.dNormed, w.dTaps, of(b.convBias), w.dMixed, a.normed, a.taps)
		transpose(of(b.conv), w.dTaps, c.Kernel, c.Width)
		rmsNormBackward(w.dStream, of(b.norm), w.dNormed, a.stream, a.inv, b.norm.Weight)
	}

	embedding := of(m.embedding)
	for t, token := range row[:c.Context] {
		vek32.Add_Inplace(embedding[int(token)*c.Width:][:c.Width], w.dStream[t*c.Width:][:c.Width])
	}
}
