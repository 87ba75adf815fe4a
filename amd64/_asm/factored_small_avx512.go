package main

import "github.com/mmcloughlin/avo/operand"

// Places in the scratch of small matrices: of each row the sum of the squares, the new
// factor and the normalized one.
const (
	smallSums       = 0
	smallRows       = 8 * smallMostRows
	smallNormalized = smallRows + 4*smallMostRows

	smallMostRows = factorChunk
)

// The words of kernels' adamWCall that hold the factors.
const (
	rowOfCall = 4
	colOfCall = 6
)

func factoredSmallAVX512(g *generator) {
	for _, f := range factorFormats {
		name := "FactorSmall" + f.suffix + "AVX512"
		g.function(name, "(products []float32, matrices [][11]uintptr, rows, cols int, scale, beta2, oneMinusBeta2 float32, scratch *[256]float32) int", name+` steps the factors of matrices of one shape, up to 64 rows of up to 16
columns, each kernels' adamWCall, and makes the second moments of their elements, after
which the products have room for 15 more. It stops at a matrix of which a new factor is not
finite, and returns how many there are before it. Sixteen matrices of 64 elements take
about 0.5 µs.

	for i, matrix := range matrices { // row, col: its factors
		reference.FactorRows(newRow, reference.Floats{`+f.of+`: `+f.value+`}, cols, scale)
		reference.FactorCols(newCol, reference.Floats{`+f.of+`: `+f.value+`}, rows, cols, 0, scale)
		finite := reference.AverageFactors(newRow, row, s)
		if !(reference.AverageFactors(newCol, col, s) && finite) {
			return i
		}
		reference.NormalizeRow(normalized, newRow)
		reference.Moment{Row: normalized, Col: newCol}.Product(products[i*rows*cols:][:rows*cols], 0)
		copy(row, newRow)
		copy(col, newCol)
	}
	return len(matrices)`)
		wide := operand.LabelRef(g.label("wide"))
		g.CMPQ(g.resolve(g.Param("cols")), operand.Imm(8))
		g.JA(wide)
		for _, halves := range []int{1, 2} {
			if halves == 2 {
				g.Label(string(wide))
			}
			g.smallMatrices(f.format, halves)
		}
	}
}

// smallMatrices ends a function for matrices of up to 8 columns a half.
func (g *generator) smallMatrices(f format, halves int) {
	s := smallMatrix{
		g: g, format: f, halves: halves,
		products: g.pointer("products"), from: g.pointer("matrices"), rows: g.number("rows"), scratch: g.number("scratch"),
		stride: g.GP64(), beta2: g.parameter512("beta2"), oneMinusBeta2: g.parameter512("oneMinusBeta2"), scale: g.parameter512("scale"),
	}
	cols := g.number("cols")
	s.columns = g.firstLanes(cols)
	s.rowCount, s.colCount = s.float64s(s.rows), s.float64s(cols)
	g.MOVQ(cols, s.stride)
	left, stop := g.length("matrices"), g.label("stop")
	g.loop(left, 1, func() {
		s.step(stop)
		g.advance(s.from, 8*wordsOf4)
	})
	g.Label(stop)
	done := g.length("matrices")
	g.SUBQ(left, done)
	g.MOVQ(done, g.result())
	g.end()
}

// smallMatrix has what the matrices have in common, and the pointers that move over them.
type smallMatrix struct {
	g                           *generator
	format                      format
	halves                      int
	products, from, scratch     gp
	rows, stride                gp
	columns                     mask
	scale, beta2, oneMinusBeta2 vec
	rowCount, colCount          vec
}

func (s *smallMatrix) float64s(n gp) vec {
	z := s.g.ZMM()
	s.g.VPBROADCASTQ(n, z)
	s.g.VCVTQQ2PD(z, z)
	return z
}

func (s *smallMatrix) step(stop string) {
	g := s.g
	col := s.average(s.columns, s.means(s.sums(), s.rowCount), s.word(colOfCall))
	bad := g.ZMM()
	g.VSUBPS(col, col, bad)

	left, sums, rows, old := g.GP64(), s.place(smallSums), s.place(smallRows), s.word(rowOfCall)
	g.MOVQ(s.rows, left)
	g.atLeastOnce(left, 8, func() {
		lanes, sum, difference := g.firstLanes(left), g.ZMM(), g.ZMM()
		g.VMOVUPD_Z(at(sums, 0), lanes, sum)
		row := s.average(lanes, s.means([]vec{sum}, s.colCount), old)
		g.VMOVUPS(row.AsY(), at(rows, 0))
		g.VSUBPS(row, row, difference)
		g.VADDPS(difference, bad, bad)
		g.advance(sums, 64)
		g.advance(rows, 32)
		g.advance(old, 32)
	})
	notFinite := g.unordered(bad)
	g.KORTESTW(notFinite, notFinite)
	g.JNZ(operand.LabelRef(stop))

	g.VMOVUPS(col, s.columns, at(s.word(colOfCall), 0))
	s.normalize()
	s.multiply(col)
}

