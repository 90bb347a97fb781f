package peers

import (
	"fmt"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Size of a picture.
const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
	legendRoom = 0.35 // of the curves' height, above them
)

// Plots writes the report's pictures into a directory.
func (r *Report) Plots(dir string) (paths []string, err error) {
	for _, p := range []struct {
		file string
		make func() (*plot.Plot, error)
	}{
		{"added-ttft.png", r.plotAdded}, {"throughput.png", r.plotThroughput},
		{"cpu.png", r.plotCPU}, {"stream-memory.png", r.plotStreams},
	} {
		picture, err := p.make()
		if err != nil {
			return paths, fmt.Errorf("%s: %w", p.file, err)
		}
		picture.Y.Min = min(0, picture.Y.Min)
		picture.Y.Max += legendRoom * (picture.Y.Max - picture.Y.Min)
		path := filepath.Join(dir, p.file)
		if err := picture.Save(plotWidth, plotHeight, path); err != nil {
			return paths, fmt.Errorf("%s: %w", p.file, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func canvas(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	return p
}

// line adds one side's curve; each side has its colour in every picture.
func (r *Report) line(p *plot.Plot, s, suffix string, dashed bool, xy plotter.XYs) error {
	l, points, err := plotter.NewLinePoints(xy)
	if err != nil {
		return err
	}
	l.Color, points.Color = plotutil.Color(r.index(s)), plotutil.Color(r.index(s))
	l.Width = vg.Points(1.5)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(l, points)
	p.Legend.Add(s+suffix, l, points)
	return nil
}

func (r *Report) index(side string) int {
	for i, s := range r.Sides {
		if s == side {
			return i
		}
	}
	return len(r.Sides)
}

func (r *Report) plotAdded() (*plot.Plot, error) {
	p := canvas("Time to first token added to the bare floor", "requests a second (Poisson, 2,000 tokens in 80 ms)", "ms")
	for _, s := range r.Sides {
		if !isRouter(s) {
			continue
		}
		for _, q := range []struct {
			suffix string
			dashed bool
			of     func(Round) time.Duration
		}{{" p50", false, ttft50}, {" p99", true, ttft99}} {
			var xy plotter.XYs
			for _, rate := range r.Config.Rates {
				xy = append(xy, plotter.XY{X: rate, Y: millis(added(r.Rounds, s, poissonLoad(rate), q.of))})
			}
			if err := r.line(p, s, q.suffix, q.dashed, xy); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func (r *Report) plotThroughput() (*plot.Plot, error) {
	p := canvas("Streams a second, engines without latency, all on this machine", "clients in closed loops", "streams a second")
	for _, s := range r.Sides {
		var xy plotter.XYs
		for _, clients := range r.Config.Clients {
			xy = append(xy, plotter.XY{X: float64(clients), Y: median(of(r.Rounds, s, zeroLoad(clients)), func(x Round) float64 { return x.Rate })})
		}
		if err := r.line(p, s, "", !isRouter(s), xy); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// plotCPU shows multiples of the fakes': for a request and for a token.
func (r *Report) plotCPU() (*plot.Plot, error) {
	p := canvas("Router's CPU as a multiple of the fake engines'", "", "×")
	names := []string{"a request, realistic c=64", "a relayed token"}
	return p, r.bars(p, names, func(s string, i int) float64 {
		v, _ := []figure{r.perRequest, r.perToken}[i](s)
		return v
	})
}

func (r *Report) plotStreams() (*plot.Plot, error) {
	p := canvas("Memory of one open stream", "", "KiB")
	names := []string{fmt.Sprintf("%d streams open", r.Config.Streams)}
	return p, r.bars(p, names, func(s string, _ int) float64 { return float64(r.Open[s].PerStream) / (1 << 10) })
}

const barWidth = 0.6 * vg.Centimeter

func (r *Report) bars(p *plot.Plot, names []string, value func(side string, i int) float64) error {
	var routers []string
	for _, s := range r.Sides {
		if isRouter(s) {
			routers = append(routers, s)
		}
	}
	for at, s := range routers {
		var values plotter.Values
		for i := range names {
			values = append(values, value(s, i))
		}
		b, err := plotter.NewBarChart(values, barWidth)
		if err != nil {
			return err
		}
		b.Color, b.Offset, b.LineStyle.Width = plotutil.Color(r.index(s)), (vg.Length(at)-vg.Length(len(routers)-1)/2)*barWidth, 0
		p.Add(b)
		p.Legend.Add(s, b)
	}
	p.Legend.Left = false
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	return nil
}
