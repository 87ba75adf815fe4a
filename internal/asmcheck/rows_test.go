package asmcheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/stretchr/testify/require"
)

// implementation is one of an operation, as package kernels declares it, with the assembly
// functions that its code names, itself or in what it calls.
type implementation struct {
	name  string
	needs cpufeature.Set
	where token.Position
	calls []string
}

// goCommand runs the go command for the platform whose assembly is checked.
func goCommand(t *testing.T, args ...string) []byte {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("this check needs the go command: ", err)
	}
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOFLAGS=", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoErrorf(t, err, "go %s: %s", strings.Join(args, " "), &stderr)
	return out
}

// kernels is the source of a package of implementations.
type kernels struct {
	files    *token.FileSet
	info     *types.Info
	pkg      *types.Package
	assembly string // the path of the package of assembly functions

	bodies map[types.Object]ast.Node   // of functions, and the initial values of variables
	values map[types.Object][]ast.Expr // what local variables are set to
	sites  map[types.Object][]site     // the calls of functions
	lists  []site                      // the literals of implementations
}

// site is an expression and the function that it is in, nil outside of functions.
type site struct {
	expr ast.Expr
	in   *types.Func
}

func readKernels(t *testing.T, path, assembly string) *kernels {
	exports, dir, names := map[string]string{}, "", []string{}
	list := json.NewDecoder(bytes.NewReader(goCommand(t, "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", path)))
	for list.More() {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
		}
		require.NoError(t, list.Decode(&p))
		exports[p.ImportPath] = p.Export
		if p.ImportPath == path {
			dir, names = p.Dir, p.GoFiles
		}
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	k, err := newKernels(fset, path, assembly, files, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	}))
	require.NoError(t, err)
	return k
}

func newKernels(fset *token.FileSet, path, assembly string, files []*ast.File, packages types.Importer) (*kernels, error) {
	k := &kernels{
		files: fset, assembly: assembly,
		info:   &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
		bodies: map[types.Object]ast.Node{}, values: map[types.Object][]ast.Expr{}, sites: map[types.Object][]site{},
	}
	config := types.Config{Importer: packages, Sizes: types.SizesFor("gc", "amd64")}
	var err error
	if k.pkg, err = config.Check(path, fset, files, k.info); err != nil {
		return nil, err
	}
	for _, file := range files {
		for _, d := range file.Decls {
			k.declaration(d)
		}
	}
	return k, nil
}

func (k *kernels) declaration(d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		function := k.info.Defs[f.Name].(*types.Func)
		if f.Body != nil {
			k.bodies[function] = f.Body
			k.collect(f.Body, function)
		}
		return
	}
	for _, spec := range d.(*ast.GenDecl).Specs {
		if spec, ok := spec.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					k.bodies[k.info.Defs[name]] = spec.Values[i]
					k.collect(spec.Values[i], nil)
				}
			}
		}
	}
}

// collect lists what is in a node of interest.
func (k *kernels) collect(node ast.Node, in *types.Func) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if callee, ok := k.object(n.Fun).(*types.Func); ok {
				k.sites[callee] = append(k.sites[callee], site{n, in})
			}
		case *ast.CompositeLit:
			if named, ok := k.info.TypeOf(n).(*types.Named); ok && named.Obj().Name() == "Impl" && len(n.Elts) > 0 {
				k.lists = append(k.lists, site{n, in})
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				k.set(left, n.Rhs[min(i, len(n.Rhs)-1)])
			}
		case *ast.RangeStmt:
			k.set(n.Value, n.X) // the key is an index
		}
		return true
	})
}

func (k *kernels) set(variable, value ast.Expr) {
	if name, ok := variable.(*ast.Ident); ok {
		if object := k.info.ObjectOf(name); object != nil {
			k.values[object] = append(k.values[object], value)
		}
	}
}

// object is what an expression names, of a generic function the one that is declared.
func (k *kernels) object(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return origin(k.info.Uses[e])
	case *ast.SelectorExpr:
		return origin(k.info.Uses[e.Sel])
	case *ast.IndexExpr:
		return k.object(e.X)
	case *ast.IndexListExpr:
		return k.object(e.X)
	}
	return nil
}

func origin(object types.Object) types.Object {
	if function, ok := object.(*types.Func); ok {
		return function.Origin()
	}
	return object
}

// bindings are the arguments of a call, by its parameters, in the bindings of the caller.
type bindings struct {
	call  ast.Expr
	args  map[types.Object]ast.Expr
	outer *bindings
}

