package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

// documented returns the cells of the rows of a section of docs/configuration.md, without the tables' titles.
func documented(t *testing.T, section string, columns int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	_, text2, ok := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, ok, section)
	text2, _, _ = strings.Cut(text2, "\n## ")
	for _, line := range strings.Split(text2, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if strings.HasPrefix(line, "| `") && len(cells) == columns {
			rows = append(rows, cells)
		}
	}
	return rows
}

// TestConfigurationIsDocumented holds the keys, their defaults, and the words and ranges that they take.
func TestConfigurationIsDocumented(t *testing.T) {
	adamw, muon := optim.DefaultAdamW(), optim.DefaultMuon()
	for section, defaults := range map[string]any{
		"Both": adamw.Common, "adamw": adamw, "muon": muon,
		"param_groups": optim.ParamGroup{}, "Schedules": optim.Schedule{}, "Knots": optim.Knot{},
	} {
		rows, v := documented(t, section, 4), reflect.ValueOf(defaults)
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Anonymous {
				continue
			}
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			require.NotEmpty(t, rows, "%s lacks %s", section, key)
			require.Equal(t, []string{"`" + key + "`", defaultText(t, f, v.Field(i))}, []string{rows[0][0], rows[0][2]}, section)
			for _, word := range valueWords(f.Tag.Get("want")) {
				require.Contains(t, rows[0][1], word, "%s: %s", section, key)
			}
			rows = rows[1:]
		}
		require.Empty(t, rows, section)
	}
}

func defaultText(t *testing.T, f reflect.StructField, v reflect.Value) string {
	t.Helper()
	if _, required := f.Tag.Lookup("required"); required {
		return "required"
	}
	encoded, err := json.Marshal(v.Interface())
	require.NoError(t, err)
	text := string(encoded)
	switch {
	case text == `""`:
		text = "null"
	case v.Kind() == reflect.Slice && v.IsNil():
		text = "[]"
	}
	return "`" + text + "`"
}

// valueWords are what the description of a field's values has to name.
func valueWords(want string) (words []string) {
	want, nullable := strings.CutPrefix(want, "null or ")
	if nullable {
		words = append(words, "null")
	}
	if strings.Contains(want, "|") {
		for _, word := range strings.Split(want, "|") {
			words = append(words, "`"+word+"`")
		}
	}
	if regexp.MustCompile(`^[[(].*,.*[])]$`).MatchString(want) {
		words = append(words, strings.Replace(want, ",", ", ", 1))
	}
	return words
}

var muonVariants = []string{"optax", "torch", "jordan", "moonlight", "dion"}

// TestVariantsAreDocumented holds the table of what Muon's variants set.
func TestVariantsAreDocumented(t *testing.T) {
	rows := documented(t, "muon", 1+len(muonVariants))
	table := map[string][]string{}
	for _, row := range rows {
		table[row[0]] = row[1:]
	}
	adjust := table["`adjust`, where null"]
	require.Len(t, adjust, len(muonVariants))
	delete(table, "`adjust`, where null")

	want := map[string][]string{}
	var configs []map[string]json.RawMessage
	for i, variant := range muonVariants {
		encoded, err := json.Marshal(muonOf(t, `{"type": "muon", "variant": "`+variant+`"`, i == 0))
		require.NoError(t, err)
		config := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal(encoded, &config))
		delete(config, "variant")
		configs = append(configs, config)
	}
	for key := range configs[0] {
		cells, differ := []string{}, false
		for _, config := range configs {
			cells = append(cells, "`"+string(config[key])+"`")
			differ = differ || cells[0] != cells[len(cells)-1]
		}
		if differ {
			want["`"+key+"`"] = cells
		}
	}
	want["`lr`"][0] = "required"
	require.Equal(t, want, table)

	for i, variant := range muonVariants { // a step is the same with the name
		start := `{"type": "muon", "variant": "` + variant + `"`
		for _, shape := range [][]int64{{3, 8}, {8, 3}} {
			named := muonOf(t, start+`, "adjust": `+strings.Trim(adjust[i], "`"), i == 0)
			require.Equal(t, muonStepOf(t, muonOf(t, start, i == 0), shape), muonStepOf(t, named, shape), variant)
		}
	}
}

func muonOf(t *testing.T, start string, withoutRate bool) optim.MuonConfig {
	t.Helper()
	if withoutRate {
		start += `, "lr": 1`
	}
	config, err := optim.ParseConfig([]byte(start + "}"))
	require.NoError(t, err)
	return config.(optim.MuonConfig)
}

func muonStepOf(t *testing.T, config optim.MuonConfig, shape []int64) []float32 {
	t.Helper()
	weights := make([]float32, 24)
	opt, err := optim.New(config, []optim.Param{{Name: "w", Shape: shape, InputAxis: 1, Weights: kernels.Float32s(weights), Gradients: kernels.Float32s(numbers(24))}})
	require.NoError(t, err)
	_, err = opt.Step()
	require.NoError(t, err)
	return weights
}
