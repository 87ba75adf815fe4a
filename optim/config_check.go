package optim

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Validate reports the first key whose value is out of range or excluded by another key.
func (c AdamWConfig) Validate() error {
	return c.startFrom("DefaultAdamW", check(reflect.ValueOf(c)))
}

// Validate reports the first key whose value is out of range or excluded by another key.
func (c MuonConfig) Validate() error {
	return c.startFrom("DefaultMuon", check(reflect.ValueOf(c)))
}

// startFrom adds to the error of a configuration that was not made from the defaults how to.
func (c Common) startFrom(defaults string, err error) error {
	e, ok := err.(*keyError)
	if !ok || c.WeightRounding != "" {
		return err
	}
	return &keyError{e.key, e.problem + "; start from " + defaults + ", which sets every key that has a default"}
}

// An exclusion is two settings, each a key and its value, that cannot be combined.
type exclusion struct {
	both        bool
	key, value  string
	other, with string
}

func firstExclusion(list []exclusion) error {
	for _, e := range list {
		if e.both {
			return problem(e.key, "%s excludes %s %s", e.value, e.other, e.with)
		}
	}
	return nil
}

func (c AdamWConfig) validate() error {
	exact := c.MomentsDtype == "float32"
	err := firstExclusion([]exclusion{
		{c.Adam8bit && c.Adam4bit, "adam_8bit", "true", "adam_4bit", "true"},
		{c.Adam8bit && !exact, "adam_8bit", "true", "moments_dtype", c.MomentsDtype},
		{c.Adam4bit && !exact, "adam_4bit", "true", "moments_dtype", c.MomentsDtype},
		{c.Adam8bit && c.MomentsRounding != "nearest", "adam_8bit", "true", "moments_rounding", c.MomentsRounding},
		{c.Adam4bit && c.MomentsRounding != "nearest", "adam_4bit", "true", "moments_rounding", c.MomentsRounding},
		{exact && c.MomentsRounding != "nearest", "moments_dtype", c.MomentsDtype, "moments_rounding", c.MomentsRounding},
		{c.Headroom && !c.Adam8bit, "headroom", "true", "adam_8bit", "false"},
	})
	if err != nil {
		return err
	}
	for i, b := range c.Betas {
		if c.Variant == "optax" && float32(b) == 1 { // its 1-b^t is computed in float32
			return problem("betas"+index(i), "got %s, which is 1 in float32, want less with variant optax", number(b))
		}
	}
	if n := c.QuantBlockSize; c.Adam4bit && (n < 32 || n > 1024 || n&(n-1) != 0) {
		return problem("quant_block_size", "got %d, want a power of two in [32, 1024] with adam_4bit", n)
	}
	for i, g := range c.ParamGroups {
		precision := statePrecision(g.StatePrecision)
		err := firstExclusion([]exclusion{
			{g.Optimizer != "", "optimizer", g.Optimizer, "type", "adamw"},
			{precision == "8bit" && !c.Adam8bit, "state_precision", g.StatePrecision, "adam_8bit", "false"},
			{precision == "fp32" && c.Adam4bit, "state_precision", g.StatePrecision, "adam_4bit", "true"},
			{precision == "fp32" && !exact, "state_precision", g.StatePrecision, "moments_dtype", c.MomentsDtype},
		})
		if err != nil {
			return at("param_groups"+index(i), err)
		}
	}
	return c.Common.validate()
}

func (c MuonConfig) validate() error {
	err := firstExclusion([]exclusion{
		{c.Adaptive && c.Variant != "optax", "adaptive", "true", "variant", c.Variant},
		{c.ConsistentRMS != nil && c.Variant != "optax", "consistent_rms", "a number", "variant", c.Variant},
		{c.ConsistentRMS != nil && c.Adjust != "", "consistent_rms", "a number", "adjust", c.Adjust},
	})
	if err != nil {
		return err
	}
	_, safety, err := c.polynomials()
	if err != nil {
		return problem("ns_steps", "%v", err)
	}
	if safety > 1 && c.NSMethod == "gram" && c.NSDtype == "bfloat16" { // rounding noise grows without bound there
		return problem("ns_method", "gram excludes ns_coeffs %s with ns_dtype bfloat16", c.NSCoeffs.Preset)
	}
	quantised := c.MomentumDtype == "8bit" || c.MomentumDtype == "linear8"
	for i, g := range c.ParamGroups {
		precision := statePrecision(g.StatePrecision)
		err := firstExclusion([]exclusion{
			{precision == "8bit" && !quantised, "state_precision", g.StatePrecision, "momentum_dtype", c.MomentumDtype},
			{precision == "fp32" && c.MomentumDtype == "bfloat16", "state_precision", g.StatePrecision, "momentum_dtype", c.MomentumDtype},
		})
		if err != nil {
			return at("param_groups"+index(i), err)
		}
	}
	return c.Common.validate()
}

