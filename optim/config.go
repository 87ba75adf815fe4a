package optim

import (
	"encoding/json"
	"reflect"

	"github.com/lowbit-go/lowbit/kernels"
)

// Config is an optimizer's configuration: an [AdamWConfig] or a [MuonConfig].
type Config interface {
	// Type is the value of the JSON key "type": "adamw" or "muon".
	Type() string
	// Validate reports the first key whose value is out of range or excluded by another key, by the key's JSON name.
	Validate() error
	// Warnings describes settings that are valid and known to train badly.
	Warnings() []string

	common() Common
	// settle completes a parameter: its storage, weight decay and the layout of its state.
	settle(p *parameter, precision string, group ParamGroup) error
	// setAdamW sets the numbers of AdamW's step of a parameter.
	setAdamW(o *Optimizer, p *parameter, r StepResult)
	// muon does one step of a parameter that is Muon's.
	muon(o *Optimizer, p *parameter, r StepResult) (kernels.Counts, bool, error)
	// representation names how the state is kept, for checkpoints.
	representation() string
	// resident is the configuration without offload, which checkpoints do not depend on.
	resident() Config
}

// Common holds the keys that both configurations have.
type Common struct {
	// LR is the learning rate. Muon's variant optax has no default.
	LR Schedule `json:"lr" want:"a number or a schedule"`
	// WeightDecay is the decoupled decay's coefficient, multiplied by the learning rate.
	WeightDecay float64 `json:"weight_decay" want:"[0,inf)"`
	// GradClipNorm is the largest global norm of the gradients; nil does not clip.
	GradClipNorm *float64 `json:"grad_clip_norm" want:"null or (0,inf)"`
	// Nonfinite is propagate or skip; empty means skip for 8-bit and 4-bit moments, propagate for others. What is
	// skipped is an element of float32 and bfloat16 moments, a block of codes, a parameter whose second moment has a
	// factor that is not finite, and one of Muon's matrices.
	Nonfinite string `json:"nonfinite,omitempty" want:"null or propagate|skip"`
	// QuantBlockSize is the elements that share a scale: 1 to 4096, a power of two from 32 to 1024 for 4-bit moments.
	QuantBlockSize int `json:"quant_block_size" want:"[1,4096]"`
	// WeightRounding is nearest or stochastic.
	WeightRounding string `json:"weight_rounding" want:"nearest|stochastic"`
	// Master is none, or split: 16 more bits for each bfloat16 weight, which restore its float32 master.
	Master string `json:"master" want:"none|split"`
	// Seed is the run's seed, of which stochastic rounding derives its streams.
	Seed uint64 `json:"seed"`
	// ParamGroups change settings for the parameters they name; later groups win.
	ParamGroups []ParamGroup `json:"param_groups,omitempty"`
	// OptimizerStateOffload is none, cpu or disk. States are in main memory, where cpu wants them, unless it is disk:
	// then they are in a file that has no name where the system allows that, and that Close gives back. Three batches
	// of parameters are in memory at most, so a batch should not be much larger than others. No bit depends on it.
	OptimizerStateOffload string `json:"optimizer_state_offload" want:"none|cpu|disk"`
	// OptimizerStateOffloadDir is the directory for disk's scratch files.
	OptimizerStateOffloadDir string `json:"optimizer_state_offload_dir,omitempty" want:"null or a directory"`
	// OptimizerStateOffloadBatchSize is the number of parameters whose states are moved at a time.
	OptimizerStateOffloadBatchSize int `json:"optimizer_state_offload_batch_size" want:"[1,inf)"`
}

// AdamWConfig configures AdamW and, with Nesterov, NAdamW. Start from [DefaultAdamW].
type AdamWConfig struct {
	Common
	// Betas are the decay rates of the first and second moment.
	Betas [2]float64 `json:"betas" want:"[0,1)"`
	// Eps is added to the root of the second moment. It is not 0 in float32, so that a zero gradient never gives 0/0.
	Eps float64 `json:"eps" want:"[1e-45,3e38]"`
	// MomentsDtype is float32 or bfloat16.
	MomentsDtype string `json:"moments_dtype" want:"float32|bfloat16"`
	// MomentsRounding rounds bfloat16 moments: nearest or stochastic.
	MomentsRounding string `json:"moments_rounding" want:"nearest|stochastic"`
	// Adam8bit stores both moments as 8-bit codes, and excludes Adam4bit and any other MomentsDtype than float32.
	Adam8bit bool `json:"adam_8bit"`
	// Adam4bit stores the moments as 4-bit codes and row and column factors.
	Adam4bit bool `json:"adam_4bit"`
	// Nesterov looks one step ahead with the first moment (NAdamW).
	Nesterov bool `json:"nesterov"`
	// Variant is the order of operations: torch or optax.
	Variant string `json:"variant" want:"torch|optax"`
	// Headroom scales 8-bit blocks so that an extreme of either sign keeps its value when requantised.
	Headroom bool `json:"headroom"`
}

