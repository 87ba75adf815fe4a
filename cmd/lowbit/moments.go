package main

import (
	"encoding/json"
	"fmt"

	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// secondMoment says how much of a parameter's second moment is zero: such elements take
// steps that eps alone bounds.
type secondMoment struct {
	Name     string `json:"name"`
	Elements int64  `json:"elements"`
	Zeros    int64  `json:"zeros"`
}

// secondMoments probes the second moments of an optimizer's checkpoint; other files have
// none.
func secondMoments(f *tensorfile.File) ([]secondMoment, error) {
	text, ok := f.Metadata["lowbit.optimizer"]
	if !ok {
		return nil, nil
	}
	var saved struct {
		Config struct {
			Block int64 `json:"quant_block_size"`
		} `json:"config"`
		Parameters []struct {
			Name      string  `json:"name"`
			Shape     []int64 `json:"shape"`
			Precision string  `json:"precision"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal([]byte(text), &saved); err != nil {
		return nil, badInput("%s: metadata lowbit.optimizer: %v", f.Path, err)
	}
	var list []secondMoment
	for _, p := range saved.Parameters {
		s := secondMoment{Name: p.Name, Elements: tensorfile.Tensor{Shape: p.Shape}.Elements()}
		var err error
		_, factored := f.Tensor("col/" + p.Name)
		_, whole := f.Tensor("exp_avg_sq/" + p.Name)
		switch {
		case factored: // zero where the factor of its row or its column is
			var rows, cols int64
			if rows, err = zeros(f, "row/"+p.Name); err == nil {
				cols, err = zeros(f, "col/"+p.Name)
			}
			if len(p.Shape) > 0 && p.Shape[0] > 0 {
				width := s.Elements / p.Shape[0]
				s.Zeros = rows*width + cols*p.Shape[0] - rows*cols
			}
		case whole && p.Precision == "4-bit": // its codes have no zero: where the scale is
			s.Zeros, err = zeros(f, "exp_avg_sq_absmax/"+p.Name)
			s.Zeros = min(s.Zeros*saved.Config.Block, s.Elements)
		case whole: // code 0 of the unsigned dynamic table is zero, as in numbers
			s.Zeros, err = zeros(f, "exp_avg_sq/"+p.Name)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// zeros counts the zeros of a tensor of numbers or codes.
func zeros(f *tensorfile.File, name string) (count int64, err error) {
	t, ok := f.Tensor(name)
	if !ok {
		return 0, badInput("%s: the checkpoint lacks tensor %.100q", f.Path, name)
	}
	const piece = 1 << 16
	codes, numbers := make([]byte, piece), make([]float32, piece)
	for first := int64(0); first < t.Elements(); first += piece {
		n := min(piece, t.Elements()-first)
		if t.DType == "U8" {
			err = f.ReadAt(t, codes[:n], first)
			for _, code := range codes[:n] {
				if code == 0 {
					count++
				}
			}
		} else {
			err = f.ReadFloat32(t, numbers[:n], first)
			for _, x := range numbers[:n] {
				if x == 0 {
					count++
				}
			}
		}
		if err != nil {
			return 0, err
		}
	}
	return count, nil
}

func (e *env) printSecondMoments(list []secondMoment) error {
	if len(list) == 0 {
		return nil
	}
	rows := [][]string{{"SECOND MOMENT OF", "ELEMENTS", "ZERO", ""}}
	for _, s := range list {
		rows = append(rows, []string{printable(s.Name), fmt.Sprint(s.Elements), fmt.Sprint(s.Zeros),
			fmt.Sprintf("%.2f %%", 100*float64(s.Zeros)/float64(max(s.Elements, 1)))})
	}
	if _, err := fmt.Fprintln(e.stdout); err != nil {
		return err
	}
	return printTable(e.stdout, rows)
}