// contexts are the calls of a function, and of the functions that these are in, and so on.
func (k *kernels) contexts(function *types.Func) (list []*bindings) {
	if function == nil || function.Signature().Params().Len() == 0 {
		return []*bindings{{}}
	}
	params := function.Signature().Params()
	for _, call := range k.sites[function] {
		args := map[types.Object]ast.Expr{}
		for i, arg := range call.expr.(*ast.CallExpr).Args {
			args[params.At(min(i, params.Len()-1))] = arg
		}
		for _, outer := range k.contexts(call.in) {
			list = append(list, &bindings{call.expr, args, outer})
		}
	}
	return list
}

// implementations evaluates every literal in each of its contexts.
func (k *kernels) implementations() (list []implementation, err error) {
	for _, literal := range k.lists {
		for _, context := range k.contexts(literal.in) {
			at := literal.expr
			if context.call != nil {
				at = context.call
			}
			i := implementation{where: k.files.Position(at.Pos())}
			for _, element := range literal.expr.(*ast.CompositeLit).Elts {
				field, ok := element.(*ast.KeyValueExpr)
				if !ok {
					return nil, fmt.Errorf("%s: an implementation without the names of its fields", i.where)
				}
				switch field.Key.(*ast.Ident).Name {
				case "Name":
					value, err := k.evaluate(field.Value, context)
					if err != nil {
						return nil, err
					}
					i.name = constant.StringVal(value)
				case "Needs":
					value, err := k.evaluate(field.Value, context)
					if err != nil {
						return nil, err
					}
					needs, _ := constant.Uint64Val(value)
					i.needs = cpufeature.Set(needs)
				case "Func":
					i.calls = k.reach(field.Value, context)
				}
			}
			list = append(list, i)
		}
	}
	return list, nil
}

// evaluate is the value of a constant, or of an operation on constants and parameters.
func (k *kernels) evaluate(e ast.Expr, context *bindings) (constant.Value, error) {
	if value := k.info.Types[e].Value; value != nil {
		return value, nil
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return k.evaluate(e.X, context)
	case *ast.BinaryExpr:
		x, err := k.evaluate(e.X, context)
		if err != nil {
			return nil, err
		}
		y, err := k.evaluate(e.Y, context)
		if err != nil {
			return nil, err
		}
		return constant.BinaryOp(x, e.Op, y), nil
	case *ast.Ident:
		if arg := context.args[k.info.Uses[e]]; arg != nil {
			return k.evaluate(arg, context.outer)
		}
	}
	return nil, fmt.Errorf("%s: found an expression that is not put together from constants and parameters", k.files.Position(e.Pos()))
}

// reach lists the assembly functions that may run when an expression's value is called.
// Another operation of the table, whose implementation is chosen by its own features, is left out.
func (k *kernels) reach(e ast.Expr, context *bindings) []string {
	found, seen := map[string]bool{}, map[any]bool{}
	var visit func(ast.Node, *bindings)
	visit = func(node ast.Node, context *bindings) {
		ast.Inspect(node, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			object := origin(k.info.Uses[name])
			if object == nil || object.Pkg() == nil {
				return true
			}
			if object.Pkg().Path() == k.assembly {
				found[object.Name()] = true
			}
			if context != nil && context.args[object] != nil {
				visit(context.args[object], context.outer)
				return true
			}
			if seen[object] || object.Pkg() != k.pkg || strings.HasPrefix(object.Name(), "Op") {
				return true
			}
			seen[object] = true
			for _, o := range append(methods(object), object) {
				if body := k.bodies[o]; body != nil {
					visit(body, nil)
				}
			}
			for _, value := range k.values[object] {
				visit(value, context)
			}
			return true
		})
	}
	visit(e, context)
	list := make([]string, 0, len(found))
	for name := range found {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// methods are those of a type, which may be called through an interface.
func methods(object types.Object) (list []types.Object) {
	if name, ok := object.(*types.TypeName); ok {
		if named, ok := name.Type().(*types.Named); ok {
			for method := range named.Methods() {
				list = append(list, method)
			}
		}
	}
	return list
}

// named lists the functions of assembly that the package names anywhere.
func (k *kernels) named() map[string]bool {
	found := map[string]bool{}
	for _, object := range k.info.Uses {
		if _, ok := object.(*types.Func); ok && object.Pkg() != nil && object.Pkg().Path() == k.assembly {
			found[object.Name()] = true
		}
	}
	return found
}

// uses are the features of a function, with the first instruction that needs each.
type uses struct {
	needs   cpufeature.Set
	because map[cpufeature.Set]string
}

// check compares what the row declares with what its functions need.
func (i *implementation) check(functions map[string]uses) error {
	for _, name := range i.calls {
		f, ok := functions[name]
		if !ok {
			return fmt.Errorf("%s, %s: %s has no assembly", i.where, i.name, name)
		}
		for bit, instruction := range f.because {
			if bit&^provided(i.needs) != 0 {
				return fmt.Errorf("%s, %s declares %s, but %s needs %s for %s", i.where, i.name, i.needs, name, names(bit), instruction)
			}
		}
	}
	return nil
}
