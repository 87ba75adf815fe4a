//go:build !race

package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector makes pools forget what they hold, so this runs without it.
func TestCallsAllocateNothing(t *testing.T) {
	for _, l := range Loads() {
		shape := Shape{16, 48}
		if l.Shapes == nil {
			shape = Shape{4096}
		}
		for name, call := range l.Prepare(shape...).Calls {
			call(shape.Elements(), 1)
			require.Zero(t, testing.AllocsPerRun(3, func() { call(shape.Elements(), 1) }), "%s %s", l.name(), name)
		}
	}
}
