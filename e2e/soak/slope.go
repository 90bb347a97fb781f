package soak

import (
	"fmt"
	"math"
	"time"
)

// share of its mean that a measure may rise by over the window.
const share = 0.10

// Line is a least-squares line through samples.
type Line struct {
	Mean  float64
	Slope float64 // a second
	Error float64 // standard error of the slope
}

// Fit lays a line through at least three points.
func Fit(at []time.Duration, value []float64) (Line, error) {
	n := float64(len(at))
	if len(at) != len(value) || len(at) < 3 {
		return Line{}, fmt.Errorf("%d points of %d values are no line", len(at), len(value))
	}
	var mx, my float64
	for i := range at {
		mx += at[i].Seconds() / n
		my += value[i] / n
	}
	var sxx, sxy float64
	for i := range at {
		dx := at[i].Seconds() - mx
		sxx += dx * dx
		sxy += dx * (value[i] - my)
	}
	if sxx == 0 {
		return Line{}, fmt.Errorf("all points are at one time")
	}
	l := Line{Mean: my, Slope: sxy / sxx}
	var rest float64
	for i := range at {
		r := value[i] - my - l.Slope*(at[i].Seconds()-mx)
		rest += r * r
	}
	l.Error = math.Sqrt(rest / (n - 2) / sxx)
	return l, nil
}

// Rise over a window, and the least that it is with twice the standard error.
func (l Line) Rise(window time.Duration) (rise, least float64) {
	return l.Slope * window.Seconds(), (l.Slope - 2*l.Error) * window.Seconds()
}

// Grows says whether the line rises by more than its tolerance.
func (l Line) Grows(window time.Duration, floor float64) bool {
	_, least := l.Rise(window)
	return least > max(share*l.Mean, floor)
}
