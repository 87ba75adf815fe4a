package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// Schedule is a learning rate for every step. In JSON it is a number, which is [Constant], or an object.
//
//   - constant: Peak.
//   - linear, cosine: from Peak to Floor*Peak. With Denominator torch the floor is reached at step Total-1, the last;
//     with optax at step Total, one later.
//   - knots: Peak times the fraction given at each knot's position, on step/(Total-1).
//
// All but knots may rise first, from 0 at step 0 to Peak at step Warmup, the fall taking the rest. After the end the
// last value holds. A fall of no length (Total is Warmup+1) stays at Peak.
type Schedule struct {
	// Type is constant, linear, cosine or knots.
	Type string `json:"type" want:"constant|linear|cosine|knots" required:""`
	// Peak is the largest learning rate.
	Peak float64 `json:"peak" want:"[0,inf)" required:""`
	// Floor is the last learning rate as a fraction of Peak.
	Floor float64 `json:"floor,omitempty" want:"[0,1]"`
	// Warmup is the number of steps of the rise, fewer than Total.
	Warmup int64 `json:"warmup,omitempty" want:"[0,inf)"`
	// Total is the number of steps.
	Total int64 `json:"total,omitempty" want:"[0,inf)"`
	// Denominator is torch or optax; empty means torch.
	Denominator string `json:"denominator,omitempty" want:"null or torch|optax"`
	// Knots have strictly increasing positions.
	Knots []Knot `json:"knots,omitempty"`
}

// Knot is a point of a schedule. Before the first knot and after the last the nearest one's fraction holds.
type Knot struct {
	// At is the position: 0 is the first step, 1 the last.
	At float64 `json:"at" want:"[0,1]" required:""`
	// Frac is the learning rate there as a fraction of the peak.
	Frac float64 `json:"frac" want:"[0,1]" required:""`
	// Interp is the way from this knot to the next: linear, cosine (half a period, flat at both ends) or hold (this
	// knot's fraction until the next); empty means linear.
	Interp string `json:"interp,omitempty" want:"null or linear|cosine|hold"`
}

// Constant is the schedule that is lr at every step.
func Constant(lr float64) Schedule { return Schedule{Type: "constant", Peak: lr} }

// At returns the learning rate of a step; the first update is step 0. It does not allocate.
func (s Schedule) At(step int64) float64 {
	last := s.Total
	if s.Denominator != "optax" {
		last--
	}
	if s.Type == "constant" {
		last = math.MaxInt64
	}
	step = min(max(step, 0), last)
	if step < s.Warmup {
		return s.Peak * (float64(step) / float64(s.Warmup))
	}
	t := 0.0
	if last > s.Warmup {
		t = float64(step-s.Warmup) / float64(last-s.Warmup)
	}
	switch s.Type {
	case "constant":
		return s.Peak
	case "knots":
		return s.Peak * s.knotFraction(t)
	}
	return s.Peak * blend(1, s.Floor, t, s.Type)
}

func (s Schedule) knotFraction(t float64) float64 {
	before := Knot{Frac: 1}
	for i, next := range s.Knots {
		if t < next.At {
			if i == 0 {
				return next.Frac
			}
			return blend(before.Frac, next.Frac, (t-before.At)/(next.At-before.At), before.Interp)
		}
		before = next
	}
	return before.Frac
}

// blend goes from a at t = 0 to b at t = 1.
func blend(a, b, t float64, interp string) float64 {
	switch interp {
	case "hold":
		return a
	case "cosine":
		t = 0.5 * (1 - math.Cos(math.Pi*t))
	}
	return float64(a*(1-t)) + float64(b*t)
}

// scheduleKeys are the optional keys that mean something to each type.
var scheduleKeys = map[string][]string{
	"constant": {"warmup"},
	"linear":   {"floor", "warmup", "total", "denominator"},
	"cosine":   {"floor", "warmup", "total", "denominator"},
	"knots":    {"total", "knots"},
}

func (s Schedule) validate() error {
	v := reflect.ValueOf(s)
	for _, f := range jsonFields(v.Type()) {
		if !f.required && !v.FieldByIndex(f.index).IsZero() && !slices.Contains(scheduleKeys[s.Type], f.key) {
			return problem(f.key, "means nothing in a %s schedule", s.Type)
		}
	}
	if s.Type == "constant" {
		return nil
	}
	if s.Total == 0 {
		return problem("total", "got 0, want an integer >= 1")
	}
	if s.Warmup >= s.Total {
		return problem("warmup", "got %d, want fewer steps than total's %d", s.Warmup, s.Total)
	}
	if s.Type == "knots" && len(s.Knots) == 0 {
		return problem("knots", "got none, want at least one")
	}
	for i := 1; i < len(s.Knots); i++ {
		if before, here := s.Knots[i-1].At, s.Knots[i].At; here <= before {
			return problem(fmt.Sprintf("knots[%d].at", i), "got %s, want more than the %s before it", number(here), number(before))
		}
	}
	return nil
}

// plainSchedule drops the methods, so that encoding one does not call MarshalJSON again.
type plainSchedule Schedule

// MarshalJSON writes a constant schedule without warmup as a number, any other as an object.
func (s Schedule) MarshalJSON() ([]byte, error) {
	if reflect.DeepEqual(s, Constant(s.Peak)) {
		return json.Marshal(s.Peak)
	}
	return json.Marshal(plainSchedule(s))
}

// UnmarshalJSON reads a number or an object, as strictly as [ParseConfig].
func (s *Schedule) UnmarshalJSON(data []byte) error {
	data, err := parse(data)
	if err != nil {
		return err
	}
	var read plainSchedule
	if data[0] == '{' {
		err = decode(data, reflect.ValueOf(&read).Elem(), "")
	} else {
		read.Type = "constant"
		peak := reflect.ValueOf(&read.Peak).Elem()
		if err = decode(data, peak, "a number or a schedule"); err == nil {
			err = checkValue(peak, "[0,inf)")
		}
	}
	if err != nil {
		return err
	}
	if err := check(reflect.ValueOf(Schedule(read))); err != nil {
		return err
	}
	*s = Schedule(read)
	return nil
}
