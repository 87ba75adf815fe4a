package lm

import "github.com/viterin/vek/vek32"

// mul computes c = a·b of a [m, k] and b [k, n], row-major.
func mul(c, a, b []float32, m, k, n int) {
	// vek starts goroutines of its own from 100 000 products and 4 rows; smaller pieces
	// keep it on this one. Each row of c is summed by itself, so the cut changes no bit.
	rows := max(3, 99_999/(k*n))
	for i := 0; i < m; i += rows {
		end := min(m, i+rows)
		vek32.MatMul_Into(c[i*n:end*n], a[i*k:end*k], b, k)
	}
}

// mulTransposedB computes c = a·bᵀ of a [m, k] and b [n, k]. The scratch holds k*n elements.
func mulTransposedB(c, a, b, scratch []float32, m, k, n int) {
	bt := scratch[:k*n]
	transpose(bt, b, n, k)
	mul(c, a, bt, m, k, n)
}

// mulTransposedA computes c = aᵀ·b of a [m, k] and b [m, n]. The scratch holds m*k elements.
func mulTransposedA(c, a, b, scratch []float32, m, k, n int) {
	at := scratch[:m*k]
	transpose(at, a, m, k)
	mul(c, at, b, k, m, n)
}

// transpose writes src [rows, cols] as dst [cols, rows], four rows at a time.
func transpose(dst, src []float32, rows, cols int) {
	i := 0
	for ; i+4 <= rows; i += 4 {
		a := src[i*cols:][:cols]
		b := src[(i+1)*cols:][:cols]
		c := src[(i+2)*cols:][:cols]
		d := src[(i+3)*cols:][:cols]
		for j := range a {
			to := dst[j*rows+i:][:4]
			to[0], to[1], to[2], to[3] = a[j], b[j], c[j], d[j]
		}
	}
	for ; i < rows; i++ {
		for j, v := range src[i*cols:][:cols] {
			dst[j*rows+i] = v
		}
	}
}
