package main

import "math"

// errorStats sums the differences between two sequences of numbers. Two equal infinities and two NaN do not differ;
// any other NaN or infinity makes the statistics non-finite.
type errorStats struct {
	n                 int64
	max, sum, squares float64
}

func (s *errorStats) add(want, got []float32) {
	s.n += int64(len(want))
	for i, x := range want {
		y := got[i]
		if x == y || x != x && y != y {
			continue
		}
		d := math.Abs(float64(x) - float64(y))
		s.max = math.Max(s.max, d)
		s.sum += d
		s.squares += float64(d * d)
	}
}

func (s *errorStats) merge(other errorStats) {
	s.n += other.n
	s.max = math.Max(s.max, other.max)
	s.sum += other.sum
	s.squares += other.squares
}

func (s *errorStats) mean() float64 { return s.sum / float64(max(s.n, 1)) }

func (s *errorStats) rms() float64 { return math.Sqrt(s.squares / float64(max(s.n, 1))) }
