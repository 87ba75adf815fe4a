package optim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/lowbit/kernels"
	"github.com/lowbit-go/lowbit/optim"
)

// A step of AdamW with 8-bit moments on a layer with bf16 weights.
func Example() {
	weights, gradients := make([]uint16, 1024*64), make([]float32, 1024*64)
	bias, biasGradients := make([]float32, 64), make([]float32, 64)
	gradients[0], biasGradients[0] = 0.5, -0.25

	config := optim.DefaultAdamW()
	config.Adam8bit = true
	config.GradClipNorm = new(1.0)
	opt, err := optim.New(config, []optim.Param{
		{Name: "layer.weight", Shape: []int64{1024, 64}, Weights: kernels.BF16s(weights), Gradients: kernels.Float32s(gradients)},
		{Name: "layer.bias", Shape: []int64{64}, Weights: kernels.Float32s(bias), Gradients: kernels.Float32s(biasGradients)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := opt.Step()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("step %d, norm %.4f, bias %.4f\n", result.Step, result.GradNorm, bias[0])
	fmt.Println("bytes of state:", opt.Metrics()["adam8_total_bytes"])
	// Output:
	// step 1, norm 0.5590, bias 0.0010
	// bytes of state: 135304
}

// A checkpoint with the weights, from which another process goes on.
func ExampleOptimizer_Save() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "step-1.safetensors")
	model := func() []optim.Param {
		return []optim.Param{{
			Name: "w", Shape: []int64{2, 2},
			Weights:   kernels.Float32s([]float32{1, 2, 3, 4}),
			Gradients: kernels.Float32s([]float32{0.1, -0.1, 0, 1}),
		}}
	}
	first, err := optim.New(optim.DefaultAdamW(), model())
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := first.Step(); err != nil {
		fmt.Println(err)
		return
	}
	if err := first.Save(path, optim.SaveOptions{Weights: true, Metadata: map[string]string{"epoch": "7"}}); err != nil {
		fmt.Println(err)
		return
	}

	params := model()
	second, err := optim.New(optim.DefaultAdamW(), params)
	if err != nil {
		fmt.Println(err)
		return
	}
	metadata, err := second.Load(path)
	fmt.Println(err, metadata["epoch"], second.Steps(), params[0].Weights.F32)

	other := optim.DefaultAdamW()
	other.Adam8bit = true
	third, err := optim.New(other, model())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = third.Load(path)
	fmt.Println(err.Error()[len(path):])
	// Output:
	// <nil> 7 1 [0.999 2.001 3 3.999]
	// : checkpoint holds adam float32, the configuration asks for adam 8-bit block 128; lowbit convert-state converts states
}

// Muon for a matrix and, for the bias, the NAdamW that goes with it.
func ExampleNew_muon() {
	config, err := optim.ParseConfig([]byte(`{"type": "muon", "lr": 0.1, "ns_coeffs": "deepseek-v4", "momentum_dtype": "8bit"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	weights := make([]float32, 4)
	opt, err := optim.New(config, []optim.Param{
		{Name: "w", Shape: []int64{2, 2}, Weights: kernels.Float32s(weights), Gradients: kernels.Float32s([]float32{3, 0, 0, 0.1})},
		{Name: "b", Shape: []int64{2}, Weights: kernels.Float32s(make([]float32, 2)), Gradients: kernels.Float32s([]float32{1, -1})},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := opt.Step(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", weights)
	for _, name := range []string{"w", "b"} {
		for _, tensor := range opt.State(name) {
			fmt.Print(name, " ", tensor.Kind, "; ")
		}
	}
	// Output:
	// [-0.100 0.000 0.000 -0.100]
	// w exp_avg; w exp_avg_absmax; b exp_avg; b exp_avg_sq;
}

// Gradients of micro-batches are summed in bf16, and one step uses their sum.
func ExampleOptimizer_Accumulate() {
	gradients := make([]float32, 3)
	opt, err := optim.New(optim.DefaultAdamW(), []optim.Param{
		{Name: "w", Shape: []int64{3}, Weights: kernels.Float32s(make([]float32, 3)), Gradients: kernels.Float32s(gradients)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, batch := range [][]float32{{1, 2, 3}, {0, 1, 0}} {
		copy(gradients, batch) // the backward pass
		if err := opt.Accumulate(); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Printf("%.4f\n", opt.GradNorm())
	_, err = opt.Step()
	fmt.Println(err, opt.Steps())
	// Output:
	// 4.3589
	// <nil> 1
}

// A checkpoint with float32 moments becomes one with 8-bit moments, from which a run of
// that configuration goes on.
func ExampleSavedState_Convert() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	before, after := filepath.Join(folder, "before.safetensors"), filepath.Join(folder, "after.safetensors")
	params := []optim.Param{{
		Name: "w", Shape: []int64{64, 64},
		Weights: kernels.Float32s(make([]float32, 64*64)), Gradients: kernels.Float32s(make([]float32, 64*64)),
	}}
	exact, err := optim.New(optim.DefaultAdamW(), params)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := exact.Step(); err != nil {
		fmt.Println(err)
		return
	}
	if err := exact.Save(before, optim.SaveOptions{}); err != nil {
		fmt.Println(err)
		return
	}

	config := optim.DefaultAdamW()
	config.Adam8bit = true
	state, err := optim.OpenState(before, "lowbit")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer state.Close()
	report, err := state.Convert(context.Background(), after, config, optim.ConvertOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range report {
		fmt.Printf("%s %v: m from %s to %s, v from %s to %s\n", p.Name, p.Shape, p.FromM, p.ToM, p.FromV, p.ToV)
	}

	coded, err := optim.New(config, params)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = coded.Load(after)
	fmt.Println(err, coded.Steps())
	// Output:
	// w [64 64]: m from float32 to dynamic8 block 128, v from float32 to dynamic8u block 128
	// <nil> 1
}

// What a model of 6.5 billion parameters takes with bf16 weights, before anything is
// allocated: in all, and on the fullest of 8 ranks that share the state.
func ExamplePlan() {
	var params []optim.PlannedParam
	for layer := range 32 {
		params = append(params,
			optim.PlannedParam{Name: fmt.Sprint(layer, ".attention"), Shape: []int64{4096, 4 * 4096}, BFloat16: true},
			optim.PlannedParam{Name: fmt.Sprint(layer, ".mlp"), Shape: []int64{4096, 3 * 11008}, BFloat16: true},
			optim.PlannedParam{Name: fmt.Sprint(layer, ".norms"), Shape: []int64{2, 4096}, BFloat16: true})
	}
	for _, adam8bit := range []bool{false, true} {
		config := optim.DefaultAdamW()
		config.Adam8bit = adam8bit
		bytes, err := optim.Plan(config, params, 8)
		if err != nil {
			fmt.Println(err)
			return
		}
		const gib = 1 << 30
		fmt.Printf("8 bits %v: state %.1f GiB, in all %.1f GiB, a rank %.1f GiB\n", adam8bit,
			float64(bytes.State())/gib, float64(bytes.Total())/gib, float64(bytes.PerRank)/gib)
	}
	// Output:
	// 8 bits false: state 48.3 GiB, in all 72.4 GiB, a rank 30.2 GiB
	// 8 bits true: state 12.4 GiB, in all 36.6 GiB, a rank 25.7 GiB
}

// Five steps for matrices whose singular values are at least a hundredth of their norm.
func ExamplePolarExpress() {
	const safety = 1.01
	triples, err := optim.PolarExpress(0.01, 5, safety)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", triples[0])

	plan := kernels.PlanNewtonSchulz(triples, safety)
	x := kernels.Stack{Data: kernels.Float32s([]float32{4, 0, 0, -0.1}), Count: 1, Rows: 2, Cols: 2, Stride: 2}
	if _, err := kernels.NewtonSchulz(x, x, plan, make([]float32, plan.WorkSize(2, 2))); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.2f\n", x.Data.F32)

	// In a Muon configuration they are a preset.
	config := optim.DefaultMuon()
	config.LR = optim.Constant(0.02)
	config.NSCoeffs.Preset = "polar-express:1e-2x5"
	same, factor, err := config.NSCoeffs.Polynomials(nil, false)
	fmt.Println(slices.Equal(same, triples), factor, err, config.Validate())
	// Output:
	// [7.910 -22.079 15.869]
	// [1.00 0.00 0.00 -1.00]
	// true 1.01 <nil> <nil>
}

// States on disk: three batches of them, here of one parameter each, are in memory at most.
// No bit of the result depends on it.
func ExampleOptimizer_Close() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	config := optim.DefaultAdamW()
	config.OptimizerStateOffload, config.OptimizerStateOffloadDir = "disk", folder
	var params []optim.Param
	for i := range 8 {
		gradients := make([]float32, 1000)
		gradients[0] = 1
		params = append(params, optim.Param{
			Name: fmt.Sprint("layer.", i), Shape: []int64{1000},
			Weights: kernels.Float32s(make([]float32, 1000)), Gradients: kernels.Float32s(gradients),
		})
	}
	opt, err := optim.New(config, params)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer opt.Close() // gives the scratch file back
	result, err := opt.Step()
	var offload *optim.OffloadError
	if errors.As(err, &offload) { // the step was taken, and training may go on
		fmt.Println("on a full disk, these stay in memory:", offload.Kept)
	} else if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Updated, "parameters, bytes of state:", opt.Metrics()["state_total_bytes"])
	fmt.Printf("%.4f\n", params[7].Weights.F32[0])
	// Output:
	// 8 parameters, bytes of state: 64000
	// -0.0010
}
