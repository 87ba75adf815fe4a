package lm

import (
	"math"

	"github.com/viterin/vek/vek32"
)

const normEps = 1e-5

// rmsNorm writes y = x·inv·gain for each row of x, with inv = 1/sqrt(mean(x²)+eps)
// (Zhang and Sennrich, "Root mean square layer normalization", 2019).
func rmsNorm(y, inv, x, gain []float32) {
	width := len(gain)
	for i := range inv {
		xi := x[i*width : (i+1)*width]
		yi := y[i*width : (i+1)*width]
		meanSquare := float64(vek32.Dot(xi, xi)) / float64(width)
		inv[i] = float32(1 / math.Sqrt(meanSquare+normEps))
		for c, g := range gain {
			yi[c] = xi[c] * inv[i] * g
		}
	}
}

// rmsNormBackward adds to dx and dGain what dy, the gradient of rmsNorm's y, brings them.
func rmsNormBackward(dx, dGain, dy, x, inv, gain []float32) {
	width := len(gain)
	for i, scale := range inv {
		xi := x[i*width : (i+1)*width]
		dyi := dy[i*width : (i+1)*width]
		dxi := dx[i*width : (i+1)*width]
		var dot float32
		for c, g := range gain {
			dot += dyi[c] * g * xi[c]
		}
		pull := dot * scale * scale / float32(width)
		for c, g := range gain {
			dGain[c] += dyi[c] * xi[c] * scale
			dxi[c] += scale * (dyi[c]*g - xi[c]*pull)
		}
	}
}

// causalConv writes y[t] = bias + Σ_j taps[j]·x[t-(kernel-1-j)], channel by channel, with
// zeros before the first position. taps is [kernel, width].
func causalConv(y, x, taps, bias []float32) {
	width := len(bias)
	kernel := len(taps) / width
	for t := range len(x) / width {
		yt := y[t*width : (t+1)*width]
		copy(yt, bias)
		for back := range min(kernel, t+1) {
			tap := taps[(kernel-1-back)*width:][:width]
			xt := x[(t-back)*width:][:width]
			for c := range yt {
				yt[c] += tap[c] * xt[c]
			}
		}
	}
}

// causalConvBackward overwrites dx, and adds to dTaps and dBias, for the gradient dy of
// causalConv's y.
func causalConvBackward(dx, dTaps, dBias, dy, x, taps []float32) {
	width := len(dBias)
	kernel := len(taps) / width
	clear(dx)
	for t := range len(x) / width {
		dyt := dy[t*width : (t+1)*width]
		vek32.Add_Inplace(dBias, dyt)
		for back := range min(kernel, t+1) {
			tap := taps[(kernel-1-back)*width:][:width]
			dTap := dTaps[(kernel-1-back)*width:][:width]
			xt := x[(t-back)*width:][:width]
			dxt := dx[(t-back)*width:][:width]
			for c, d := range dyt {
				dTap[c] += d * xt[c]
				dxt[c] += d * tap[c]
			}
		}
	}
}

// silu writes y = x·gate with gate = 1/(1+exp(-x)).
func silu(y, gate, x []float32) {
	for i, v := range x {
		gate[i] = -v
	}
	vek32.Exp_Inplace(gate)
	for i, e := range gate {
		gate[i] = 1 / (1 + e)
		y[i] = x[i] * gate[i]
	}
}

// siluBackward turns d from the gradient of silu's y into that of its x.
func siluBackward(d, y, gate []float32) {
	for i, g := range gate {
		d[i] *= g + y[i]*(1-g)
	}
}

// addToRows adds the bias to each row of x.
func addToRows(x, bias []float32) {
	for ; len(x) > 0; x = x[len(bias):] {
		vek32.Add_Inplace(x[:len(bias)], bias)
	}
}

// sumRows adds each row of d to sum.
func sumRows(sum, d []float32) {
	for ; len(d) > 0; d = d[len(sum):] {
		vek32.Add_Inplace(sum, d[:len(sum)])
	}
}

// crossEntropy returns -log softmax(logits)[target], and overwrites the logits with their
// softmax. One NaN among the logits makes the loss NaN.
func crossEntropy(logits []float32, target byte) float64 {
	sum := vek32.Sum(logits)
	if sum != sum { // vek's exp of NaN is 0
		return math.NaN()
	}
	vek32.SubNumber_Inplace(logits, vek32.Max(logits))
	chosen := logits[target]
	vek32.Exp_Inplace(logits)
	total := vek32.Sum(logits)
	vek32.MulNumber_Inplace(logits, 1/total)
	return math.Log(float64(total)) - float64(chosen)
}
