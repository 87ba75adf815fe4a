package optim_test

import (
	"encoding/json"
	"fmt"

	"github.com/lowbit-go/lowbit/optim"
)

func ExampleParseConfig() {
	c, err := optim.ParseConfig([]byte(`{
		"lr": {"type": "cosine", "peak": 1e-3, "floor": 0.1, "warmup": 100, "total": 1000},
		"adam_8bit": true,
		"param_groups": [{"params": ["*.bias", "*.norm"], "weight_decay": 0}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	switch c := c.(type) {
	case optim.AdamWConfig:
		fmt.Println(c.Type(), c.Adam8bit, c.Betas, c.LR.At(50))
	case optim.MuonConfig:
		fmt.Println(c.Type(), c.Variant)
	}

	_, err = optim.ParseConfig([]byte(`{"type": "muon", "lr": 0.02, "momentum": 0.9}`))
	fmt.Println(err)
	_, err = optim.ParseConfig([]byte(`{"adam_8bit": true, "moments_dtype": "bfloat16"}`))
	fmt.Println(err)
	// Output:
	// adamw true [0.9 0.999] 0.0005
	// optim: unknown key "momentum", here called "beta"
	// optim: adam_8bit: true excludes moments_dtype bfloat16
}

func ExampleDefaultMuon() {
	c := optim.DefaultMuon()
	c.LR = optim.Constant(0.02)
	c.NSSteps = new(6)
	c.NSCoeffs = optim.NSCoeffs{Preset: "polar-express"}
	fmt.Println(c.Validate())

	c.NSCoeffs.Preset = "dion"
	fmt.Println(c.Validate())
	// Output:
	// <nil>
	// optim: ns_steps: newton-schulz: polynomial dion: 6 steps, want 0 to 5
}

func ExampleAdamWConfig_Warnings() {
	c := optim.DefaultAdamW()
	c.MomentsDtype = "bfloat16"
	for _, warning := range c.Warnings() {
		fmt.Println(warning)
	}
	// Output:
	// betas[1]: got 0.999, but a second moment rounded to the nearest bfloat16 stops falling above 0.996; use moments_rounding stochastic or adam_8bit
}

func ExampleSchedule_At() {
	s := optim.Schedule{Type: "linear", Peak: 1, Warmup: 2, Total: 7}
	fmt.Println(s.At(0), s.At(1), s.At(2), s.At(3), s.At(6), s.At(100))

	var piecewise optim.Schedule
	err := json.Unmarshal([]byte(`{"type": "knots", "peak": 0.1, "total": 101, "knots": [
		{"at": 0, "frac": 0}, {"at": 0.1, "frac": 1, "interp": "hold"}, {"at": 0.8, "frac": 1, "interp": "cosine"}, {"at": 1, "frac": 0}]}`), &piecewise)
	fmt.Println(err, piecewise.At(5), piecewise.At(50), piecewise.At(90), piecewise.At(100))
	// Output:
	// 0 0.5 1 0.75 0 0
	// <nil> 0.05 0.1 0.05 0
}
