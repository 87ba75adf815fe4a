package lm

import "testing"

func BenchmarkStep(b *testing.B) {
	m := New(Default, 1)
	s, err := NewSampler(Embedded().Train, 16, Default.Context, 1)
	if err != nil {
		b.Fatal(err)
	}
	batch := s.Batch(0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Step(batch); err != nil {
			b.Fatal(err)
		}
	}
}
