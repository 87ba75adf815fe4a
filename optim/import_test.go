package optim_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/lowbit/internal/golden"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

// exportTensor is a tensor of another system's state.
type exportTensor struct {
	name  string
	dtype tensorfile.DType
	shape []int64
	data  []byte
}

func exportFile(t testing.TB, tensors ...exportTensor) string {
	t.Helper()
	list := make([]tensorfile.Tensor, len(tensors))
	for i, x := range tensors {
		list[i] = tensorfile.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape, Bytes: int64(len(x.data))}
	}
	path := filepath.Join(t.TempDir(), "exported")
	w, err := tensorfile.Create(path, nil, list, false)
	require.NoError(t, err)
	for i, x := range tensors {
		require.NoError(t, w.WriteAt(i, x.data, 0))
	}
	require.NoError(t, w.Commit())
	return path
}

func floatTensor(name string, x []float32, shape ...int64) exportTensor {
	data := []byte{}
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return exportTensor{name, "F32", shape, data}
}

// exportedTorch is the golden run's state after some steps.
func exportedTorch(t testing.TB, step int) string {
	set := golden.Open(t, "torch_adamw_float32")
	var list []exportTensor
	for _, name := range goldenNames {
		shape := set.Shape("p0." + name)
		list = append(list,
			floatTensor(name+".exp_avg", set.F32(fmt.Sprintf("m%d.%s", step, name)), shape...),
			floatTensor(name+".exp_avg_sq", set.F32(fmt.Sprintf("v%d.%s", step, name)), shape...),
			floatTensor(name+".step", []float32{float32(step)}))
	}
	return exportFile(t, list...)
}

// exportedBitsandbytes is likewise, with bitsandbytes' own codebooks.
func exportedBitsandbytes(t testing.TB, step int) string {
	set, maps := golden.Open(t, "bitsandbytes_adamw8bit"), golden.Open(t, "bitsandbytes_quant")
	shape := set.Shape("p0")
	codes := func(name, key string) exportTensor {
		return exportTensor{"w." + name, "U8", shape, set.U8(fmt.Sprintf("%s%d", key, step))}
	}
	scales := func(name, key string) exportTensor {
		x := set.F32(fmt.Sprintf("%s%d", key, step))
		return floatTensor("w."+name, x, int64(len(x)))
	}
	return exportFile(t,
		codes("state1", "m"), scales("absmax1", "mscale"), floatTensor("w.qmap1", maps.F32("map.signed"), 256),
		codes("state2", "v"), scales("absmax2", "vscale"), floatTensor("w.qmap2", maps.F32("map.unsigned"), 256),
		exportTensor{"w.step", "I64", nil, binary.LittleEndian.AppendUint64(nil, uint64(step))})
}

// TestTorchContinues from each step of the golden run to its end.
func TestTorchContinues(t *testing.T) {
	const config = `{"lr": 0.01, "weight_decay": 0.01}`
	for start := 1; start < 8; start++ {
		path, report := convert(t, exportedTorch(t, start), "torch", parse(t, config))
		for _, c := range report {
			require.True(t, c.KeptM && c.KeptV)
		}
		r := newReplay(t, "torch_adamw_float32", config, goldenNames, func(p *optim.Param) {
			p.Weights = kernels.Float32s(golden.Open(t, "torch_adamw_float32").F32(fmt.Sprintf("p%d.%s", start, p.Name)))
		})
		_, err := r.opt.Load(path)
		require.NoError(t, err)
		require.Equal(t, int64(start), r.opt.Steps())
		for step := start + 1; step <= 8; step++ {
			r.step(t, step)
			for i, name := range r.names {
				want := r.F32(fmt.Sprintf("p%d.%s", step, name))
				for k, w := range r.params[i].Weights.F32 {
					require.InDelta(t, want[k], w, 1e-8+1e-6*math.Abs(float64(want[k])), "from %d, step %d %s", start, step, name)
				}
			}
		}
	}
}

