package reference

const factorRows = 64 // rows whose squares are added to a column before the chunks are

// Factor computes the new factors of a matrix's second moment, viewed as
// [len(row), len(col)], after Shazeer and Stern, "Adafactor" (2018): each is an
// exponential moving average of the mean of the squared gradients of its row or column.
// The results go to newRow and newCol. It reports whether all of them are finite.
func Factor(newRow, newCol, row, col []float32, g Floats, s *AdamWScalars) bool {
	cols := len(col)
	ok := true
	for i := range row {
		sum := orderedSum(cols, func(j int) float64 { return square(g.At(i*cols+j) * s.GradScale) })
		newRow[i] = s.average(row[i], float32(sum/float64(cols)))
		ok = ok && finite(newRow[i])
	}
	for j := range col {
		sum := columnSquares(g, len(row), cols, j, s.GradScale)
		newCol[j] = s.average(col[j], float32(sum/float64(len(row))))
		ok = ok && finite(newCol[j])
	}
	return ok
}

func (s *AdamWScalars) average(old, mean float32) float32 {
	return float32(s.Beta2*old) + float32(s.OneMinusBeta2*mean)
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

// Accumulate adds a gradient to a bf16 sum, each result rounded to nearest.
func Accumulate(sum Floats, g Floats) {
	for i := range sum.Len() {
		sum.set(i, sum.At(i)+g.At(i), draw{})
	}
}
