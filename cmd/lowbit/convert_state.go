package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lowbit-go/lowbit/optim"
)

type convertStateCmd struct {
	conversion
	To     string `placeholder:"NAME" help:"How to keep the state: ${representations}."`
	Config string `placeholder:"FILE" help:"Keep it as this optimizer's configuration (JSON) says, instead of --to."`
	From   string `enum:"lowbit,torch,bitsandbytes" default:"lowbit" placeholder:"SYSTEM" help:"Whose state IN holds: lowbit (a checkpoint, the default), or what torch's or bitsandbytes' AdamW exported, as docs/convert.md describes."`
}

func (*convertStateCmd) Help() string {
	return `Writes an optimizer's state in another representation, as a checkpoint that an optimizer configured so resumes from. Of a
checkpoint all other settings stay; weights and metadata are copied. Moments are rounded to the nearest or quantised anew,
and kept bit for bit where they are the same kind; bitsandbytes' codes are kept with --to adamw_8bit, in its blocks of 256.

Roles are the checkpoint's; of an exported state they are those of --config's param_groups, and by the number of axes.

Examples:

    lowbit convert-state float32.safetensors 8bit.safetensors --to adamw_8bit
    lowbit convert-state exported.safetensors state.safetensors --from torch --to adamw_float32
    lowbit convert-state exported.safetensors state.safetensors --from bitsandbytes --config adam.json

docs/configuration.md lists the keys of FILE.
`
}

// representation changes a configuration so that its state is kept in a certain way.
type representation struct {
	name  string
	adamW func(c *optim.AdamWConfig) // or nil
	muon  string                     // the momentum's dtype otherwise
}

// representations have the names of train's optimizers, and of plan's.
var representations = []representation{
	{name: "adamw_float32", adamW: func(*optim.AdamWConfig) {}},
	{name: "adamw_bfloat16", adamW: func(c *optim.AdamWConfig) { c.MomentsDtype, c.MomentsRounding = "bfloat16", "stochastic" }},
	{name: "adamw_8bit", adamW: func(c *optim.AdamWConfig) { c.Adam8bit = true }},
	{name: "adamw_4bit", adamW: func(c *optim.AdamWConfig) { c.Adam4bit = true }},
	{name: "muon", muon: "float32"},
	{name: "muon_bfloat16", muon: "bfloat16"},
	{name: "muon_8bit", muon: "8bit"},
	{name: "muon_linear8", muon: "linear8"},
}

var convertStateVars = kong.Vars{"representations": strings.Join(representationNames(), ", ")}

func representationNames() (names []string) {
	for _, r := range representations {
		names = append(names, r.name)
	}
	return names
}

func (c *convertStateCmd) Validate() error {
	if (c.To == "") == (c.Config == "") {
		return badInput("want --to or --config, one of the two")
	}
	for _, r := range representations {
		if c.To == r.name {
			return nil
		}
	}
	if c.To != "" {
		return badInput("--to: %.100q is not known, want one of %s", c.To, strings.Join(representationNames(), ", "))
	}
	return nil
}

func (c *convertStateCmd) Run(e *env) error {
	defer c.Threads.use()()
	if err := checkOutput(&c.conversion); err != nil {
		return err
	}
	from := c.From
	if from == "lowbit" {
		from = ""
	}
	s, err := optim.OpenState(c.In, from)
	if err != nil {
		return inputError{err}
	}
	defer s.Close()
	config, err := c.target(e, s)
	if err != nil {
		return err
	}
	if err := s.Check(config); err != nil {
		return inputError{err}
	}
	if err := c.retag(s, config); err != nil {
		return err
	}
	for _, warning := range config.Warnings() {
		e.warn("%s", warning)
	}
	var bar *progress
	report, err := s.Convert(e.ctx, c.Out, config, optim.ConvertOptions{Overwrite: c.Force, Progress: func(written, total int64) {
		if bar == nil {
			bar = e.progress(total)
		}
		bar.add(written - bar.done)
	}})
	if bar != nil {
		bar.end()
	}
	if err != nil {
		return err
	}
	return c.print(e, report, config)
}

// target is the configuration of the checkpoint to write.
func (c *convertStateCmd) target(e *env, s *optim.SavedState) (optim.Config, error) {
	if c.Config != "" {
		return e.readConfig(c.Config)
	}
	var r representation
	for _, r = range representations {
		if r.name == c.To {
			break
		}
	}
	switch config := s.Config.(type) {
	case optim.MuonConfig:
		if r.adamW != nil {
			return nil, badInput("%s: the state is muon's, which %s is not", c.In, c.To)
		}
		config.MomentumDtype = r.muon
		return config, nil
	case optim.AdamWConfig:
		return r.of(config, c.In)
	}
	config := optim.DefaultAdamW()
	if c.To == "adamw_8bit" && s.Block != 0 {
		config.QuantBlockSize = s.Block
	}
	return r.of(config, c.In)
}