// stepFrom takes one golden step from stored state and returns how far the parameters end
// from the golden ones, relative to the step's largest change.
func stepFrom(t *testing.T, set *golden.Set, step int, load func(opt *optim.Optimizer)) (float64, *optim.Optimizer) {
	t.Helper()
	before, after := set.F32(fmt.Sprintf("p%d", step-1)), set.F32(fmt.Sprintf("p%d", step))
	opt, params := newOptimizer(t, `{"lr": 0.01, "weight_decay": 0.01, "adam_8bit": true, "quant_block_size": 256}`, optim.Param{
		Name: "w", Shape: set.Shape("p0"), Weights: kernels.Float32s(append([]float32{}, before...)), Gradients: kernels.Float32s(set.F32(fmt.Sprintf("g%d", step))),
	})
	if step > 1 {
		load(opt)
	}
	_, err := opt.Step()
	require.NoError(t, err)
	change, off := 0.0, 0.0
	for i := range after {
		change = max(change, math.Abs(float64(after[i])-float64(before[i])))
		off = max(off, math.Abs(float64(after[i])-float64(params[0].Weights.F32[i])))
	}
	require.Positive(t, change)
	return off / change, opt
}

// TestBitsandbytes8bit takes each step from bitsandbytes' state, whose codes stay.
func TestBitsandbytes8bit(t *testing.T) {
	set := golden.Open(t, "bitsandbytes_adamw8bit")
	for step := 1; step <= 6; step++ {
		off, _ := stepFrom(t, set, step, func(opt *optim.Optimizer) {
			path, report := convert(t, exportedBitsandbytes(t, step-1), "bitsandbytes", parse(t, `{"adam_8bit": true, "quant_block_size": 256}`))
			require.True(t, report[0].KeptM && report[0].KeptV)
			require.Equal(t, "qmap1 block 256", report[0].FromM)
			_, err := opt.Load(path)
			require.NoError(t, err)
			require.Equal(t, int64(step-1), opt.Steps())
			for _, tensor := range opt.State("w") {
				if key := map[string]string{"exp_avg": "m", "exp_avg_sq": "v"}[tensor.Kind]; key != "" {
					require.Equal(t, set.U8(fmt.Sprintf("%s%d", key, step-1)), tensor.U8)
				} else {
					key := map[string]string{"exp_avg_absmax": "mscale", "exp_avg_sq_absmax": "vscale"}[tensor.Kind]
					require.Equal(t, set.F32(fmt.Sprintf("%s%d", key, step-1)), tensor.F32)
				}
			}
		})
		require.LessOrEqual(t, off, 1e-4, "step %d", step)
	}
}

// TestBitsandbytesContinues: left to itself after its third step, training stays near
// bitsandbytes' run, whose CPU quantiser is coarser than ours.
func TestBitsandbytesContinues(t *testing.T) {
	const start = 3
	set := golden.Open(t, "bitsandbytes_adamw8bit")
	for config, bound := range map[string]float64{
		`"adam_8bit": true, "quant_block_size": 256`: 0.2, `"adam_8bit": true`: 0.2, `"moments_dtype": "float32"`: 0.2,
	} {
		config = `{"lr": 0.01, "weight_decay": 0.01, ` + config + `}`
		path, _ := convert(t, exportedBitsandbytes(t, start), "bitsandbytes", parse(t, config))
		opt, params := newOptimizer(t, config, optim.Param{Name: "w", Shape: set.Shape("p0"), Weights: kernels.Float32s(set.F32(fmt.Sprintf("p%d", start)))})
		_, err := opt.Load(path)
		require.NoError(t, err)
		for step := start + 1; step <= 6; step++ {
			params[0].Gradients = kernels.Float32s(set.F32(fmt.Sprintf("g%d", step)))
			_, err := opt.Step()
			require.NoError(t, err)
			before, after := set.F32(fmt.Sprintf("p%d", step-1)), set.F32(fmt.Sprintf("p%d", step))
			change, off := 0.0, 0.0
			for i := range after {
				change = max(change, math.Abs(float64(after[i])-float64(before[i])))
				off = max(off, math.Abs(float64(after[i])-float64(params[0].Weights.F32[i])))
			}
			require.LessOrEqual(t, off/change, bound, "%s step %d", config, step)
		}
	}
}

