package optim

import (
	"slices"
	"strconv"
	"strings"
)

// unknownKey is the error of a key that is none of the fields', with the one that was
// probably meant.
func unknownKey(key string, fields []field) error {
	quoted := shorten(strconv.Quote(key))
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	plain := plainKey(key)
	for _, meant := range otherNames[plain] {
		if slices.Contains(keys, meant) {
			return problem("", "unknown key %s, here called %q", quoted, meant)
		}
	}
	if best, ok := nearest(plain, keys); ok {
		return problem("", "unknown key %s, the nearest valid key is %q", quoted, best)
	}
	return problem("", "unknown key %s, want one of %s", quoted, strings.Join(keys, ", "))
}

// plainKey is a key whichever way its words are put together.
func plainKey(key string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key[:min(len(key), 64)]))
}

// otherNames are what other systems call our keys, as plainKey has them. Of several keys it
// is the first that an object takes.
var otherNames = map[string][]string{
	"learningrate":          {"lr", "lr_scale", "peak"},
	"lr":                    {"lr_scale", "peak"},
	"maxlr":                 {"lr", "peak"},
	"alpha":                 {"lr"},
	"eta":                   {"lr"},
	"schedule":              {"lr"},
	"lrschedule":            {"lr"},
	"minlr":                 {"floor"},
	"steps":                 {"ns_steps", "total"},
	"wd":                    {"weight_decay"},
	"decay":                 {"weight_decay"},
	"lambda":                {"weight_decay"},
	"beta1":                 {"betas", "adam_b1"},
	"beta2":                 {"betas", "adam_b2"},
	"b1":                    {"betas", "adam_b1"},
	"b2":                    {"betas", "adam_b2"},
	"adambeta1":             {"adam_b1", "betas"},
	"adambeta2":             {"adam_b2", "betas"},
	"adambetas":             {"adam_b1", "betas"},
	"epsilon":               {"eps"},
	"momentum":              {"beta", "betas"},
	"mu":                    {"beta", "betas"},
	"maxgradnorm":           {"grad_clip_norm"},
	"maxnorm":               {"grad_clip_norm"},
	"clipnorm":              {"grad_clip_norm"},
	"gradientclipping":      {"grad_clip_norm"},
	"gradientclipval":       {"grad_clip_norm"},
	"blocksize":             {"quant_block_size"},
	"optimbits":             {"adam_8bit", "momentum_dtype"},
	"statedtype":            {"moments_dtype", "momentum_dtype"},
	"momentumdtype":         {"moments_dtype"},
	"momentsdtype":          {"momentum_dtype"},
	"stochasticrounding":    {"weight_rounding"},
	"bf16stochasticround":   {"weight_rounding"},
	"optim":                 {"type", "optimizer"},
	"optimizer":             {"type"},
	"name":                  {"type", "params"},
	"paramgroups":           {"param_groups"},
	"groups":                {"param_groups"},
	"nsiterations":          {"ns_steps"},
	"nscoefficients":        {"ns_coeffs"},
	"coefficients":          {"ns_coeffs"},
	"adjustlrfn":            {"adjust"},
	"adamlr":                {"adam_learning_rate"},
	"offload":               {"optimizer_state_offload"},
	"offloaddir":            {"optimizer_state_offload_dir"},
	"offloadoptimizerstate": {"optimizer_state_offload"},
}

// nearest returns the key with the smallest edit distance to a plain one, as a share of the
// longer of the two, of those that are near: at most 2 edits, and these no more than half of
// it, or the same first 4 letters.
func nearest(plain string, keys []string) (best string, ok bool) {
	const prefix, edits = 4, 2
	distance := 2.0
	for _, key := range keys {
		other := plainKey(key)
		d, longer := editDistance(plain, other), max(len(plain), len(other))
		near := d <= edits && 2*d <= longer
		alike := len(plain) >= prefix && len(other) >= prefix && plain[:prefix] == other[:prefix]
		if share := float64(d) / float64(longer); (near || alike) && share < distance {
			best, distance = key, share
		}
	}
	return best, best != ""
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
