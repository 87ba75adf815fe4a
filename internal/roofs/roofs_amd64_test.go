//go:build !purego

package roofs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The work of a turn is what the functions' comments say.
func TestPeaksCountWhatIsDone(t *testing.T) {
	files, err := filepath.Glob("../../amd64/gemm*_amd64.go")
	require.NoError(t, err)
	done := map[string]float64{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`// Peak(FMA|Dot)(\w+) does (\d+) `).FindAllSubmatch(text, -1) {
			multiplyAdds := 0.0
			_, err := fmt.Sscan(string(m[3]), &multiplyAdds)
			require.NoError(t, err)
			done[string(m[2])] = 2 * multiplyAdds
		}
	}
	for name, suffix := range map[string]string{"amd64/avx2": "AVX2", "amd64/avx512": "AVX512", "amd64/avx512bf16": "AVX512BF16"} {
		for _, p := range peaks {
			if p.Name == name {
				require.Equal(t, done[suffix], p.flops, name)
				delete(done, suffix)
			}
		}
	}
	require.Empty(t, done, "functions that are no peaks")
}