// TestTorchao8bit takes each step from torchao's state. Ties go to the upper code there, of
// which its run has none: all codes are equal.
func TestTorchao8bit(t *testing.T) {
	set := golden.Open(t, "torchao_adamw8bit")
	for step := 1; step <= 4; step++ {
		off, opt := stepFrom(t, set, step, func(opt *optim.Optimizer) {
			opt.SetSteps(int64(step - 1))
			for _, tensor := range opt.State("w") {
				switch tensor.Kind {
				case "exp_avg":
					copy(tensor.U8, set.U8(fmt.Sprintf("mcodes%d", step-1)))
				case "exp_avg_sq":
					copy(tensor.U8, set.U8(fmt.Sprintf("vcodes%d", step-1)))
				case "exp_avg_absmax":
					copy(tensor.F32, set.F32(fmt.Sprintf("mscale%d", step-1)))
				case "exp_avg_sq_absmax":
					copy(tensor.F32, set.F32(fmt.Sprintf("vscale%d", step-1)))
				}
			}
		})
		require.LessOrEqual(t, off, 1e-3, "step %d", step)
		for _, tensor := range opt.State("w") {
			switch tensor.Kind {
			case "exp_avg_absmax":
				require.Less(t, relative(tensor.F32, set.F32(fmt.Sprintf("mscale%d", step)), 1e-30), 1e-6)
			case "exp_avg_sq_absmax":
				require.Less(t, relative(tensor.F32, set.F32(fmt.Sprintf("vscale%d", step)), 1e-30), 1e-6)
			default:
				want := set.U8(fmt.Sprintf("%scodes%d", map[string]string{"exp_avg": "m", "exp_avg_sq": "v"}[tensor.Kind], step))
				different := 0
				for i, code := range tensor.U8 {
					if code != want[i] {
						different++
					}
				}
				require.Zero(t, different)
			}
		}
	}
}

// TestImportedDTypes: torch keeps states in the parameter's dtype, and steps in any.
func TestImportedDTypes(t *testing.T) {
	set := golden.Open(t, "torch_adamw_float32")
	x := floatTensor("w.exp_avg", set.F32("m1.b"), 37)
	half := exportTensor{"w.exp_avg_sq", "F16", []int64{37}, make([]byte, 74)}
	half.data[1] = 0x3c // 1
	for _, step := range []exportTensor{
		floatTensor("w.step", []float32{9}, 1),
		{"w.step", "F64", nil, binary.LittleEndian.AppendUint64(nil, math.Float64bits(9))},
		{"w.step", "I64", nil, binary.LittleEndian.AppendUint64(nil, 9)},
		{"w.step", "I32", []int64{1, 1}, binary.LittleEndian.AppendUint32(nil, 9)},
	} {
		path, report := convert(t, exportFile(t, x, half, step), "torch", parse(t, `{}`))
		require.Equal(t, "float16", report[0].FromV)
		require.False(t, report[0].KeptV)
		opt, _ := newOptimizer(t, `{}`, optim.Param{Name: "w", Shape: []int64{37}, Weights: f32(37)})
		_, err := opt.Load(path)
		require.NoError(t, err)
		require.Equal(t, int64(9), opt.Steps())
		require.Equal(t, float32(1), opt.State("w")[1].F32[0])
		require.Equal(t, set.F32("m1.b"), opt.State("w")[0].F32)
	}
}

