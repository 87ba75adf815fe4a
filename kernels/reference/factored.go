package reference

// FactorBand is how many rows' squares are added to a column's before such sums are.
const FactorBand = 64

// FactorMeans sets means to the mean squares of the rows of g, of which there are up to
// FactorBand, and squares to the sums of the squares of its columns. Each gradient is first
// multiplied by scale. A row's sum is in the contract's order, and a column's in that of its
// rows.
func FactorMeans(means []float32, squares []float64, g Floats, scale float32) {
	cols := len(squares)
	clear(squares)
	for i := range means {
		squareAt := func(j int) float64 { return square(g.At(i*cols+j) * scale) }
		means[i] = float32(orderedSum(cols, squareAt) / float64(cols))
		for j := range squares {
			squares[j] += squareAt(j)
		}
	}
}

// AverageFactors turns mean squares into new factors: the exponential moving averages of
// Shazeer and Stern, "Adafactor" (2018). It reports whether all of them are finite.
func AverageFactors(means, factors []float32, s *AdamWScalars) bool {
	ok := true
	for i, mean := range means {
		means[i] = float32(s.Beta2*factors[i]) + float32(s.OneMinusBeta2*mean)
		ok = ok && finite(means[i])
	}
	return ok
}

// NormalizeRow divides the row factors by their mean, which makes v = row*col. The
// result is zero where the mean is.
func NormalizeRow(normalized, row []float32) {
	total := orderedSum(len(row), func(i int) float64 { return float64(row[i]) })
	mean := float32(total / float64(len(row)))
	for i, r := range row {
		normalized[i] = 0
		if mean != 0 {
			normalized[i] = r / mean
		}
	}
}

// Product sets dst to the factors' products, the second moments of the elements from
// first on.
func (m Moment) Product(dst []float32, first int64) {
	cols := len(m.Col)
	row, col := int(first/int64(cols)), int(first%int64(cols))
	for i := range dst {
		dst[i] = m.Row[row] * m.Col[col]
		if col++; col == cols {
			row, col = row+1, 0
		}
	}
}

// Accumulate adds a gradient to a bf16 sum, each result rounded to nearest.
func Accumulate(sum Floats, g Floats) {
	for i := range sum.Len() {
		sum.set(i, sum.At(i)+g.At(i), nil)
	}
}
