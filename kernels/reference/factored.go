package reference

const factorRows = 64 // rows whose squares are added to a column before the chunks are

// FactorRows sets each of means to the mean square of a row of g, each gradient first
// multiplied by scale. A row's sum is in the contract's order.
func FactorRows(means []float32, g Floats, cols int, scale float32) {
	for i := range means {
		sum := orderedSum(cols, func(j int) float64 { return square(g.At(i*cols+j) * scale) })
		means[i] = float32(sum / float64(cols))
	}
}

// FactorCols sets means[j] to the mean square of column first+j of g, which has rows by
// cols elements, each first multiplied by scale.
func FactorCols(means []float32, g Floats, rows, cols, first int, scale float32) {
	for j := range means {
		means[j] = float32(columnSquares(g, rows, cols, first+j, scale) / float64(rows))
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

func columnSquares(g Floats, rows, cols, column int, scale float32) float64 {
	total := 0.0
	for lo := 0; lo < rows; lo += factorRows {
		chunk := 0.0
		for i := lo; i < min(lo+factorRows, rows); i++ {
			chunk += square(g.At(i*cols+column) * scale)
		}
		total += chunk
	}
	return total
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
