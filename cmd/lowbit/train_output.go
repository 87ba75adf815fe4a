package main

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// outFolder is where the curves go.
type outFolder struct {
	path string
	made bool // by this command
}

func (c *trainCmd) outFolder() (*outFolder, error) {
	if c.Out == "" {
		path, err := os.MkdirTemp("", "lowbit-train-"+time.Now().Format("20060102-150405")+"-")
		return &outFolder{path, true}, err
	}
	err := os.Mkdir(c.Out, 0o777)
	if err == nil {
		return &outFolder{c.Out, true}, nil
	}
	info, statErr := os.Stat(c.Out)
	switch {
	case statErr != nil:
		return nil, err
	case !info.IsDir():
		return nil, badInput("--out: %s is not a folder", c.Out)
	}
	if probe, err := os.CreateTemp(c.Out, ".lowbit-*.tmp"); err != nil {
		return nil, fmt.Errorf("--out: nothing can be written to %s: %w", c.Out, err)
	} else if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, err
	}
	f := &outFolder{path: c.Out}
	for _, path := range []string{f.csv(), f.plot()} {
		if _, err := os.Lstat(path); err == nil && !c.Force {
			return nil, badInput("%s exists already, want a new folder or --force", path)
		}
	}
	return f, nil
}

func (f *outFolder) csv() string  { return filepath.Join(f.path, "loss.csv") }
func (f *outFolder) plot() string { return filepath.Join(f.path, "loss.png") }

// removeIfUnused fails, as it should, where there are files in the folder.
func (f *outFolder) removeIfUnused() {
	if f.made {
		os.Remove(f.path)
	}
}

func (f *outFolder) write(runs []*trainRun) error {
	var table, image bytes.Buffer
	if err := errors.Join(writeCurves(&table, runs), plotCurves(&image, runs)); err != nil {
		return err
	}
	return errors.Join(writeWhole(f.csv(), table.Bytes()), writeWhole(f.plot(), image.Bytes()))
}

// writeWhole writes a file that appears whole or not at all.
func writeWhole(path string, data []byte) error {
	temporary := filepath.Join(filepath.Dir(path), ".lowbit-"+rand.Text()+".tmp")
	defer os.Remove(temporary)
	if err := os.WriteFile(temporary, data, 0o666); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Rename(temporary, path)
}

// writeCurves writes one line for each step of each run. Step 0 is the model before the first update.
func writeCurves(w io.Writer, runs []*trainRun) error {
	table := csv.NewWriter(w)
	lines := [][]string{{"optimizer", "step", "train_loss", "held_out_loss"}}
	for _, r := range runs {
		heldOut := map[int64]string{}
		for _, h := range r.HeldOut {
			heldOut[h.Step] = lossText(h.Loss)
		}
		lines = append(lines, []string{r.name, "0", "", heldOut[0]})
		for i, loss := range r.TrainLosses {
			step := int64(i) + 1
			lines = append(lines, []string{r.name, strconv.FormatInt(step, 10), lossText(loss), heldOut[step]})
		}
	}
	return table.WriteAll(lines)
}

func lossText(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

type trainJSON struct {
	Rows       []trainRow `json:"rows"`
	Plot       string     `json:"plot"`
	CSV        string     `json:"csv"`
	Out        string     `json:"out"`
	Corpus     corpusID   `json:"corpus"`
	Parameters int64      `json:"parameters"`
}

type trainRow struct {
	Optimizer              string `json:"optimizer"`
	Loss                   number `json:"loss"`
	Steps                  int64  `json:"steps"`
	StateBytesPerParameter number `json:"state_bytes_per_parameter"`
	StepSeconds            number `json:"step_seconds"`
	OptimizerShare         number `json:"optimizer_share"`
}

func (r *trainRun) row() trainRow {
	seconds := r.step.Seconds()
	return trainRow{
		r.name, number(r.loss()), r.done(), number(r.stateBytes()),
		number(seconds / float64(r.measured)), number(r.optimize.Seconds() / seconds),
	}
}

func (c *trainCmd) print(e *env, t *training, runs []*trainRun, f *outFolder) error {
	parameters := runs[0].parameters()
	if c.JSON {
		report := trainJSON{[]trainRow{}, f.plot(), f.csv(), f.path, t.corpus, parameters}
		for _, r := range runs {
			report.Rows = append(report.Rows, r.row())
		}
		return e.printJSON(report)
	}
	rows := [][]string{{"OPTIMIZER", "LOSS", "STATE BYTES/PARAMETER", "STEP", "IN OPTIMIZER"}}
	for _, r := range runs {
		row := r.row()
		rows = append(rows, []string{
			printable(row.Optimizer), row.Loss.text("%.4f"), row.StateBytesPerParameter.text("%.3f"),
			(row.StepSeconds * 1000).text("%.1f ms"), (row.OptimizerShare * 100).text("%.1f %%"),
		})
	}
	_, err := fmt.Fprintf(e.stdout, "%d parameters, %d steps of %d rows, trained on %s, seed %d\n\n", parameters, t.steps, batchRows, t.corpus.name(), t.seed)
	if err != nil {
		return err
	}
	if err := printTable(e.stdout, rows); err != nil {
		return err
	}
	trained, written := "", f.plot()+" and "+f.csv()
	if !slices.ContainsFunc(runs, func(r *trainRun) bool { return r.measured > 0 }) {
		trained = c.Resume + " was at the last step: nothing was left to train\n"
	}
	if c.Checkpoint != "" {
		written = f.plot() + ", " + f.csv() + " and " + c.Checkpoint
	}
	_, err = fmt.Fprintf(e.stdout, "\n%slosses are of held-out text, in nats a byte\nwrote %s\n", trained, written)
	return err
}

// text formats a number, a dash where it is not finite.
func (n number) text(format string) string {
	if !finite(float64(n)) {
		return "-"
	}
	return fmt.Sprintf(format, float64(n))
}
