package optim

import "github.com/lowbit-go/lowbit/kernels"

// Scratch is an optimizer's scratch file with whatever a test lets go wrong.
type Scratch struct {
	scratchFile
	BeforeRead, BeforeWrite func(off int64) error
}

func (s *Scratch) ReadAt(p []byte, off int64) error {
	if s.BeforeRead != nil {
		if err := s.BeforeRead(off); err != nil {
			return err
		}
	}
	return s.scratchFile.ReadAt(p, off)
}

// WriteAt leaves half of what fails.
func (s *Scratch) WriteAt(p []byte, off int64) error {
	if s.BeforeWrite != nil {
		if err := s.BeforeWrite(off); err != nil {
			s.scratchFile.WriteAt(make([]byte, len(p)/2), off)
			return err
		}
	}
	return s.scratchFile.WriteAt(p, off)
}

// Scratch takes the place of the scratch file.
func (o *Optimizer) Scratch() *Scratch {
	s := &Scratch{scratchFile: o.disk.file}
	o.disk.file = s
	return s
}

// BatchAt is the place of a parameter's batch in the scratch file.
func (o *Optimizer) BatchAt(name string) int64 {
	for _, p := range o.params {
		if p.Name == name {
			return p.home.offset
		}
	}
	return -1
}

// LargestBatch is the bytes of a window.
func (o *Optimizer) LargestBatch() int64 { return o.disk.largest }

// KeptBatches are those that could not be written.
func (o *Optimizer) KeptBatches() (n int) {
	for _, b := range o.disk.batches {
		if b.kept != nil {
			n++
		}
	}
	return n
}

// failing is an engine of which the update of one parameter fails.
type failing struct {
	engine
	name string
	err  error
}

func (f failing) adamW(p *parameter, s *kernels.AdamWScalars) (kernels.Counts, bool, error) {
	if p.Name == f.name {
		return kernels.Counts{}, false, f.err
	}
	return f.engine.adamW(p, s)
}

func (f failing) muon(p *parameter, s *muonStep) (kernels.Counts, bool, error) {
	if p.Name == f.name {
		return kernels.Counts{}, false, f.err
	}
	return f.engine.muon(p, s)
}

func (failing) again([]*parameter) bool { return false }

// FailUpdate makes the updates of a parameter fail, and returns what ends that.
func (o *Optimizer) FailUpdate(name string, err error) (end func()) {
	whole := o.engine
	o.engine = failing{whole, name, err}
	return func() { o.engine = whole }
}

// MoveStates reads and writes what a step does, and steps nothing.
func (o *Optimizer) MoveStates() error {
	whole := o.engine
	o.engine = idle{whole}
	_, err := o.Step()
	o.engine = whole
	return err
}

type idle struct{ engine }

func (idle) adamW(*parameter, *kernels.AdamWScalars) (c kernels.Counts, skipped bool, err error) {
	return c, false, nil
}

func (idle) muon(*parameter, *muonStep) (c kernels.Counts, skipped bool, err error) {
	return c, false, nil
}

// MoveStatesInTurn does it on one goroutine.
func (o *Optimizer) MoveStatesInTurn() error {
	w := <-o.disk.free
	defer func() { o.disk.free <- w }()
	for _, b := range o.disk.batches {
		w.batch = b
		if err := o.disk.file.ReadAt(w.bytes(), b.offset); err != nil {
			return err
		}
		if err := o.disk.file.WriteAt(w.bytes(), b.offset); err != nil {
			return err
		}
	}
	return nil
}

type ScratchFile = scratchFile

// MoveTo copies the states to another file and uses it from then on.
func (o *Optimizer) MoveTo(file ScratchFile) error {
	w := <-o.disk.free
	defer func() { o.disk.free <- w }()
	for _, b := range o.disk.batches {
		w.batch = b
		if err := o.disk.file.ReadAt(w.bytes(), b.offset); err != nil {
			return err
		}
		if err := file.WriteAt(w.bytes(), b.offset); err != nil {
			return err
		}
	}
	o.disk.file.Close()
	o.disk.file = file
	return nil
}
