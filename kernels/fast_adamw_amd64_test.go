//go:build !purego

package kernels

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestScalarsAreLaidOutAsAssemblyReadsThem(t *testing.T) {
	s := AdamWScalars{
		GradScale: 1, Decay: 2, Beta1: 3, OneMinusBeta1: 4, Beta2: 5, OneMinusBeta2: 6,
		RootCorrection2: 7, Eps: 8, StepSize: 9, NesterovM: 10, NesterovG: 11,
	}
	require.Equal(t, [11]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, *adamWScalars(&s))
	require.LessOrEqual(t, unsafe.Sizeof([11]float32{}), unsafe.Sizeof(s))
}
