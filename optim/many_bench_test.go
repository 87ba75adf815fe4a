package optim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/lowbit/optim"
	"github.com/stretchr/testify/require"
)

const manyCount, manySize = 10_000, 64

// BenchmarkManySmall is a step of a model of many small parameters.
func BenchmarkManySmall(b *testing.B) { benchmarkAdamW(b, manyCount, manySize) }

// BenchmarkOneLarge is a step of one parameter of the same total.
func BenchmarkOneLarge(b *testing.B) { benchmarkAdamW(b, 1, manyCount*manySize) }

func benchmarkAdamW(b *testing.B, count, size int) {
	for _, config := range []struct {
		name, text string
		narrow     bool
	}{
		{"float32", `{}`, false},
		{"bfloat16", `{"moments_dtype": "bfloat16"}`, true},
		{"8bit", `{"adam_8bit": true}`, false},
		{"4bit", `{"adam_4bit": true}`, false},
	} {
		b.Run(config.name, func(b *testing.B) { benchmarkStep(b, config.text, equal(count, config.narrow, size)) })
	}
	side := int(math.Sqrt(float64(size)))
	b.Run("factored", func(b *testing.B) { benchmarkStep(b, `{"adam_4bit": true}`, equal(count, false, side, side)) })
}

// equal makes parameters of one shape.
func equal(count int, narrow bool, shape ...int) []optim.Param {
	params := make([]optim.Param, count)
	for i := range params {
		p := optim.Param{Name: fmt.Sprint("w", i)}
		n := 1
		for _, size := range shape {
			p.Shape = append(p.Shape, int64(size))
			n *= size
		}
		p.Weights, p.Gradients = numbers(n, uint64(2*i), narrow), numbers(n, uint64(2*i+1), narrow)
		params[i] = p
	}
	return params
}

func benchmarkStep(b *testing.B, config string, params []optim.Param) {
	opt, params := newOptimizer(b, config, params...)
	elements := 0
	for _, p := range params {
		elements += p.Weights.Len()
	}
	_, err := opt.Step() // makes the workspace
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := opt.Step()
		require.NoError(b, err)
	}
	b.ReportMetric(float64(elements)*float64(b.N)/b.Elapsed().Seconds()/1e9, "G/s")
}
