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
	visible, shown bool
	start          time.Time
	done           int64
	text           string
	bar            *progressbar.ProgressBar
}

func (e *env) progress(total int64) *progress {
	return newProgress(e.stderr, isTerminal(e.stderr), total)
}

func newProgress(w io.Writer, visible bool, total int64) *progress {
	p := &progress{visible: visible, start: time.Now()}
	p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
	p.bar.StartWithoutRender()
	return p
}

// describe says what is being done.
func (p *progress) describe(text string) {
	p.text = text
	if p.shown {
		p.bar.Describe(text)
	}
}

func (p *progress) add(n int64) {
	p.done += n
	if !p.visible || time.Since(p.start) < time.Second {
		return
	}
	if !p.shown {
		p.shown = true
		p.bar.Describe(p.text)
	}
	_ = p.bar.Set64(p.done)
}

// end takes the bar away.
func (p *progress) end() {
	if p.shown {
		p.shown, p.visible = false, false
		_ = p.bar.Clear()
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
