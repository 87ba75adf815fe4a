package kernels_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/lowbit/amd64"
	"github.com/lowbit-go/lowbit/kernels"
	"golang.org/x/sys/unix"
)

func cpuNow() time.Duration {
	var ts unix.Timespec
	id := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	if os.Getenv("ZT") != "" {
		id = unix.CLOCK_MONOTONIC
	}
	unix.ClockGettime(id, &ts)
	return time.Duration(ts.Nano())
}

func best(reps int, f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := time.Hour
	for range reps {
		t := cpuNow()
		f()
		b = min(b, cpuNow()-t)
	}
	return b
}

// ZZ=gemm:512,ns:512x512x1 ...
func TestZZBench(t *testing.T) {
	spec := os.Getenv("ZZ")
	if spec == "" {
		t.Skip()
	}
	threads := 1
	fmt.Sscan(os.Getenv("ZT"), &threads)
	const n = 3000
	peak := func() float64 {
		d := best(200, func() { amd64.PeakFMAAVX512(n) })
		return 2 * 14 * 16 * n / float64(d.Nanoseconds())
	}
	p := peak()
	for _, s := range strings.Split(spec, ",") {
		kind, rest, _ := strings.Cut(s, ":")
		var a, b, c int
		fmt.Sscanf(rest, "%dx%dx%d", &a, &b, &c)
		if b == 0 {
			b, c = a, 1
		}
		reps := 3
		fmt.Sscan(os.Getenv("ZR"), &reps)
		switch kind {
		case "move": // n x n matrix, all blocks
			x, y := make([]float32, a*a*2+16), make([]float32, a*a*2+16)
			for _, v := range []string{"transpose512", "copy512"} {
				d := best(reps, func() {
					w := 32
					if v == "transpose2" || v == "copy2" {
						w = 16
					}
					for i := 0; i < a; i += w {
						for j := 0; j < a; j += w {
							switch v {
							case "transpose512":
								amd64.TransposeBlockAVX512(&y[i*a+j*w], w, &x[i*a+j], a)
							case "copy512":
								amd64.CopyRowsAVX512(w, &y[i*a+j*w], w, &x[j*a+i], a)
							case "transpose2":
								amd64.TransposeBlockAVX2(&y[i*a+j*w], w, &x[i*a+j], a)
							case "copy2":
								amd64.CopyRowsAVX2(w, &y[i*a+j*w], w, &x[j*a+i], a)
							}
						}
					}
				})
				fmt.Printf("%s %s %v %.3f cycles of 2.8 GHz an element\n", s, v, d, float64(d.Nanoseconds())*2.8/float64(a*a))
			}
		case "block": // strips in a group: a panels x b strips of c
			for _, v := range []string{"avx512", "avx2"}[:zImpls()] {
				w, f := 32, amd64.GemmBlockAVX512
				if v == "avx2" {
					w, f = 16, amd64.GemmBlockAVX2
				}
				x, y, z := make([]float32, w*c*a+16), make([]float32, w*c*b+16), make([]float32, w*w*a*b+16)
				d := best(reps, func() {
					for j := range b {
						for i := range a {
							f(w, c, &x[i*w*c], &y[j*w*c], nil, false, &z[(j*a+i)*w*w], w, nil, 0, 1, 0, nil)
						}
					}
				})
				fl := 2 * float64(a*b*w*w*c) / float64(d.Nanoseconds())
				fmt.Printf("%s %s %v %.1f GF %.3f of peak\n", s, v, d, fl, fl/p)
			}
		case "gemm", "syrk":
			f := func(n, m int, seed uint64) kernels.Matrix {
				return kernels.Matrix{Data: kernels.Float32s(normal(n*m, seed)), Rows: n, Cols: m, Stride: m}
			}
			x, y, z := f(a, a, 1), f(a, a, 2), f(a, a, 3)
			for _, impl := range kernels.OpGemmFloat32.Impls[:zImpls()] {
				d := best(max(reps, 20000000/(a*a*a/1000)/10), func() { impl.Func(z, x, false, y, false, 1, 0, threads) })
				fl := 2 * float64(a) * float64(a) * float64(a) / float64(d.Nanoseconds())
				fmt.Printf("%s %s %v %.1f GF %.3f of peak\n", s, impl.Name, d, fl, fl/p)
			}
		case "bgemm":
			f := func(n, m int, seed uint64) kernels.Matrix {
				x := make([]uint16, n*m)
				for i, v := range normal(n*m, seed) {
					x[i] = uint16(bf(v))
				}
				return kernels.Matrix{Data: kernels.BF16s(x), Rows: n, Cols: m, Stride: m}
			}
			x, y, z := f(a, a, 1), f(a, a, 2), f(a, a, 3)
			for _, impl := range kernels.OpGemmBF16.Impls[:3] {
				d := best(reps, func() { impl.Func(z, x, false, y, false, 1, 0, threads) })
				fl := 2 * float64(a) * float64(a) * float64(a) / float64(d.Nanoseconds())
				fmt.Printf("%s %s %v %.1f GF %.3f of peak\n", s, impl.Name, d, fl, fl/p)
			}
		default:
			plan := kernels.NewtonSchulzPlan{Safety: 1, Steps: [][3]float32{jordan, jordan, jordan, jordan, jordan}, BFloat16: kind == "nsb", Gram: kind == "gram"}
			src, dst := stackOf(c, a, b, 0), stackOf(c, a, b, 0)
			work := make([]float32, kernels.NewtonSchulzWork(&plan, c, a, b, kernels.Threads(threads)))
			op := kernels.OpNewtonSchulzFloat32
			if kind == "nsb" {
				op = kernels.OpNewtonSchulzBF16
			}
			for _, impl := range op.Impls[:zImpls()] {
				d := best(reps, func() { impl.Func(dst, src, &plan, work, threads) })
				r, al := float64(min(a, b)), float64(max(a, b))/float64(min(a, b))
				units := 5 * (3*al + 1)
				if kind == "gram" {
					units = 17 + 3*al
				}
				fl := float64(c) * units * r * r * r / float64(d.Nanoseconds())
				fmt.Printf("%s %s %v %.1f GF %.3f of peak\n", s, impl.Name, d, fl, fl/p)
			}
		}
	}
	fmt.Printf("peak %.1f then %.1f\n", p, peak())
}
func bf(x float32) uint16 { return uint16(mustBF(x)) }
func mustBF(x float32) uint16 { y := []float32{x}; z := []uint16{0}; kernels.Round(z, y); return z[0] }

func zImpls() int {
	n := 1
	fmt.Sscan(os.Getenv("ZI"), &n)
	return n
}
