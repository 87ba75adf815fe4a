package optim

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/internal/golden"
	"github.com/stretchr/testify/require"
)

func TestGoldenSchedules(t *testing.T) {
	g := golden.Open(t, "schedules")
	for _, test := range []struct {
		name     string
		schedule Schedule
		relative float64
	}{
		{"optax_cosine", Schedule{Type: "cosine", Peak: 0.01, Floor: 0.1, Total: 50, Denominator: "optax"}, 1e-6},
		{"optax_warmup_cosine", Schedule{Type: "cosine", Peak: 0.01, Floor: 0.1, Warmup: 10, Total: 50, Denominator: "optax"}, 1e-6},
		{"torch_denominator_cosine", Schedule{Type: "cosine", Peak: 0.01, Floor: 0.1, Total: 50, Denominator: "torch"}, 1e-12},
		{"torch_denominator_cosine", Schedule{Type: "cosine", Peak: 0.01, Floor: 0.1, Total: 50}, 1e-12},
	} {
		want := g.F64(test.name)
		require.Len(t, want, 55)
		for step, lr := range want {
			require.InDelta(t, lr, test.schedule.At(int64(step)), test.relative*lr, "%s at step %d", test.name, step)
		}
	}
}

func TestScheduleValues(t *testing.T) {
	knots := Schedule{Type: "knots", Peak: 2, Total: 101, Knots: []Knot{
		{At: 0.1, Frac: 0, Interp: "linear"},
		{At: 0.2, Frac: 1, Interp: "hold"},
		{At: 0.5, Frac: 0.5, Interp: "cosine"},
		{At: 0.75, Frac: 0.25},
		{At: 0.8, Frac: 0},
	}}
	for _, test := range []struct {
		schedule Schedule
		want     map[int64]float64
	}{
		{Constant(0.5), map[int64]float64{0: 0.5, 1: 0.5, math.MaxInt64: 0.5, -1: 0.5}},
		{Constant(0), map[int64]float64{0: 0, 7: 0}},
		{Schedule{Type: "constant", Peak: 1, Warmup: 4}, map[int64]float64{-5: 0, 0: 0, 1: 0.25, 3: 0.75, 4: 1, 5: 1, math.MaxInt64: 1}},

		{Schedule{Type: "linear", Peak: 8, Total: 5}, map[int64]float64{0: 8, 1: 6, 3: 2, 4: 0, 5: 0, 1000: 0}},
		{Schedule{Type: "linear", Peak: 8, Total: 4, Denominator: "optax"}, map[int64]float64{0: 8, 1: 6, 3: 2, 4: 0, 5: 0}},
		{Schedule{Type: "linear", Peak: 8, Floor: 0.5, Warmup: 2, Total: 7}, map[int64]float64{0: 0, 1: 4, 2: 8, 3: 7, 4: 6, 6: 4, 7: 4}},
		{Schedule{Type: "cosine", Peak: 8, Floor: 0.5, Warmup: 2, Total: 7}, map[int64]float64{0: 0, 1: 4, 2: 8, 4: 6, 6: 4, 7: 4, math.MaxInt64: 4}},
		{Schedule{Type: "cosine", Peak: 8, Floor: 1, Total: 7}, map[int64]float64{0: 8, 3: 8, 6: 8, 7: 8}},

		// One step, and falls of no length.
		{Schedule{Type: "cosine", Peak: 3, Floor: 0.5, Total: 1}, map[int64]float64{0: 3, 1: 3, 9: 3}},
		{Schedule{Type: "cosine", Peak: 4, Floor: 0.5, Total: 1, Denominator: "optax"}, map[int64]float64{0: 4, 1: 2, 9: 2}},
		{Schedule{Type: "linear", Peak: 4, Warmup: 4, Total: 5}, map[int64]float64{0: 0, 3: 3, 4: 4, 5: 4, 9: 4}},
		{Schedule{Type: "linear", Peak: 4, Warmup: 4, Total: 5, Denominator: "optax"}, map[int64]float64{0: 0, 3: 3, 4: 4, 5: 0, 9: 0}},
		{Schedule{Type: "linear", Peak: 4, Warmup: math.MaxInt64 - 1, Total: math.MaxInt64, Denominator: "optax"}, map[int64]float64{0: 0, math.MaxInt64: 0}},

		{knots, map[int64]float64{-1: 0, 0: 0, 5: 0, 10: 0, 15: 1, 20: 2, 21: 2, 49: 2, 50: 1, 75: 0.5, 80: 0, 100: 0, 101: 0}},
		{Schedule{Type: "knots", Peak: 2, Total: 1, Knots: []Knot{{At: 0, Frac: 0.5}, {At: 1, Frac: 0}}}, map[int64]float64{0: 1, 1: 1, 5: 1}},
		{Schedule{Type: "knots", Peak: 2, Total: 2, Knots: []Knot{{At: 0, Frac: 0.5, Interp: "hold"}, {At: 1, Frac: 0}}}, map[int64]float64{0: 1, 1: 0, 5: 0}},
		{Schedule{Type: "knots", Peak: 2, Total: 9, Knots: []Knot{{At: 0.5, Frac: 0.25}}}, map[int64]float64{0: 0.5, 4: 0.5, 8: 0.5}},
	} {
		require.NoError(t, test.schedule.validate())
		for step, want := range test.want {
			require.InDelta(t, want, test.schedule.At(step), 1e-14, "%+v at step %d", test.schedule, step)
		}
	}
	// Half way between the knots at 0.5 and 0.75, and a quarter, which the cosine is late for.
	require.InDelta(t, 2*0.375, Schedule{Type: "knots", Peak: 2, Total: 9, Knots: []Knot{{At: 0.5, Frac: 0.5, Interp: "cosine"}, {At: 1, Frac: 0.25}}}.At(6), 1e-15)
	require.InDelta(t, 2*(0.25+0.25*(2+math.Sqrt2)/4), Schedule{Type: "knots", Peak: 2, Total: 9, Knots: []Knot{{At: 0.5, Frac: 0.5, Interp: "cosine"}, {At: 1, Frac: 0.25}}}.At(5), 1e-15)
}

