package main

import "math"

// errorStats sums the differences between two sequences of numbers. Two equal infinities and two NaN do not differ;
// any other NaN or infinity makes the statistics non-finite.
type errorStats struct {
	n                 int64
	max, sum, squares float64
}

func (s *errorStats) add(want, got []float32) {
	largest, sum, squares := s.max, s.sum, s.squares
	for i, x := range want {
		y := got[i]
		d := math.Abs(float64(x) - float64(y))
		if d != d && (x == y || x != x && y != y) {
			d = 0
		}
		if d > largest {
			largest = d
		}
		sum += d
		squares += float64(d * d)
	}
	if sum != sum {
		largest = sum
	}
	s.n += int64(len(want))
	s.max, s.sum, s.squares = largest, sum, squares
}

func (s *errorStats) merge(other errorStats) {
	s.n += other.n
	s.max = max(s.max, other.max)
	s.sum += other.sum
	s.squares += other.squares
}

func (s *errorStats) mean() float64 { return s.sum / float64(max(s.n, 1)) }

func (s *errorStats) rms() float64 { return math.Sqrt(s.squares / float64(max(s.n, 1))) }
