package tensorfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "model.safetensors")

	w, err := tensorfile.Create(path, map[string]string{"format": "pt"}, []tensorfile.Tensor{
		{Name: "gain", DType: "F32", Shape: []int64{4}},
	}, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Abort() // does nothing once the file is committed
	if err := w.WriteFloat32(0, []float32{1, 2, 3, 4}, 0); err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Commit(); err != nil {
		fmt.Println(err)
		return
	}

	f, err := tensorfile.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	gain, _ := f.Tensor("gain")
	values := make([]float32, 2)
	if err := f.ReadFloat32(gain, values, 1); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(gain.DType, gain.Shape, values, f.Metadata["format"])
	// Output: F32 [4] [2 3] pt
}