// TestBitsandbytesSmallParameters are F32 there.
func TestBitsandbytesSmallParameters(t *testing.T) {
	path, report := convert(t, exportFile(t,
		floatTensor("b.state1", numbers(10, 1, false).F32, 10), floatTensor("b.state2", make([]float32, 10), 10), floatTensor("b.step", []float32{3})),
		"bitsandbytes", parse(t, `{"adam_8bit": true, "param_groups": [{"params": ["b"], "state_precision": "fp32"}]}`))
	require.True(t, report[0].KeptM)
	s, err := optim.OpenState(path, "")
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestImportRefuses(t *testing.T) {
	w := func(kind string) exportTensor { return floatTensor("w."+kind, make([]float32, 300), 300) }
	codes := func(kind string) exportTensor {
		return exportTensor{"w." + kind, "U8", []int64{300}, make([]byte, 300)}
	}
	scales := func(kind string, n int) exportTensor { return floatTensor("w."+kind, make([]float32, n), int64(n)) }
	table := func(kind string, n int) exportTensor {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i)
		}
		return floatTensor("w."+kind, x, int64(n))
	}
	ones := func(kind string) exportTensor {
		x := make([]float32, 256)
		for i := range x {
			x[i] = 1
		}
		return floatTensor("w."+kind, x, 256)
	}
	step := func(x float32) exportTensor { return floatTensor("w.step", []float32{x}) }
	for _, test := range []struct {
		from    string
		want    string
		tensors []exportTensor
	}{
		{"torch", `it holds no tensors, want a state of torch`, nil},
		{"torch", `tensor "w.max_exp_avg_sq", want names of parameters followed by one of .exp_avg .exp_avg_sq .step as in an exported state of torch`,
			[]exportTensor{w("max_exp_avg_sq"), w("exp_avg")}},
		{"torch", `tensor ".step", want names of parameters followed by`, []exportTensor{{".step", "F32", nil, make([]byte, 4)}}},
		{"torch", `parameter "w": tensor "w.exp_avg_sq" is missing`, []exportTensor{w("exp_avg"), step(1)}},
		{"torch", `parameter "w": tensor "w.exp_avg" is missing`, []exportTensor{w("exp_avg_sq"), step(1)}},
		{"torch", `parameter "w": tensor "w.step" is missing`, []exportTensor{w("exp_avg"), w("exp_avg_sq")}},
		{"torch", `parameter "w": step 1.5, want a whole number from 0 to 2^53`, []exportTensor{w("exp_avg"), w("exp_avg_sq"), step(1.5)}},
		{"torch", `parameter "w": step -1, want a whole number from 0 to 2^53`, []exportTensor{w("exp_avg"), w("exp_avg_sq"), step(-1)}},
		{"torch", `parameter "w": step NaN, want a whole number from 0 to 2^53`, []exportTensor{w("exp_avg"), w("exp_avg_sq"), step(float32(math.NaN()))}},
		{"torch", `tensor "w.step" is F32 [300], want one number`, []exportTensor{w("exp_avg"), w("exp_avg_sq"), w("step")}},
		{"torch", `tensor "w.step" is U8, want F32, F64, I32 or I64`, []exportTensor{w("exp_avg"), w("exp_avg_sq"), {"w.step", "U8", nil, make([]byte, 1)}}},
		{"torch", `moments have shapes [300] and [1], want one`, []exportTensor{w("exp_avg"), floatTensor("w.exp_avg_sq", make([]float32, 1), 1), step(1)}},
		{"torch", `tensor "w.exp_avg" is U8, want F32, BF16 or F16`, []exportTensor{codes("exp_avg"), w("exp_avg_sq"), step(1)}},
		{"torch", `tensor "w.state1", want names of parameters`, []exportTensor{w("state1")}},
		{"bitsandbytes", `tensor "w.state2" is missing`, []exportTensor{w("state1"), step(1)}},
		{"bitsandbytes", `tensor "w.absmax1" is missing`, []exportTensor{codes("state1"), codes("state2"), step(1)}},
		{"bitsandbytes", `tensor "w.absmax1" is F32 [3], want 2 scales in F32 for 300 codes in blocks of 256`, []exportTensor{codes("state1"), codes("state2"), scales("absmax1", 3), step(1)}},
		{"bitsandbytes", `tensor "w.qmap1" is missing`, []exportTensor{codes("state1"), codes("state2"), scales("absmax1", 2), step(1)}},
		{"bitsandbytes", `tensor "w.qmap1" has 16 values, want 256`, []exportTensor{codes("state1"), codes("state2"), scales("absmax1", 2), table("qmap1", 16), step(1)}},
		{"bitsandbytes", `tensor "w.qmap1" is F32 [300], want 2 to 256 values in F32`, []exportTensor{codes("state1"), codes("state2"), scales("absmax1", 2), w("qmap1"), step(1)}},
		{"bitsandbytes", `codes 0 and 1 both have the value 1`, []exportTensor{codes("state1"), codes("state2"), scales("absmax1", 2), ones("qmap1"), step(1)}},
		{"bitsandbytes", `tensor "w.state1" is F32 and has scales, want U8`, []exportTensor{w("state1"), w("state2"), scales("absmax1", 2), step(1)}},
		{"", `no optimizer checkpoint: the metadata has no lowbit.optimizer`, []exportTensor{w("exp_avg"), w("exp_avg_sq"), step(1)}},
	} {
		path := exportFile(t, test.tensors...)
		_, err := optim.OpenState(path, test.from)
		require.ErrorContains(t, err, test.want)
		require.ErrorContains(t, err, path)
	}
}

