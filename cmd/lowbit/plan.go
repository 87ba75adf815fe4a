package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lowbit-go/lowbit/optim"
)

type planCmd struct {
	File   string `arg:"" optional:"" help:"A safetensors file, an index of several (model.safetensors.index.json) or a Hugging Face config.json."`
	Shapes string `placeholder:"LIST" help:"The shapes of the parameters instead of a file, such as 4096x4096,4096."`
	Config string `placeholder:"FILE" help:"Plan for this optimizer's configuration (JSON) instead of the usual ones."`
	DType  string `name:"dtype" enum:"float32,bfloat16,file" default:"file" placeholder:"DTYPE" help:"What weights and gradients are in: float32 or bfloat16; by default what the file says, and float32 for shapes."`
	Shards int    `default:"1" placeholder:"N" help:"Share the optimizer's state out over N ranks, 1 by default."`
	JSON   bool   `name:"json" help:"Print the table as one JSON object."`
}

func (*planCmd) Help() string {
	return `Counts the bytes that training takes, from headers and shapes alone: weights, gradients of their dtype, the optimizer's
state (moments with their scales and factors), and the master, which is the lower halves of bfloat16 weights where the
configuration has a split one. Activations are not in it. The state is what lowbit step reports when it runs.

--shards shares out the state alone, and PER RANK is the rank that holds most. A matrix that Muon steps stays whole on one
rank, and so do 4096 elements and whole blocks: a small model gains little.

Of a file, F32, BF16 and F16 tensors count, the last as bfloat16, which lowbit step only copies; others are named and left out. Of a config.json,
model_type may be ` + familyNames() + `.

A matrix called embedding, embed_tokens, embed_in, token_embedding, tok_embeddings, word_embeddings or wte, after any
prefix, is taken for the token embedding: its moments stay float32 in adamw_8bit, and AdamW steps it in muon. With
--config only the configuration's param_groups say so, as in lowbit step; docs/configuration.md lists its keys.

Examples:

    lowbit plan model.safetensors --shards 8
    lowbit plan --shapes 4096x4096,4096 --config adam.json
`
}

func (c *planCmd) Validate() error {
	const most = 1 << 16
	switch {
	case (c.File == "") == (c.Shapes == ""):
		return badInput("want a file or --shapes, one of the two")
	case c.Shards < 1 || c.Shards > most:
		return badInput("--shards is %d, want 1 to %d", c.Shards, most)
	}
	return nil
}

// planJSON is what plan prints.
type planJSON struct {
	Parameters     int64               `json:"parameters"`
	Tensors        int                 `json:"tensors"`
	Shards         int                 `json:"shards"`
	Skipped        []string            `json:"skipped"`
	Configurations []planConfiguration `json:"configurations"`
}

type planConfiguration struct {
	Name           string `json:"name"`
	WeightsBytes   int64  `json:"weights_bytes"`
	GradientsBytes int64  `json:"gradients_bytes"`
	StateBytes     int64  `json:"state_bytes"` // moments and metadata
	MomentsBytes   int64  `json:"moments_bytes"`
	MetadataBytes  int64  `json:"metadata_bytes"`
	MasterBytes    int64  `json:"master_bytes"`
	TotalBytes     int64  `json:"total_bytes"`
	PerRankBytes   int64  `json:"per_rank_bytes"`
}

func (c *planCmd) Run(e *env) error {
	var out planJSON
	err := e.interruptible(func() (err error) {
		out, err = c.plan(e)
		return err
	})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return e.printJSON(out)
	}
	return out.print(e)
}