func (r representation) of(config optim.AdamWConfig, path string) (optim.Config, error) {
	if r.adamW == nil {
		return nil, badInput("%s: the state is adamw's, which %s is not", path, r.name)
	}
	config.MomentsDtype, config.MomentsRounding, config.Adam8bit, config.Adam4bit = "float32", "nearest", false, false
	r.adamW(&config)
	config.Headroom = config.Headroom && config.Adam8bit
	return config, nil
}

// retag has a checkpoint of train say what it holds now, so that train can resume from it.
func (c *convertStateCmd) retag(s *optim.SavedState, config optim.Config) error {
	text, ok := s.Metadata[trainKey]
	if !ok {
		return nil
	}
	var state map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &state); err != nil || state == nil {
		return badInput("%s: metadata %s: want an object: %v", c.In, trainKey, err)
	}
	name := c.To
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(c.Config), filepath.Ext(c.Config))
	}
	for key, value := range map[string]any{"optimizer": name, "config": config} {
		encoded, err := json.Marshal(value)
		if err != nil {
			return err
		}
		state[key] = encoded
	}
	encoded, err := json.Marshal(state)
	s.Metadata[trainKey] = string(encoded)
	return err
}

type convertedJSON struct {
	Name            string  `json:"name"`
	Shape           []int64 `json:"shape"`
	FirstFrom       string  `json:"first_from"`
	FirstTo         string  `json:"first_to"`
	FirstKept       bool    `json:"first_kept"`
	SecondFrom      string  `json:"second_from"` // empty where there is no second moment
	SecondTo        string  `json:"second_to"`
	SecondKept      bool    `json:"second_kept"`
	NonFiniteBlocks int64   `json:"nonfinite_blocks"` // or numbers, or factors
}

func (c *convertStateCmd) print(e *env, report []optim.Converted, config optim.Config) error {
	settings, err := settingsOf(config)
	if err != nil {
		return err
	}
	list := []convertedJSON{}
	rows := [][]string{{"PARAMETER", "SHAPE", "FIRST MOMENT", "SECOND MOMENT"}}
	for _, r := range report {
		list = append(list, convertedJSON{r.Name, append([]int64{}, r.Shape...), r.FromM, r.ToM, r.KeptM, r.FromV, r.ToV, r.KeptV, r.NonFinite})
		rows = append(rows, []string{printable(r.Name), shapeText(r.Shape), change(r.FromM, r.ToM, r.KeptM), change(r.FromV, r.ToV, r.KeptV)})
		if r.NonFinite > 0 {
			e.warn("parameter %.100q: %d numbers, scales or factors of its moments are not finite", r.Name, r.NonFinite)
		}
	}
	if c.JSON {
		return e.printJSON(struct {
			Parameters []convertedJSON `json:"parameters"`
			Config     json.RawMessage `json:"config"`
		}{list, settings})
	}
	if err := printTable(e.stdout, rows); err != nil {
		return err
	}
	if string(settings) == "{}" {
		_, err = fmt.Fprintf(e.stdout, "wrote %s, from which an optimizer resumes whose configuration has all the defaults: {}\n", c.Out)
	} else {
		_, err = fmt.Fprintf(e.stdout, "wrote %s, from which an optimizer resumes whose configuration has\n%s\n", c.Out, settings)
	}
	if err == nil && c.From != "lowbit" && c.Config == "" {
		_, err = fmt.Fprintf(e.stdout, "%s's learning rate, betas, eps and weight decay are not in %s: give them in the configuration too\n", c.From, c.In)
	}
	return err
}

// settingsOf are the keys of a configuration that differ from the defaults, as JSON.
func settingsOf(config optim.Config) ([]byte, error) {
	least := `{}`
	if m, ok := config.(optim.MuonConfig); ok {
		least = fmt.Sprintf(`{"type": "muon", "variant": %q, "lr": 0}`, m.Variant)
	}
	defaults, err := optim.ParseConfig([]byte(least))
	if err != nil {
		return nil, err
	}
	var keys [2]map[string]json.RawMessage
	for i, c := range []optim.Config{config, defaults} {
		encoded, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(encoded, &keys[i]); err != nil {
			return nil, err
		}
	}
	if config.Type() == "muon" { // whose type and variant are always said
		delete(keys[1], "type")
		delete(keys[1], "variant")
	}
	maps.DeleteFunc(keys[0], func(key string, value json.RawMessage) bool { return bytes.Equal(value, keys[1][key]) })
	return json.Marshal(keys[0])
}

func change(from, to string, kept bool) string {
	switch {
	case from == "":
		return "-"
	case kept && from == to:
		return to + ", kept"
	case kept:
		return fmt.Sprintf("%s to %s, codes kept", from, to)
	}
	return from + " to " + to
}