func (c Common) validate() error {
	disk := c.OptimizerStateOffload == "disk"
	err := firstExclusion([]exclusion{
		{c.Master == "split" && c.WeightRounding != "nearest", "master", c.Master, "weight_rounding", c.WeightRounding},
		{!disk && c.OptimizerStateOffloadDir != "", "optimizer_state_offload", c.OptimizerStateOffload, "optimizer_state_offload_dir", strconv.Quote(c.OptimizerStateOffloadDir)},
	})
	if err == nil && disk && c.OptimizerStateOffloadDir == "" {
		return problem("optimizer_state_offload_dir", "missing, want a directory for optimizer_state_offload disk")
	}
	return err
}

// Fields say in their want tag which values they take:
//
//	[0,1)       numbers of an interval
//	a|b         these strings
//	null or …   also null, which is the zero value
//
// Anything else only describes what is wanted.
const orNull = "null or "

// check walks a struct: first each field's tag, then its validate method, which may rely on them.
func check(v reflect.Value) error {
	for _, f := range jsonFields(v.Type()) {
		if err := checkValue(v.FieldByIndex(f.index), f.want); err != nil {
			return at(f.key, err)
		}
	}
	if s, ok := v.Interface().(interface{ validate() error }); ok {
		return s.validate()
	}
	return nil
}

func checkValue(v reflect.Value, want string) error {
	if v.IsZero() && strings.HasPrefix(want, orNull) {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	bad := ""
	switch v.Kind() {
	case reflect.Struct:
		if v.IsZero() && want != "" {
			return problem("", "missing, want %s", wanted(v.Type(), want))
		}
		return check(v)
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			if err := checkValue(v.Index(i), want); err != nil {
				return at(index(i), err)
			}
		}
	case reflect.String:
		if words := choices(want); words != nil && !slices.Contains(words, v.String()) {
			bad = shorten(strconv.Quote(v.String()))
		}
	case reflect.Int, reflect.Int64:
		if r, ok := parseInterval(want); ok && !r.holds(float64(v.Int())) {
			bad = strconv.FormatInt(v.Int(), 10)
		}
	case reflect.Float64:
		if r, ok := parseInterval(want); ok && !r.holds(v.Float()) {
			bad = number(v.Float())
		}
	}
	if bad != "" {
		return problem("", "got %s, want %s", bad, wanted(v.Type(), want))
	}
	return nil
}

// wanted describes the values of a type and tag.
func wanted(t reflect.Type, want string) string {
	plain, nullable := strings.CutPrefix(want, orNull)
	if words := choices(want); words != nil {
		if nullable {
			words = append([]string{"null"}, words...)
		}
		last := len(words) - 1
		return strings.Join(words[:last], ", ") + " or " + words[last]
	}
	if nullable {
		return orNull + wanted(t, plain)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	r, ranged := parseInterval(want)
	if want != "" && !ranged {
		return want
	}
	kind := map[reflect.Kind]string{
		reflect.Slice:   "an array",
		reflect.Struct:  "an object",
		reflect.Bool:    "true or false",
		reflect.String:  "a string of at least one character",
		reflect.Uint64:  "an integer in [0, 2^64)",
		reflect.Int:     "an integer",
		reflect.Int64:   "an integer",
		reflect.Float64: "a number",
	}[t.Kind()]
	switch {
	case t.Kind() == reflect.Array && ranged:
		return fmt.Sprintf("an array of %d numbers %v", t.Len(), r)
	case t.Kind() == reflect.Array:
		return fmt.Sprintf("an array of %d numbers", t.Len())
	case ranged:
		return kind + " " + r.String()
	}
	return kind
}

func choices(want string) []string {
	want = strings.TrimPrefix(want, orNull)
	if !strings.Contains(want, "|") {
		return nil
	}
	return strings.Split(want, "|")
}

type interval struct {
	low, high         float64
	openLow, openHigh bool
}

func parseInterval(want string) (interval, bool) {
	want = strings.TrimPrefix(want, orNull)
	if want == "" || want[0] != '[' && want[0] != '(' {
		return interval{}, false
	}
	end := len(want) - 1
	low, high, _ := strings.Cut(want[1:end], ",")
	r := interval{openLow: want[0] == '(', openHigh: want[end] == ')'}
	r.low, _ = strconv.ParseFloat(low, 64)
	r.high, _ = strconv.ParseFloat(high, 64)
	return r, true
}

func (r interval) holds(x float64) bool {
	return (x > r.low || x == r.low && !r.openLow) && (x < r.high || x == r.high && !r.openHigh)
}

// String describes the intervals in use: only unbounded ones leave their low end out.
func (r interval) String() string {
	switch {
	case math.IsInf(r.high, 1) && r.openLow:
		return "> " + number(r.low)
	case math.IsInf(r.high, 1):
		return ">= " + number(r.low)
	}
	right := "]"
	if r.openHigh {
		right = ")"
	}
	return fmt.Sprintf("in [%s, %s%s", number(r.low), number(r.high), right)
}
