package optim

import "github.com/lowbit-go/lowbit/internal/tensorfile"

// checkValues refuses what no optimizer makes and a step cannot work with: second moments
// below 0, of which it takes the roots, and such scales. What is not finite may be an
// optimizer's own. It is converted as it is, and counted.
func (s *SavedState) checkValues() error {
	for _, p := range s.params {
		if p.m.book != nil {
			if err := s.checkNotNegative(p.m.scales, "a scale"); err != nil {
				return err
			}
		}
		if p.v == nil {
			continue
		}
		kind, tensors := "a second moment", []tensorfile.Tensor{p.v.values}
		switch {
		case p.v.factored:
			tensors = []tensorfile.Tensor{p.v.row, p.v.col}
		case p.v.book != nil:
			kind, tensors = "a scale", []tensorfile.Tensor{p.v.scales}
		}
		for _, t := range tensors {
			if err := s.checkNotNegative(t, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *SavedState) checkNotNegative(t tensorfile.Tensor, kind string) error {
	n := t.Elements()
	for first := int64(0); first < n; first += convertElements {
		x := sized(&s.work.x, min(convertElements, n-first))
		if err := s.file.ReadFloat32(t, x, first); err != nil {
			return err
		}
		for i, v := range x {
			if v < 0 {
				return s.errorf("tensor %q: element %d is %v, want %s, which is 0 or more", t.Name, first+int64(i), v, kind)
			}
		}
	}
	return nil
}
