package main

import (
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curveColors are told apart by colour-blind eyes too (Okabe and Ito, 2008).
var curveColors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
}

var curveGlyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}}

// plotCurves draws a PNG of the smoothed training losses as lines and of the held-out losses as points.
func plotCurves(w io.Writer, runs []*trainRun) error {
	p := plot.New()
	p.Title.Text = "Loss by optimizer: training (smoothed, lines) and held-out text (points)"
	p.X.Label.Text = "step"
	p.Y.Label.Text = "loss, nats a byte"
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, r := range runs {
		line, err := plotter.NewLine(smoothed(r.TrainLosses))
		if err != nil {
			return err
		}
		points, err := plotter.NewScatter(r.points())
		if err != nil {
			return err
		}
		line.Color = curveColors[i%len(curveColors)]
		line.Width = vg.Points(1.5)
		points.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(3), Shape: curveGlyphs[i%len(curveGlyphs)]}
		p.Add(line, points)
		p.Legend.Add(r.name, line, points)
	}
	image, err := p.WriterTo(8*vg.Inch, 5*vg.Inch, "png")
	if err != nil {
		return err
	}
	_, err = image.WriteTo(w)
	return err
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
		points = append(points, plotter.XY{X: float64(i + 1), Y: sum / weight})
	}
	return points
}

func (c curve) points() plotter.XYs {
	points := plotter.XYs{}
	for _, h := range c.HeldOut {
		if finite(h.Loss) {
			points = append(points, plotter.XY{X: float64(h.Step), Y: h.Loss})
		}
	}
	return points
}
