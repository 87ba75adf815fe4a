package main

import "github.com/mmcloughlin/avo/operand"

// Places in the scratch of small matrices: of each row the new factor and the normalized
// one, and then of each matrix the sums of its columns and rows.
const (
	smallRows       = 0
	smallNormalized = 4 * bandRows
	smallSums       = 8 * bandRows

	smallGroup = 8 // rows whose sums are made together
)

// The words of kernels' adamWCall that hold the factors.
const (
	rowOfCall = vOfCall
	colOfCall = vScalesOfCall
)

func factoredSmallAVX512(g *generator) {
	for _, f := range factorFormats {
		name := "FactorSmall" + f.suffix + "AVX512"
		g.function(name, "(products []float32, matrices [][11]uintptr, rows, cols int, scale, beta2, oneMinusBeta2 float32, scratch *[2688]float32) int", name+` steps the factors of up to 16 matrices of one shape, up to 64 rows of
up to 16 columns, each kernels' adamWCall, and makes the second moments of their elements,
after which the products have room for 15 more. It stops at a matrix of which a new factor
is not finite, and returns how many there are before it. Matrices of 64 elements take about
25 ns each.

	for i, matrix := range matrices {
		reference.FactorMeans(newRow, squares, g, scale) // g, row, col: the matrix's
		for j, sum := range squares {
			newCol[j] = float32(sum / float64(rows))
		}
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
		products: g.pointer("products"), from: g.GP64(), sums: g.GP64(), rows: g.number("rows"), scratch: g.number("scratch"),
		stride: g.GP64(), beta2: g.parameter512("beta2"), oneMinusBeta2: g.parameter512("oneMinusBeta2"), scale: g.parameter512("scale"),
	}
	cols, left, stop := g.number("cols"), g.GP64(), g.label("stop")
	s.columns = g.firstLanes(cols)
	s.rowCount, s.colCount = s.float64s(s.rows), s.float64s(cols)
	g.MOVQ(cols, s.stride)
	s.bytes, s.threeTimes, s.eight = g.GP64(), g.GP64(), g.K()
	g.MOVQ(cols, s.bytes)
	g.SHLQ(operand.Imm(uint64(f.bytes/2)), s.bytes)
	g.LEAQ(mem{Base: s.bytes, Index: s.bytes, Scale: 2}, s.threeTimes)
	bits := g.GP32()
	g.MOVL(operand.U32(0xff), bits)
	g.KMOVW(bits, s.eight)
	each := func(body func()) {
		g.MOVQ(g.resolve(g.Param("matrices").Base()), s.from)
		g.LEAQ(at(s.scratch, smallSums), s.sums)
		g.MOVQ(g.resolve(g.Param("matrices").Len()), left)
		g.loop(left, 1, func() {
			body()
			g.advance(s.from, 8*wordsOfCall)
		})
	}
	each(s.addUp)
	each(func() { s.step(stop) })
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
	sums                        gp // in the scratch
	rows, stride                gp
	bytes, threeTimes           gp // of a row of gradients
	columns, eight              mask
	scale, beta2, oneMinusBeta2 vec
	rowCount, colCount          vec
}

func (s *smallMatrix) float64s(n gp) vec {
	z := s.g.ZMM()
	s.g.VPBROADCASTQ(n, z)
	s.g.VCVTQQ2PD(z, z)
	return z
}

// addUp stores the sums of the squares of rows and columns. Another pass takes them, since a
// matrix is a long chain of operations, and of many short chains more are done at once.
func (s *smallMatrix) addUp() {
	g := s.g
	columns := []vec{g.ZMM(), g.ZMM()}[:s.halves]
	for _, z := range columns {
		g.VPXORQ(z, z, z)
	}
	p, left, rows := s.g.word(s.from, gradientsOfCall), g.GP64(), g.GP64()
	g.LEAQ(at(s.sums, 64*s.halves), rows)
	group := func(at func(row int) mem) {
		g.VMOVUPD(s.rowSums(columns, at), mem{Base: rows})
		g.advance(rows, 64)
	}
	g.MOVQ(s.rows, left)
	g.loop(left, smallGroup, func() {
		four := g.GP64()
		g.LEAQ(mem{Base: p, Index: s.bytes, Scale: 4}, four)
		group(func(row int) mem {
			m := mem{Base: []gp{p, four}[row/4]}
			switch row % 4 {
			case 3:
				m.Index, m.Scale = s.threeTimes, 1
			case 1, 2:
				m.Index, m.Scale = s.bytes, uint8(row%4)
			}
			return m
		})
		g.LEAQ(mem{Base: p, Index: s.bytes, Scale: 8}, p)
	})
	g.ifAny(left, func() {
		group(func(row int) mem {
			place, nowhere := g.GP64(), g.GP64()
			g.IMUL3Q(operand.Imm(uint64(row)), s.bytes, place)
			g.ADDQ(p, place)
			g.LEAQ(g.data("zeros", make([]uint32, lanes512)...), nowhere)
			g.CMPQ(left, operand.Imm(uint64(row)))
			g.CMOVQLE(nowhere, place)
			return at(place, 0)
		})
	})
	for i, z := range columns {
		g.VMOVUPD(z, at(s.sums, 64*i))
	}
	g.MOVQ(rows, s.sums)
}

// eachGroup runs body for the rows in groups, and for those that are left, with masks.
func (s *smallMatrix) eachGroup(body func(lanes mask)) {
	left := s.g.GP64()
	s.g.MOVQ(s.rows, left)
	s.g.loop(left, smallGroup, func() { body(s.eight) })
	s.g.ifAny(left, func() { body(s.g.firstLanes(left)) })
}

func (g *generator) ifAny(n gp, body func()) {
	none := operand.LabelRef(g.label("none"))
	g.TESTQ(n, n)
	g.JZ(none)
	body()
	g.Label(string(none))
}

// step makes new factors of sums, and second moments.
func (s *smallMatrix) step(stop string) {
	g := s.g
	sum := func() vec {
		z := g.ZMM()
		g.VMOVUPD(at(s.sums, 0), z)
		g.advance(s.sums, 64)
		return z
	}
	columns := []vec{sum(), nil}[:s.halves]
	if s.halves == 2 {
		columns[1] = sum()
	}
	col := s.average(s.columns, s.means(columns, s.rowCount), s.g.word(s.from, colOfCall))
	bad, total, other := g.ZMM(), g.ZMM(), g.ZMM() // of other groups of rows
	g.VSUBPS(col, col, bad)
	g.VPXORQ(total, total, total)
	g.VPXORQ(other, other, other)
	rows, old := s.place(smallRows), s.g.word(s.from, rowOfCall)
	s.eachGroup(func(lanes mask) {
		row := s.average(lanes, s.means([]vec{sum()}, s.colCount), old)
		g.VMOVUPS(row.AsY(), at(rows, 0))
		difference, wide := g.ZMM(), g.ZMM()
		g.VSUBPS(row, row, difference)
		g.VADDPS(difference, bad, bad)
		g.VCVTPS2PD(row.AsY(), wide)
		g.VADDPD(wide, total, wide)
		g.VMOVAPD(other, total)
		g.VMOVAPD(wide, other)
		g.advance(rows, 4*smallGroup)
		g.advance(old, 4*smallGroup)
	})
	notFinite := g.unordered(bad)
	g.KORTESTW(notFinite, notFinite)
	g.JNZ(operand.LabelRef(stop))
	g.VMOVUPS(col, s.columns, at(s.g.word(s.from, colOfCall), 0))
	g.VADDPD(other, total, total)
	s.normalize(g.sumEight(total))
	s.multiply(col)
}

// rowSums are those of the squares of eight rows, which it adds to those of columns.
func (s *smallMatrix) rowSums(columns []vec, at func(row int) mem) vec {
	g := s.g
	squares := func(row int) vec {
		x := s.load(at(row))
		g.VMULPS(s.scale, x, x)
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
		return squares[0]
	}
	// Lanes 4 apart, 2 and 1 are added of two registers at a time. Columns need rows in order.
	var rows [smallGroup]vec
	for i := range rows {
		rows[i] = squares(i)
	}
	var fours [2]vec
	for i := range fours {
		fours[i] = s.shuffled(s.shuffled(rows[i], rows[i+2], 0x44, 0xee), s.shuffled(rows[i+4], rows[i+6], 0x44, 0xee), 0x88, 0xdd)
	}
	low, high := g.ZMM(), g.ZMM()
	g.VUNPCKLPD(fours[1], fours[0], low)
	g.VUNPCKHPD(fours[1], fours[0], high)
	g.VADDPD(high, low, low)
	return low
}

// shuffled adds quarters of a and b, of each first those of one order, then the other.
func (s *smallMatrix) shuffled(a, b vec, one, other uint64) vec {
	x, y := s.g.ZMM(), s.g.ZMM()
	s.g.VSHUFF64X2(operand.Imm(one), b, a, x)
	s.g.VSHUFF64X2(operand.U8(other), b, a, y)
	s.g.VADDPD(y, x, x)
	return x
}

func (s *smallMatrix) load(m mem) vec {
	x := s.g.ZMM()
	if s.format == bfloat16s {
		s.g.VPMOVZXWD_Z(m, s.columns, x)
		s.g.VPSLLD(operand.Imm(16), x, x)
	} else {
		s.g.VMOVUPS_Z(m, s.columns, x)
	}
	return x
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

// normalize stores new row factors, and in the scratch those by the mean.
func (s *smallMatrix) normalize(total vec) {
	g := s.g
	g.VDIVSD(s.rowCount.AsX(), total, total)
	g.VCVTSD2SS(total, total, total)
	mean, some, zero := g.ZMM(), g.K(), g.ZMM()
	g.VBROADCASTSS(total, mean)
	g.VPXORD(zero, zero, zero)
	const notEqual = 4
	g.VCMPPS(operand.Imm(notEqual), zero, mean, some)
	rows, to, normalized := s.place(smallRows), s.g.word(s.from, rowOfCall), s.place(smallNormalized)
	s.eachGroup(func(lanes mask) {
		row := g.YMM()
		g.VMOVUPS(at(rows, 0), row)
		g.VMOVUPS(row, lanes, at(to, 0))
		g.VDIVPS_Z(mean.AsY(), row, some, row)
		g.VMOVUPS(row, at(normalized, 0))
		for _, p := range []gp{rows, to, normalized} {
			g.advance(p, 4*smallGroup)
		}
	})
}

// multiply stores the products of the normalized rows and of columns.
func (s *smallMatrix) multiply(col vec) {
	g := s.g
	left, normalized := g.GP64(), s.place(smallNormalized)
	g.MOVQ(s.rows, left)
	for _, rows := range []int{4, 1} {
		g.loop(left, rows, func() {
			for i := range rows {
				z := g.ZMM()
				if s.halves == 1 {
					g.VMULPS_BCST(at(normalized, 4*i), col.AsY(), z.AsY())
					g.VMOVUPS(z.AsY(), at(s.products, 0))
				} else {
					g.VMULPS_BCST(at(normalized, 4*i), col, z)
					g.VMOVUPS(z, at(s.products, 0))
				}
				g.LEAQ(mem{Base: s.products, Index: s.stride, Scale: 4}, s.products)
			}
			g.advance(normalized, 4*rows)
		})
	}
}

// place is one in the scratch.
func (s *smallMatrix) place(offset int) gp {
	p := s.g.GP64()
	s.g.LEAQ(at(s.scratch, offset), p)
	return p
}