// MuonConfig configures Muon, and the NAdamW of the parameters that are not matrices. Start from [DefaultMuon], or
// parse {"type": "muon", "variant": …} for another variant's defaults: setting Variant changes no other field.
type MuonConfig struct {
	Common
	// Variant selects momentum rule, norm and weight decay: optax, torch, jordan, moonlight or dion.
	Variant string `json:"variant" want:"optax|torch|jordan|moonlight|dion"`
	// Beta is the momentum's decay rate.
	Beta float64 `json:"beta" want:"[0,1)"`
	// Nesterov looks one step ahead with the momentum.
	Nesterov bool `json:"nesterov"`
	// NSSteps is the number of Newton-Schulz steps; nil means the table's length, or 5 for one triple.
	NSSteps *int `json:"ns_steps" want:"null or [0,99]"`
	// NSCoeffs are the Newton-Schulz polynomial's coefficients.
	NSCoeffs NSCoeffs `json:"ns_coeffs" want:"a preset's name, a triple or a list of triples"`
	// NSDtype is Newton-Schulz's precision: float32 or bfloat16.
	NSDtype string `json:"ns_dtype" want:"float32|bfloat16"`
	// NSMethod is standard or gram.
	NSMethod string `json:"ns_method" want:"standard|gram"`
	// Eps is NAdamW's; Newton-Schulz does not use it.
	Eps float64 `json:"eps" want:"[1e-45,3e38]"`
	// ParityNorm divides by the norm in the variant's published precision, with its published eps.
	ParityNorm bool `json:"parity_norm"`
	// ConsistentRMS, when not nil, scales the update by ConsistentRMS * sqrt(max(rows, cols)); 0.2 lets AdamW's
	// learning rates carry over. Variant optax only.
	ConsistentRMS *float64 `json:"consistent_rms" want:"null or (0,inf)"`
	// Adjust is the update's scale: optax, original, match_rms_adamw or spectral; empty means the variant's.
	Adjust string `json:"adjust,omitempty" want:"null or optax|original|match_rms_adamw|spectral"`
	// MomentumDtype is float32, bfloat16, 8bit or linear8.
	MomentumDtype string `json:"momentum_dtype" want:"float32|bfloat16|8bit|linear8"`
	// AdamB1 and AdamB2 are NAdamW's betas.
	AdamB1 float64 `json:"adam_b1" want:"[0,1)"`
	AdamB2 float64 `json:"adam_b2" want:"[0,1)"`
	// AdamLearningRate is NAdamW's learning rate; nil means LR.
	AdamLearningRate *Schedule `json:"adam_learning_rate" want:"null or a number or a schedule"`
	// AdamWeightDecay is NAdamW's, in place of WeightDecay.
	AdamWeightDecay float64 `json:"adam_weight_decay" want:"[0,inf)"`
	// Adaptive multiplies the update by its inner product with the momentum. Variant optax only.
	Adaptive bool `json:"adaptive"`
}

// ParseConfig reads a configuration from a JSON object. The key "type" selects adamw (also when it is absent) or muon,
// and muon's "variant" the defaults of its other keys. Keys are case-sensitive; an unknown or repeated key, a value of
// the wrong type or out of range and anything after the object are errors that name the key.
func ParseConfig(data []byte) (Config, error) {
	data, err := parse(data)
	if err != nil {
		return nil, err
	}
	keys, err := members(data)
	if err != nil {
		return nil, err
	}
	tag := struct {
		Type string `json:"type" want:"adamw|muon"`
	}{"adamw"}
	if err := decodeOnly(keys, &tag); err != nil {
		return nil, err
	}
	if tag.Type == "muon" {
		return parseMuon(keys)
	}
	return parseAdamW(keys)
}

