package workers

import (
	"fmt"
	"testing"
	"time"
)

// spin is pieces that take so long each.
type spin time.Duration

func (s *spin) Do(int, int) {
	for start := time.Now(); time.Since(start) < time.Duration(*s); {
	}
}

// BenchmarkCrew is tasks of two pieces on two threads: of one crew, one after the other, and
// of a crew each.
func BenchmarkCrew(b *testing.B) {
	for _, long := range []time.Duration{0, 5 * time.Microsecond, 20 * time.Microsecond, 100 * time.Microsecond} {
		task := spin(long)
		b.Run(fmt.Sprintf("piece=%v/one", long), func(b *testing.B) {
			crew := Hire(2)
			for b.Loop() {
				crew.Run(2, &task)
			}
			crew.Dismiss()
		})
		b.Run(fmt.Sprintf("piece=%v/each", long), func(b *testing.B) {
			for b.Loop() {
				Run(2, 2, &task)
			}
		})
		b.Run(fmt.Sprintf("piece=%v/with-pauses", long), func(b *testing.B) {
			pause := spin(100 * time.Microsecond)
			for b.Loop() {
				b.StopTimer()
				pause.Do(0, 0)
				b.StartTimer()
				Run(2, 2, &task)
			}
		})
	}
}
