package soak

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// samples are n of a measure that starts at from and rises by so much over the
// whole, with a noise that repeats.
func samples(n int, from, rise, noise float64) (at []time.Duration, values []map[string]float64) {
	for i := range n {
		v := map[string]float64{}
		for _, m := range measures {
			v[m.name] = from
		}
		v["goroutines of gateways"] = from + rise*float64(i)/float64(n-1) + noise*float64(i*7919%13-6)/6
		at, values = append(at, time.Duration(i)*10*time.Second), append(values, v)
	}
	return at, values
}

func TestALeakIsToldFromNoise(t *testing.T) {
	for _, c := range []struct {
		name              string
		from, rise, noise float64
		flat              bool
	}{
		{"nothing moves", 100, 0, 0, true},
		{"noise alone", 100, 0, 80, true},
		{"a rise within the tolerance", 1000, 60, 5, true},
		{"a rise below the floor", 20, 30, 1, true},
		{"a leak", 100, 100, 5, false},
		{"a leak under noise", 100, 300, 60, false},
	} {
		var r Report
		at, values := samples(60, c.from, c.rise, c.noise)
		if err := r.judge(at, values); err != nil {
			t.Fatal(err)
		}
		if r.Flat() != c.flat {
			var out strings.Builder
			r.Print(&out)
			t.Errorf("%s: flat is %v\n%s", c.name, r.Flat(), out.String())
		}
	}
}

func TestAnswersThatAreNeitherWholeNorTypedFailASoak(t *testing.T) {
	r := Report{Wrong: []error{errors.New("w3 where w2 was due")}}
	if r.Flat() {
		t.Error("a wrong answer was let pass")
	}
}

func TestALineThroughALine(t *testing.T) {
	l, err := Fit([]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, []float64{1, 3, 5, 7})
	if err != nil || l.Slope != 2 || l.Mean != 4 || l.Error > 1e-9 {
		t.Errorf("%+v %v", l, err)
	}
	if _, err := Fit([]time.Duration{1, 2}, []float64{1, 2}); err == nil {
		t.Error("two points are a line of any error")
	}
}
