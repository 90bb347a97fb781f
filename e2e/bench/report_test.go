package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

func report(added time.Duration, writes float64) *Report {
	r := &Report{Config: Default(), History: History{Events: 9, WritesToCommit: writes, ToEnd: writes}}
	for _, c := range r.Clients {
		for range r.Config.Rounds {
			for _, side := range []Side{Bare, Surehand} {
				ttft := 80 * time.Millisecond
				if side == Surehand {
					ttft += added
				}
				r.Rounds = append(r.Rounds, Round{Side: side, Clients: c, First: []time.Duration{ttft},
					Summary: traffic.Summary{Requests: 1, Whole: 1, Took: time.Second, FirstToken50: ttft}})
			}
		}
	}
	return r
}

func TestAMustThatDoesNotHoldIsTold(t *testing.T) {
	for _, c := range []struct {
		name   string
		added  time.Duration
		writes float64
		broken int
	}{
		{"all hold", 2 * time.Millisecond, 2, 0},
		{"too slow, at both sizes", 4 * time.Millisecond, 2, 2},
		{"too many writes to the commit", time.Millisecond, 3, 1},
		{"too many writes in all", time.Millisecond, 6, 2},
	} {
		r := report(c.added, c.writes)
		broken := 0
		for _, m := range r.Musts() {
			if !m.Holds {
				broken++
			}
		}
		if broken != c.broken {
			t.Errorf("%s: %d of the musts broken, want %d: %v", c.name, broken, c.broken, r.Musts())
		}
		var out strings.Builder
		r.Print(&out)
		if strings.Contains(out.String(), "DOES NOT HOLD") != (c.broken > 0) {
			t.Errorf("%s: the report says otherwise:\n%s", c.name, out.String())
		}
	}
}

func TestAddedTimeIsThatOfTheSameRound(t *testing.T) {
	r := report(0, 0)
	for i := range r.Rounds { // a machine that slows down with every pair of rounds adds nothing
		slow := time.Duration(i/2) * 10 * time.Millisecond
		r.Rounds[i].FirstToken50 += slow
		if r.Rounds[i].Side == Surehand {
			r.Rounds[i].FirstToken50 += time.Millisecond
		}
	}
	if got := r.Added50(8); got != time.Millisecond {
		t.Fatalf("added %s, want 1ms", got)
	}
}
