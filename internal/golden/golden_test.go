package golden_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lowbit-go/lowbit/internal/golden"
)

func TestEveryFileOpens(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/golden/*.safetensors")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		set := golden.Open(t, strings.TrimSuffix(filepath.Base(path), ".safetensors"))
		if filepath.Base(path) != "schedules.safetensors" {
			require.NotEmpty(t, set.Meta("library"), path)
		}
	}
}

func TestValues(t *testing.T) {
	schedules := golden.Open(t, "schedules")
	require.Equal(t, "0.01", schedules.Meta("peak"))
	cosine := schedules.F64("optax_cosine")
	require.Equal(t, []int64{55}, schedules.Shape("optax_cosine"))
	require.Len(t, cosine, 55)
	require.InEpsilon(t, 0.01, cosine[0], 1e-6)
	require.InEpsilon(t, 0.001, cosine[50], 1e-6)

	adam := golden.Open(t, "torch_adamw_float32")
	require.True(t, adam.Has("p0.emb"))
	require.False(t, adam.Has("p0.absent"))
	require.Equal(t, []int64{19, 8}, adam.Shape("p0.emb"))
	require.Len(t, adam.F32("p0.emb"), 19*8)

	// bits and both roundings of it say that all three accessors see the same elements.
	rounding := golden.Open(t, "rounding")
	bits, torch, other := rounding.I32("bits"), rounding.BF16("bf16.torch"), rounding.BF16("bf16.ml_dtypes")
	require.Len(t, torch, len(bits))
	require.Len(t, other, len(bits))
	for i, b := range bits {
		x := math.Float32frombits(uint32(b))
		if x != x {
			continue
		}
		want := uint16((uint32(b) + 0x7fff + uint32(b)>>16&1) >> 16)
		require.Equal(t, want, torch[i], "%08x", uint32(b))
		require.Equal(t, want, other[i], "%08x", uint32(b))
	}

	areno := golden.Open(t, "areno_adamw8bit_bfloat16_b128")
	patterns := areno.BF16("p0.w")
	for i, x := range areno.F32("p0.w") {
		require.Equal(t, uint32(patterns[i])<<16, math.Float32bits(x))
	}
	require.Len(t, areno.U8("s1.1.exp_avg_q"), 24*41+300)
}

// recorder is a test that notes why it failed.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func TestWhatIsAbsentFailsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		ask  func(testing.TB)
		want string
	}{
		"file":     {func(t testing.TB) { golden.Open(t, "absent") }, "absent.safetensors"},
		"tensor":   {func(t testing.TB) { golden.Open(t, "schedules").F64("absent") }, `has no tensor "absent"`},
		"shape":    {func(t testing.TB) { golden.Open(t, "schedules").Shape("absent") }, `has no tensor "absent"`},
		"metadata": {func(t testing.TB) { golden.Open(t, "schedules").Meta("absent") }, `has no metadata "absent"`},
		"F32":      {func(t testing.TB) { golden.Open(t, "schedules").F32("optax_cosine") }, `is F64, want F32, F16 or BF16`},
		"F64":      {func(t testing.TB) { golden.Open(t, "rounding").F64("bits") }, `is I32, want [F64]`},
		"I32":      {func(t testing.TB) { golden.Open(t, "rounding").I32("bf16.torch") }, `is I16, want [I32]`},
		"U8":       {func(t testing.TB) { golden.Open(t, "rounding").U8("bits") }, `is I32, want [U8]`},
		"BF16":     {func(t testing.TB) { golden.Open(t, "rounding").BF16("bits") }, `is I32, want [BF16 I16]`},
	} {
		require.Contains(t, failure(t, c.ask), c.want, name)
	}
}

func TestOutsideTheRepository(t *testing.T) {
	outside := t.TempDir()
	if _, err := os.Stat(filepath.Join(filepath.Dir(outside), "testdata")); err == nil {
		t.Fatalf("%s has a testdata folder above it", outside)
	}
	t.Chdir(outside)
	require.Contains(t, failure(t, func(t testing.TB) { golden.Open(t, "schedules") }), "no folder testdata/golden in ")
}

// failure runs ask as a test of its own and returns the message it fails with.
func failure(t *testing.T, ask func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(r)
	}()
	<-done
	return r.message
}
