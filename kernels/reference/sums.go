package reference

// SumChunk is the number of elements whose squares are summed before the chunks' sums
// are added in order.
const SumChunk = 4096

const sumLanes = 16

// Absmax is the largest magnitude, 0 for an empty slice, NaN if there is a NaN.
func Absmax(x []float32) float32 {
	largest := float32(0)
	for _, v := range x {
		if v != v {
			return v
		}
		largest = max(largest, magnitude(v))
	}
	return largest
}

// ChunkSums sets sums[i] to the sum of the squares of x[i*SumChunk:(i+1)*SumChunk], the
// last chunk as long as x is. Lane j adds the elements j, j+16, … of a chunk in float64,
// then the lanes are added pairwise, 8 apart, 4, 2 and 1.
func ChunkSums(sums []float64, x Floats) {
	for i := range sums {
		lo := i * SumChunk
		sums[i] = chunkSum(x.Slice(lo, min(lo+SumChunk, x.Len())))
	}
}

func chunkSum(x Floats) float64 {
	return laneSum(x.Len(), func(i int) float64 { return square(x.At(i)) })
}

// ChunkDots sets sums[i] to the sum of the products of the chunks i of x and y, each
// exact in float64, in the order of ChunkSums.
func ChunkDots(sums []float64, x, y []float32) {
	for i := range sums {
		lo := i * SumChunk
		sums[i] = laneSum(min(SumChunk, len(x)-lo), func(j int) float64 {
			return float64(float64(x[lo+j]) * float64(y[lo+j]))
		})
	}
}

// laneSum adds up to SumChunk terms in the contract's order.
func laneSum(n int, term func(i int) float64) float64 {
	var lanes [sumLanes]float64
	for i := range n {
		lanes[i%sumLanes] += term(i)
	}
	for width := sumLanes / 2; width > 0; width /= 2 {
		for j := range width {
			lanes[j] += lanes[j+width]
		}
	}
	return lanes[0]
}

// orderedSum adds any number of terms: laneSum of each chunk, added in order.
func orderedSum(n int, term func(i int) float64) float64 {
	total := 0.0
	for lo := 0; lo < n; lo += SumChunk {
		total += laneSum(min(SumChunk, n-lo), func(i int) float64 { return term(lo + i) })
	}
	return total
}

func square(x float32) float64 { return float64(float64(x) * float64(x)) }

// SumSquares adds the chunks' sums in order.
func SumSquares(x Floats) float64 {
	return orderedSum(x.Len(), func(i int) float64 { return square(x.At(i)) })
}

// Scale multiplies each element, rounding once to the vector's format.
func Scale(x Floats, factor float32) {
	for i := range x.Len() {
		x.set(i, x.At(i)*factor, nil)
	}
}
