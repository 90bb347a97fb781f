package scale

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

func TestACellIsMeasuredOnce(t *testing.T) {
	c := Default()
	seen := map[Cell]bool{}
	for _, x := range c.cells() {
		if seen[x] {
			t.Errorf("%s twice", x)
		}
		seen[x] = true
	}
	if n := len(seen); n != 6+len(c.Shards)+len(c.Gateways)+2 {
		t.Errorf("%d cells", n)
	}
}

func TestAnAnswerIsWholeOrRefusedOrWrong(t *testing.T) {
	refused := func(status int, code string, after time.Duration) traffic.Answer {
		return traffic.Answer{Status: status, Failure: &traffic.Failure{Code: code, Type: "t"}, RetryAfter: after}
	}
	r := Result{Refused: map[string]int{}, Wrong: map[string]int{}}
	r.count([]traffic.Answer{
		{Status: 200, Text: "w0 w1 w2 w3", Pieces: 4, Finish: "length", Done: true},
		{Status: 200, Text: "w0 w1 w3", Pieces: 3, Finish: "length", Done: true},
		{Broken: errors.New("reset")},
		refused(503, "capacity", time.Second),
		refused(503, "capacity", 0), // a client does not know when to come again
		refused(500, "internal", time.Second),
	})
	if r.Whole != 1 || r.Refused["503 capacity"] != 1 || sum(r.Wrong) != 4 {
		t.Fatalf("%+v", r)
	}
}

func TestAMustThatDoesNotHoldIsTold(t *testing.T) {
	result := func(x Cell, whole int, cpu time.Duration) Result {
		return Result{Cell: x, Whole: whole, Took: time.Second, CPU: map[string]time.Duration{fleet.Temporal: cpu}}
	}
	for _, c := range []struct {
		name   string
		result Result
		holds  bool
	}{
		{"quick", result(Cell{Store: SQLite, Record: "request", Engines: Native}, 80, 0), true},
		{"slow", result(Cell{Store: SQLite, Record: "request", Engines: Native}, 79, 0), false},
		{"cheap", result(Cell{Store: SQLite, Record: "handoff", Engines: Transferd}, 100, time.Second), true},
		{"dear", result(Cell{Store: SQLite, Record: "handoff", Engines: Transferd}, 100, 1100*time.Millisecond), false},
		{"a burst that is answered", Result{Cell: Cell{Store: SQLite, Burst: true}, Refused: map[string]int{"503 capacity": 3}}, true},
		{"a burst that is not", Result{Cell: Cell{Store: SQLite, Burst: true}, Wrong: map[string]int{"reset": 1}}, false},
	} {
		r := Report{Config: Default(), Results: []Result{c.result}}
		if musts := r.Musts(); len(musts) != 1 || musts[0].Holds != c.holds {
			t.Errorf("%s: %+v", c.name, musts)
		}
		var out strings.Builder
		r.Print(&out)
		if strings.Contains(out.String(), "DOES NOT HOLD") == c.holds {
			t.Errorf("%s: the report says otherwise:\n%s", c.name, out.String())
		}
	}
}