func TestScheduleJSON(t *testing.T) {
	for _, test := range []struct{ document, written string }{
		{`0.001`, `0.001`},
		{` {"type": "constant", "peak": 0.001} `, `0.001`},
		{`{"type": "constant", "peak": 1, "warmup": 5}`, `{"type":"constant","peak":1,"warmup":5}`},
		{`{"total": 10, "peak": 1, "type": "linear"}`, `{"type":"linear","peak":1,"total":10}`},
		{`{"type": "linear", "peak": 1, "total": 10, "denominator": null}`, `{"type":"linear","peak":1,"total":10}`},
		{`{"type": "cosine", "peak": 1, "floor": 0, "warmup": 0, "total": 10, "denominator": "torch"}`, `{"type":"cosine","peak":1,"total":10,"denominator":"torch"}`},
		{`{"type": "knots", "peak": 1, "total": 2, "knots": [{"at": 0, "frac": 0, "interp": null}]}`, `{"type":"knots","peak":1,"total":2,"knots":[{"at":0,"frac":0}]}`},
	} {
		var s, again Schedule
		require.NoError(t, json.Unmarshal([]byte(test.document), &s), test.document)
		written, err := json.Marshal(s)
		require.NoError(t, err)
		require.Equal(t, test.written, string(written))
		require.NoError(t, json.Unmarshal(written, &again))
		require.Equal(t, s, again)
	}
	kept := Constant(1)
	require.EqualError(t, json.Unmarshal([]byte(`{"type": "cosine", "peak": 1, "total": 5, "floor": 2}`), &kept), "optim: floor: got 2, want a number in [0, 1]")
	require.EqualError(t, json.Unmarshal([]byte(`true`), &kept), "optim: got true, want a number or a schedule")
	require.Equal(t, Constant(1), kept)
}

func TestScheduleAtDoesNotAllocate(t *testing.T) {
	schedules := []Schedule{
		Constant(1),
		{Type: "cosine", Peak: 1, Warmup: 2, Total: 10},
		{Type: "knots", Peak: 1, Total: 10, Knots: []Knot{{At: 0, Frac: 1, Interp: "cosine"}, {At: 1}}},
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, s := range schedules {
			for step := range int64(12) {
				sink += s.At(step)
			}
		}
	}))
}

var sink float64

func FuzzSchedule(f *testing.F) {
	f.Add("constant", 0.1, 0.0, int64(0), int64(0), "", 0.0, 0.0, "", 0.0, 0.0, int64(3))
	f.Add("cosine", 0.1, 0.1, int64(10), int64(50), "optax", 0.0, 0.0, "", 0.0, 0.0, int64(20))
	f.Add("linear", 1.0, 0.3, int64(4), int64(5), "torch", 0.0, 0.0, "", 0.0, 0.0, int64(4))
	f.Add("knots", 1.0, 0.0, int64(0), int64(100), "", 0.1, 0.9, "cosine", 0.7, 0.2, int64(33))
	f.Fuzz(func(t *testing.T, kind string, peak, floor float64, warmup, total int64, denominator string, at0, frac0 float64, interp string, at1, frac1 float64, step int64) {
		s := Schedule{Type: kind, Peak: peak, Floor: floor, Warmup: warmup, Total: total, Denominator: denominator}
		if kind == "knots" {
			s.Knots = []Knot{{at0, frac0, interp}, {at1, frac1, ""}}
		}
		c := DefaultAdamW()
		c.LR = s
		if c.Validate() != nil {
			s.At(step) // whatever it returns, it does not panic
			return
		}
		lr := s.At(step)
		require.True(t, 0 <= lr && lr <= peak, "%+v: %v at step %d", s, lr, step)
		if kind == "constant" {
			require.True(t, step < warmup || lr == peak)
			return
		}
		end := s.At(total)
		require.Equal(t, end, s.At(math.MaxInt64))
		if denominator != "optax" {
			require.Equal(t, end, s.At(total-1))
		}
		if step > total {
			require.Equal(t, end, lr)
		}
		if kind != "knots" {
			require.GreaterOrEqual(t, s.At(warmup), end)
			require.Equal(t, peak, s.At(warmup))
		}
	})
}