// sums are those of the squares of each column, while those of rows go to the scratch.
func (s *smallMatrix) sums() []vec {
	g := s.g
	columns := []vec{g.ZMM(), g.ZMM()}[:s.halves]
	for _, sum := range columns {
		g.VPXORQ(sum, sum, sum)
	}
	p, bytes, left, sums := s.word(2), g.GP64(), g.GP64(), s.place(smallSums)
	g.MOVQ(s.stride, bytes)
	g.SHLQ(operand.Imm(uint64(s.format.bytes/2)), bytes)
	g.MOVQ(s.rows, left)
	g.loop(left, 1, func() {
		x := g.load512(s.format, p, 0, part{registers: 1, lanes: []mask{s.columns}})
		g.VMULPS_Z(s.scale, x, s.columns, x)
		squares := []vec{g.ZMM(), g.ZMM()}[:s.halves]
		if s.halves == 2 {
			g.VEXTRACTF64X4(operand.Imm(1), x, squares[1].AsY())
			g.VCVTPS2PD(squares[1].AsY(), squares[1])
		}
		g.VCVTPS2PD(x.AsY(), squares[0])
		for i, z := range squares {
			g.VMULPD(z, z, z)
			g.VADDPD(z, columns[i], columns[i])
		}
		if s.halves == 2 {
			g.VADDPD(squares[1], squares[0], squares[0])
		}
		g.VMOVSD(summation512{g: g}.sumEight(squares[0]), at(sums, 0))
		g.advance(sums, 8)
		g.ADDQ(bytes, p)
	})
	return columns
}

// means are sums, which they spoil, by their count.
func (s *smallMatrix) means(sums []vec, count vec) vec {
	for _, sum := range sums {
		s.g.VDIVPD(count, sum, sum)
		s.g.VCVTPD2PS(sum, sum.AsY())
	}
	if len(sums) == 2 {
		s.g.VINSERTF64X4(operand.Imm(1), sums[1].AsY(), sums[0], sums[0])
	}
	return sums[0]
}

// average makes new factors of means, which it spoils, and old factors.
func (s *smallMatrix) average(lanes mask, means vec, old gp) vec {
	factors := s.g.ZMM()
	s.g.VMOVUPS_Z(at(old, 0), lanes, factors)
	s.g.VMULPS(s.beta2, factors, factors)
	s.g.VMULPS(s.oneMinusBeta2, means, means)
	s.g.VADDPS_Z(means, factors, lanes, factors)
	return factors
}

// normalize stores new row factors, and those by their mean.
func (s *smallMatrix) normalize() {
	g := s.g
	sixteen := func(body func(lanes mask, row vec, to gp, normalized gp)) {
		left, rows, to, normalized := g.GP64(), s.place(smallRows), s.word(rowOfCall), s.place(smallNormalized)
		g.MOVQ(s.rows, left)
		g.atLeastOnce(left, lanes512, func() {
			lanes, row := g.firstLanes(left), g.ZMM()
			g.VMOVUPS_Z(at(rows, 0), lanes, row)
			body(lanes, row, to, normalized)
			for _, p := range []gp{rows, to, normalized} {
				g.advance(p, 64)
			}
		})
	}
	low, high, mean := g.ZMM(), g.ZMM(), g.ZMM()
	g.VPXORQ(low, low, low)
	g.VPXORQ(high, high, high)
	sixteen(func(lanes mask, row vec, to, _ gp) {
		g.VMOVUPS(row, lanes, at(to, 0))
		upper := g.ZMM()
		g.VEXTRACTF64X4(operand.Imm(1), row, upper.AsY())
		g.VCVTPS2PD(upper.AsY(), upper)
		g.VCVTPS2PD(row.AsY(), row)
		g.VADDPD(row, low, low)
		g.VADDPD(upper, high, high)
	})
	g.VADDPD(high, low, low)
	total := summation512{g: g}.sumEight(low)
	g.VDIVSD(s.rowCount.AsX(), total, total)
	g.VCVTSD2SS(total, total, total)
	g.VBROADCASTSS(total, mean)
	some, zero := g.K(), g.ZMM()
	g.VPXORD(zero, zero, zero)
	const notEqual = 4
	g.VCMPPS(operand.Imm(notEqual), zero, mean, some)
	sixteen(func(_ mask, row vec, _, normalized gp) {
		g.VDIVPS_Z(mean, row, some, row)
		g.VMOVUPS(row, at(normalized, 0))
	})
}

// multiply stores the products of the normalized rows and of columns.
func (s *smallMatrix) multiply(col vec) {
	g := s.g
	left, normalized := g.GP64(), s.place(smallNormalized)
	g.MOVQ(s.rows, left)
	g.loop(left, 1, func() {
		z := g.ZMM()
		if s.halves == 1 {
			g.VMULPS_BCST(at(normalized, 0), col.AsY(), z.AsY())
			g.VMOVUPS(z.AsY(), at(s.products, 0))
		} else {
			g.VMULPS_BCST(at(normalized, 0), col, z)
			g.VMOVUPS(z, at(s.products, 0))
		}
		g.advance(normalized, 4)
		g.LEAQ(mem{Base: s.products, Index: s.stride, Scale: 4}, s.products)
	})
}

// word loads a word of the matrix, place is one in the scratch.
func (s *smallMatrix) word(i int) gp {
	p := s.g.GP64()
	s.g.MOVQ(at(s.from, 8*i), p)
	return p
}

func (s *smallMatrix) place(offset int) gp {
	p := s.g.GP64()
	s.g.LEAQ(at(s.scratch, offset), p)
	return p
}

// atLeastOnce runs body, which advances its own pointers, for each step of n and for what is
// left, with n as much as there is.
func (g *generator) atLeastOnce(n gp, step int, body func()) {
	again := g.label("again")
	g.Label(again)
	body()
	g.SUBQ(operand.Imm(uint64(step)), n)
	g.JG(operand.LabelRef(again))
}
