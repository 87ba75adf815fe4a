package optim_test

import (
	"fmt"
	"os"
	"path/filepath"

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
	// : checkpoint holds adam float32, the configuration asks for adam 8-bit block 128
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
