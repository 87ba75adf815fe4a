package main

import (
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// curveColors can be told apart by colour-blind eyes too (Okabe and Ito, 2008).
var curveColors = []color.Color{
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff},
}

const (
	plotWidth  = 8 * vg.Inch
	plotHeight = 5 * vg.Inch
	plotDPI    = 150
)

// plotCurves draws a PNG of the smoothed training losses as lines and of the held-out losses as points.
func plotCurves(w io.Writer, runs []*trainRun) error {
	p := newPlot()
	for i, r := range runs {
		line, err := plotter.NewLine(smoothed(r.TrainLosses))
		if err != nil {
			return err
		}
		points, err := plotter.NewScatter(r.points())
		if err != nil {
			return err
		}
		// Curves that lie on each other show as bands, the first the widest.
		above := vg.Length(len(runs) - 1 - i)
		line.Color = curveColors[i%len(curveColors)]
		line.Width = vg.Points(1.2) + above*vg.Points(0.9)
		points.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(2) + above*vg.Points(0.8), Shape: draw.CircleGlyph{}}
		p.Add(line, points)
		p.Legend.Add(r.name, line, points)
	}
	p.Y.Min, p.Y.Max = p.Y.Min/1.05, p.Y.Max*1.05 // never equal, as gonum would move them below 0
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI))}
	const margin = vg.Length(12)
	p.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	_, err := canvas.WriteTo(w)
	return err
}

func newPlot() *plot.Plot {
	p := plot.New()
	p.Title.Text = "Loss on training batches (lines, smoothed) and on held-out text (points)"
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = "step"
	p.Y.Label.Text = "nats a byte"
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = lossTicks{}
	p.Legend.Top = true
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(8), -vg.Points(8)
	p.Legend.ThumbnailWidth = vg.Points(28)
	p.Legend.Padding = vg.Points(3)
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xd8}, color.Gray{0xd8}
	p.Add(grid)
	return p
}

// lossTicks are several a decade, which plot.LogTicks would label only once.
type lossTicks struct{}

func (lossTicks) Ticks(low, high float64) []plot.Tick {
	if high > 50*low {
		return plot.LogTicks{}.Ticks(low, high)
	}
	ticks := []plot.Tick{}
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, x := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 7} {
			if x *= decade; x >= low && x <= high {
				ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'g', 3, 64)})
			}
		}
	}
	return ticks
}

// smoothed is the running mean of losses that weighs them less the older they are.
func smoothed(losses []float64) plotter.XYs {
	keep := 1 - 1/(1+float64(len(losses))/30)
	sum, weight := 0.0, 0.0
	points := plotter.XYs{}
	for i, loss := range losses {
		if !finite(loss) {
			break
		}
		sum, weight = keep*sum+loss, keep*weight+1
		points = append(points, lossPoint(int64(i+1), sum/weight))
	}
	return points
}

func (c curve) points() plotter.XYs {
	points := plotter.XYs{}
	for _, h := range c.HeldOut {
		if finite(h.Loss) {
			points = append(points, lossPoint(h.Step, h.Loss))
		}
	}
	return points
}

// lossPoint has a place on the logarithmic axis for every loss.
func lossPoint(step int64, loss float64) plotter.XY {
	return plotter.XY{X: float64(step), Y: min(max(loss, 1e-6), 1e6)}
}
