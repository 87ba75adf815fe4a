package optim

import (
	"regexp"

	"github.com/lowbit-go/lowbit/internal/glob"
)

// ParamGroup changes settings for the parameters whose name one of Params matches. Nil and empty settings stay as they
// were.
type ParamGroup struct {
	// Params are patterns for whole names: * stands for any run of characters, dots and slashes included, ? for one
	// character, [a-z] for one of a class, [^a-z] or [!a-z] for one outside it, and \ takes the next character as it is.
	Params []string `json:"params" required:""`
	// LRScale multiplies the learning rate.
	LRScale *float64 `json:"lr_scale,omitempty" want:"null or [0,inf)"`
	// WeightDecay replaces the configuration's.
	WeightDecay *float64 `json:"weight_decay,omitempty" want:"null or [0,inf)"`
	// Role is token_embedding, matrix, conv or vector.
	Role string `json:"role,omitempty" want:"null or token_embedding|matrix|conv|vector"`
	// StatePrecision is 8bit or fp32; uint8 and int8, float32 are other names for them.
	StatePrecision string `json:"state_precision,omitempty" want:"null or 8bit|fp32|uint8|int8|float32"`
	// Optimizer is muon or adamw, in a muon configuration.
	Optimizer string `json:"optimizer,omitempty" want:"null or muon|adamw"`
}

func (g ParamGroup) validate() error {
	if len(g.Params) == 0 {
		return problem("params", "got none, want at least one pattern")
	}
	for i, pattern := range g.Params {
		if _, err := compileGlob(pattern); err != nil {
			return at("params"+index(i), err)
		}
	}
	return nil
}

// statePrecision replaces the other names of 8bit and fp32.
func statePrecision(name string) string {
	switch name {
	case "uint8", "int8":
		return "8bit"
	case "float32":
		return "fp32"
	}
	return name
}

// matchGroups returns for each parameter's name the settings that groups give it, without their patterns and with
// StatePrecision 8bit, fp32 or empty: each setting is the last matching group's that has it. A pattern that matches no
// name is an error.
func matchGroups(groups []ParamGroup, names []string) ([]ParamGroup, error) {
	settings := make([]ParamGroup, len(names))
	for i, g := range groups {
		matched := make([]bool, len(names))
		for j, pattern := range g.Params {
			re, err := compileGlob(pattern)
			if err != nil {
				return nil, at("param_groups"+index(i)+".params"+index(j), err)
			}
			found := false
			for k, name := range names {
				if re.MatchString(name) {
					matched[k], found = true, true
				}
			}
			if !found {
				return nil, problem("param_groups"+index(i)+".params"+index(j), "%q matches none of %d parameters", pattern, len(names))
			}
		}
		for k := range names {
			if matched[k] {
				settings[k].override(g)
			}
		}
	}
	return settings, nil
}

func (g *ParamGroup) override(by ParamGroup) {
	if by.LRScale != nil {
		g.LRScale = by.LRScale
	}
	if by.WeightDecay != nil {
		g.WeightDecay = by.WeightDecay
	}
	if by.Role != "" {
		g.Role = by.Role
	}
	if by.StatePrecision != "" {
		g.StatePrecision = statePrecision(by.StatePrecision)
	}
	if by.Optimizer != "" {
		g.Optimizer = by.Optimizer
	}
}

func compileGlob(pattern string) (*regexp.Regexp, error) {
	re, err := glob.Compile(pattern)
	if err != nil {
		return nil, problem("", "%v", err)
	}
	return re, nil
}
