package kernels_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/kernels"
)

// TestAliasesListTheirFields: go doc shows nothing of an alias but its comment, which has
// to name all that a caller may fill in or call.
func TestAliasesListTheirFields(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, of := range []any{
		kernels.Format{}, kernels.Floats{}, kernels.Stream{}, kernels.Moment{}, kernels.AdamWTensors{}, kernels.AdamWHyper{},
		kernels.AdamWScalars{}, kernels.AdamWRounding{}, kernels.MuonTensors{}, kernels.MuonScalars{}, kernels.MuonRounding{},
		kernels.Matrix{}, kernels.Stack{}, kernels.NewtonSchulzPlan{}, kernels.Counts{},
	} {
		types[reflect.TypeOf(of).Name()] = reflect.TypeOf(of)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, parser.ParseComments)
	require.NoError(t, err)
	aliases := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		aliases++
		of, known := types[spec.Name.Name]
		require.True(t, known, spec.Name.Name)
		comment := spec.Doc.Text()
		for i := range of.NumField() {
			require.Regexp(t, `\b`+of.Field(i).Name+`\b`, comment)
		}
		pointer := reflect.PointerTo(of)
		for i := range pointer.NumMethod() {
			require.Regexp(t, `\b`+pointer.Method(i).Name+`\(`, comment)
		}
		return false
	})
	require.Len(t, types, aliases)
}