// TestImportRefusesValues that no optimizer's state has, and says where they are.
func TestImportRefusesValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	const n = 600_000 // more than one piece
	for _, test := range []struct {
		name string
		make func() (from string, list []exportTensor)
		want string // of the error, "" where there is none
	}{
		{"as it should be", torchState("exp_avg_sq", 0, 0), ""},
		{"a first moment below 0", torchState("exp_avg", 3, -1), ""},
		{"NaN", torchState("exp_avg_sq", 3, nan), ""},
		{"Inf", torchState("exp_avg_sq", 3, inf), ""},
		{"-0", torchState("exp_avg_sq", 3, float32(math.Copysign(0, -1))), ""},
		{"a second moment below 0", torchState("exp_avg_sq", n-1, -1e-45), `tensor "w.exp_avg_sq": element 599999 is -1e-45, want a second moment, which is 0 or more`},
		{"-Inf", torchState("exp_avg_sq", 3, -inf), `tensor "w.exp_avg_sq": element 3 is -Inf, want a second moment, which is 0 or more`},
		{"codes as they should be", codesState("absmax1", 0, 1), ""},
		{"a scale of NaN", codesState("absmax2", 1, nan), ""},
		{"a first moment's scale below 0", codesState("absmax1", 1, -2), `tensor "w.absmax1": element 1 is -2, want a scale, which is 0 or more`},
		{"a second moment's scale below 0", codesState("absmax2", 1, -2), `tensor "w.absmax2": element 1 is -2, want a scale, which is 0 or more`},
		{"a table out of order", codesState("qmap1", 7, 9.5), `tensor "w.qmap1": element 8 is 8 after 9.5, want increasing values`},
		{"a table with NaN", codesState("qmap1", 7, nan), `tensor "w.qmap1": codebook qmap1: value 7 is NaN, want finite values`},
		{"a second moment's table below 0", codesState("qmap2", 0, -1), `tensor "w.qmap2": element 0 is -1, want values of 0 or more, which second moments have`},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, list := test.make()
			path := exportFile(t, list...)
			s, err := optim.OpenState(path, from)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, path)
				return
			}
			require.NoError(t, err)
			require.NoError(t, s.Close())
		})
	}
	for _, test := range []struct {
		dtype tensorfile.DType
		bits  uint64
		want  string
	}{
		{"I64", 1 << 53, ""},
		{"F64", math.Float64bits(1 << 53), ""},
		{"I64", 1<<53 + 1, "step 9007199254740993, want a whole number from 0 to 2^53"},
		{"I64", 1 << 63, "step -9223372036854775808, want a whole number from 0 to 2^53"},
		{"F64", math.Float64bits(1<<53 + 2), "step 9.007199254740994e+15, want a whole number from 0 to 2^53"},
	} {
		step := exportTensor{"w.step", test.dtype, nil, binary.LittleEndian.AppendUint64(nil, test.bits)}
		s, err := optim.OpenState(exportFile(t, floatTensor("w.exp_avg", []float32{1}, 1), floatTensor("w.exp_avg_sq", []float32{1}, 1), step), "torch")
		if test.want != "" {
			require.ErrorContains(t, err, `parameter "w": `+test.want)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}

// torchState has one element of one tensor that is not 0.
func torchState(kind string, element int, x float32) func() (string, []exportTensor) {
	return func() (string, []exportTensor) {
		list := []exportTensor{floatTensor("w.step", []float32{1})}
		for _, k := range []string{"exp_avg", "exp_avg_sq"} {
			values := make([]float32, 600_000)
			if k == kind {
				values[element] = x
			}
			list = append(list, floatTensor("w."+k, values, int64(len(values))))
		}
		return "torch", list
	}
}

// codesState has tables that count from 0, and scales of 1, but for one element of one tensor.
func codesState(kind string, element int, x float32) func() (string, []exportTensor) {
	return func() (string, []exportTensor) {
		list := []exportTensor{floatTensor("w.step", []float32{1})}
		for _, number := range []string{"1", "2"} {
			scales, table := []float32{1, 1}, make([]float32, 256)
			for i := range table {
				table[i] = float32(i)
			}
			if values := map[string][]float32{"absmax" + number: scales, "qmap" + number: table}[kind]; values != nil {
				values[element] = x
			}
			list = append(list, exportTensor{"w.state" + number, "U8", []int64{300}, make([]byte, 300)},
				floatTensor("w.absmax"+number, scales, 2), floatTensor("w.qmap"+number, table, 256))
		}
		return "bitsandbytes", list
	}
}