func parseAdamW(keys []member) (Config, error) {
	parsed := taggedAdamW{plainAdamW: plainAdamW(DefaultAdamW())}
	if err := decodeObject(keys, reflect.ValueOf(&parsed).Elem()); err != nil {
		return nil, err
	}
	c := AdamWConfig(parsed.plainAdamW)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

func parseMuon(keys []member) (Config, error) {
	tag := struct {
		Variant string `json:"variant" want:"optax|torch|jordan|moonlight|dion"`
	}{"optax"}
	if err := decodeOnly(keys, &tag); err != nil {
		return nil, err
	}
	parsed := taggedMuon{plainMuon: plainMuon(defaultMuon(tag.Variant))}
	if err := decodeObject(keys, reflect.ValueOf(&parsed).Elem()); err != nil {
		return nil, err
	}
	c := MuonConfig(parsed.plainMuon)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// DefaultAdamW returns torch's AdamW without weight decay: learning rate 1e-3, betas 0.9 and 0.999, float32 moments.
func DefaultAdamW() AdamWConfig {
	c := AdamWConfig{
		Common:          defaultCommon(),
		Betas:           [2]float64{0.9, 0.999},
		Eps:             1e-8,
		MomentsDtype:    "float32",
		MomentsRounding: "nearest",
		Variant:         "torch",
	}
	c.LR = Constant(1e-3)
	return c
}

// DefaultMuon returns optax's Muon. It has no learning rate: LR must be set.
func DefaultMuon() MuonConfig { return defaultMuon("optax") }

// muonVariants are the published systems' settings, where they differ from each other.
var muonVariants = map[string]struct {
	lr          Schedule
	weightDecay float64
	nesterov    bool
	coeffs      string
	dtype       string
	adjust      string
}{
	"optax":     {Schedule{}, 0, true, "jordan", "float32", "optax"},
	"torch":     {Constant(1e-3), 0.1, true, "jordan", "bfloat16", "original"},
	"jordan":    {Constant(0.02), 0, true, "jordan", "bfloat16", "original"},
	"moonlight": {Constant(1e-3), 0.1, true, "jordan", "bfloat16", "match_rms_adamw"},
	"dion":      {Constant(0.01), 0, false, "polar-express-1.02", "float32", "spectral"},
}

// defaultMuon returns the defaults of a variant; those of an unknown one, which Validate refuses, have zeros.
func defaultMuon(variant string) MuonConfig {
	v := muonVariants[variant]
	c := MuonConfig{
		Common:        defaultCommon(),
		Variant:       variant,
		Beta:          0.95,
		Nesterov:      v.nesterov,
		NSCoeffs:      NSCoeffs{Preset: v.coeffs},
		NSDtype:       v.dtype,
		NSMethod:      "standard",
		Eps:           1e-8,
		MomentumDtype: "float32",
		AdamB1:        0.9,
		AdamB2:        0.999,
	}
	c.LR = v.lr
	c.WeightDecay = v.weightDecay
	return c
}

// adjust is the update's scale, the variant's unless Adjust names one.
func (c MuonConfig) adjust() string {
	if c.Adjust != "" {
		return c.Adjust
	}
	return muonVariants[c.Variant].adjust
}

// polynomials returns the triple of each Newton-Schulz step and the safety that multiplies the norm.
func (c MuonConfig) polynomials() (triples []kernels.Triple, safety float64, err error) {
	return c.NSCoeffs.Polynomials(c.NSSteps, c.NSDtype == "bfloat16")
}

func defaultCommon() Common {
	return Common{
		QuantBlockSize:                 128,
		WeightRounding:                 "nearest",
		Master:                         "none",
		OptimizerStateOffload:          "none",
		OptimizerStateOffloadBatchSize: 1,
	}
}

// Type is "adamw".
func (c AdamWConfig) Type() string { return "adamw" }

// Type is "muon".
func (c MuonConfig) Type() string { return "muon" }

func (c AdamWConfig) common() Common { return c.Common }
func (c MuonConfig) common() Common  { return c.Common }

func (c AdamWConfig) resident() Config { c.Common.offload(defaultCommon()); return c }
func (c MuonConfig) resident() Config  { c.Common.offload(defaultCommon()); return c }

// offload takes the keys of offload from other.
func (c *Common) offload(other Common) {
	c.OptimizerStateOffload = other.OptimizerStateOffload
	c.OptimizerStateOffloadDir = other.OptimizerStateOffloadDir
	c.OptimizerStateOffloadBatchSize = other.OptimizerStateOffloadBatchSize
}

// Warnings names nearest-bfloat16 storage of a second moment whose decay is too slow for it.
func (c AdamWConfig) Warnings() []string {
	if c.MomentsDtype != "bfloat16" || c.MomentsRounding != "nearest" || c.Betas[1] <= 0.996 {
		return nil
	}
	return []string{"betas[1]: got " + number(c.Betas[1]) + ", but a second moment rounded to the nearest bfloat16 stops falling " +
		"above 0.996; use moments_rounding stochastic or adam_8bit"}
}

// Warnings names nothing yet.
func (c MuonConfig) Warnings() []string { return nil }

// The plain types drop the methods, so that encoding one does not call its MarshalJSON again.
type (
	plainAdamW  AdamWConfig
	plainMuon   MuonConfig
	taggedAdamW struct {
		Type string `json:"type"`
		plainAdamW
	}
	taggedMuon struct {
		Type string `json:"type"`
		plainMuon
	}
)

// MarshalJSON writes every key that is not null, so that [ParseConfig] returns an equal configuration.
func (c AdamWConfig) MarshalJSON() ([]byte, error) {
	return json.Marshal(taggedAdamW{c.Type(), plainAdamW(c)})
}

// MarshalJSON writes every key that is not null, so that [ParseConfig] returns an equal configuration.
func (c MuonConfig) MarshalJSON() ([]byte, error) {
	return json.Marshal(taggedMuon{c.Type(), plainMuon(c)})
}

// UnmarshalJSON is [ParseConfig] for a document that must be an adamw configuration.
func (c *AdamWConfig) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

// UnmarshalJSON is [ParseConfig] for a document that must be a muon configuration.
func (c *MuonConfig) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

func unmarshal[C Config](data []byte, c *C) error {
	parsed, err := ParseConfig(data)
	if err != nil {
		return err
	}
	same, ok := parsed.(C)
	if !ok {
		return problem("type", "got %s, want %s", parsed.Type(), (*c).Type())
	}
	*c = same
	return nil
}