func (c *planCmd) plan(e *env) (out planJSON, err error) {
	m, err := c.model()
	if err != nil {
		return out, err
	}
	for i := range m.params {
		if c.DType != "file" {
			m.params[i].BFloat16 = c.DType == "bfloat16"
		}
		if c.Config == "" && isTokenEmbedding(m.params[i]) {
			m.params[i].Role = "token_embedding"
		}
	}
	choices, err := c.configurations(e, m.params)
	if err != nil {
		return out, err
	}
	out = planJSON{Tensors: len(m.params), Shards: c.Shards, Skipped: append([]string{}, m.skipped...)}
	for _, choice := range choices {
		b, err := optim.Plan(choice.config, m.params, c.Shards)
		if err != nil {
			return out, badInput("%s: %w", m.source, err)
		}
		out.Parameters = b.Parameters
		out.Configurations = append(out.Configurations, planConfiguration{
			choice.name, b.Weights, b.Gradients, b.Moments + b.Metadata, b.Moments, b.Metadata, b.Master, b.Total(), b.PerRank,
		})
	}
	return out, nil
}

// configurations are train's, and those of Muon's other momenta.
func (c *planCmd) configurations(e *env, params []optim.PlannedParam) ([]choice, error) {
	if c.Config != "" {
		config, err := e.readConfig(c.Config)
		name := filepath.Base(c.Config)
		return []choice{{strings.TrimSuffix(name, filepath.Ext(name)), config}}, err
	}
	var list []choice
	usual := settings{lr: optim.Constant(1e-3), beta1: 0.9, beta2: 0.999}
	for _, o := range optimizers {
		config := o.config(usual)
		m, ok := config.(optim.MuonConfig)
		if !ok {
			list = append(list, choice{o.name, config})
			continue
		}
		m.ParamGroups = embeddingsToAdamW(params)
		for _, momentum := range []struct{ suffix, dtype string }{{"", "float32"}, {"_bfloat16", "bfloat16"}, {"_8bit", "8bit"}, {"_linear8", "linear8"}} {
			m.MomentumDtype = momentum.dtype
			list = append(list, choice{o.name + momentum.suffix, m})
		}
	}
	return list, nil
}

func embeddingsToAdamW(params []optim.PlannedParam) []optim.ParamGroup {
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
	group := optim.ParamGroup{Optimizer: "adamw"}
	for _, p := range params {
		if p.Role == "token_embedding" {
			group.Params = append(group.Params, literal.Replace(p.Name))
		}
	}
	if group.Params == nil {
		return nil
	}
	return []optim.ParamGroup{group}
}

func (p planJSON) print(e *env) error {
	rows := [][]string{{"CONFIGURATION", "WEIGHTS", "GRADIENTS", "STATE", "A PARAMETER", "MASTER", "TOTAL", "PER RANK", "PER RANK, GIB"}}
	for _, c := range p.Configurations {
		cells := []string{c.Name}
		for _, bytes := range []int64{c.WeightsBytes, c.GradientsBytes, c.StateBytes} {
			cells = append(cells, strconv.FormatInt(bytes, 10))
		}
		cells = append(cells, strconv.FormatFloat(float64(c.StateBytes)/float64(max(p.Parameters, 1)), 'f', 4, 64))
		for _, bytes := range []int64{c.MasterBytes, c.TotalBytes, c.PerRankBytes} {
			cells = append(cells, strconv.FormatInt(bytes, 10))
		}
		rows = append(rows, append(cells, strconv.FormatFloat(float64(c.PerRankBytes)/(1<<30), 'f', 3, 64)))
	}
	if err := printTable(e.stdout, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(e.stdout, "parameters: %d in %d tensors, ranks: %d; sizes are bytes\n", p.Parameters, p.Tensors, p.Shards)
	if err == nil && len(p.Skipped) > 0 {
		_, err = fmt.Fprintf(e.stdout, "not F32, BF16 or F16, and left out: %s\n", printableList(p.Skipped))
	}
	return err
}

func printableList(names []string) string {
	const most = 10
	list := []string{}
	for _, name := range names[:min(most, len(names))] {
		list = append(list, printable(name))
	}
	if len(names) > most {
		list = append(list, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(list, ", ")
}
