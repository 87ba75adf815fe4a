package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a job is, once it has taken a second and where somebody looks.
type progress struct {
	w           io.Writer
	visible     bool
	start       time.Time
	done, total int64
	bytes       bool
	text        string
	bar         *progressbar.ProgressBar
}

func (e *env) progress(bytes int64) *progress {
	p := e.progressOf(bytes)
	p.bytes = true
	return p
}

// progressOf is for jobs that count something else than bytes.
func (e *env) progressOf(total int64) *progress {
	return &progress{w: e.stderr, visible: isTerminal(e.stderr), start: time.Now(), total: total}
}

// describe says what is being done.
func (p *progress) describe(text string) {
	p.text = text
	if p.bar != nil {
		p.bar.Describe(text)
	}
}

func (p *progress) add(n int64) {
	p.done += n
	if !p.visible || time.Since(p.start) < time.Second {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(p.total,
			progressbar.OptionSetWriter(p.w), progressbar.OptionShowBytes(p.bytes), progressbar.OptionSetDescription(p.text), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
	}
	_ = p.bar.Set64(p.done)
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
