package vllmbench

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAServerThatTakesTooMuchAsItHoldsIsNamed(t *testing.T) {
	r := Report{Config: Config{Rounds: 1, Requests: 1, Prompts: []int{3}}}
	for i, name := range []string{"one engine", "NIXL, bare", "ours"} {
		r.Ways = append(r.Ways, Way{Name: name, Requests: 1, First: map[int][]time.Duration{3: {time.Duration(10+5*i) * time.Millisecond}}})
	}
	if got := r.Missed(); len(got) != 1 {
		t.Errorf("nobody was seen holding, and it says %q", got)
	}
	r.States = []State{{"at rest", theirD, 0.5, 0}, {holds, theirP, 0.01, 1 << 20}, {holds, theirD, 0.049, 0}, {holds, "P with NIXL", 0.9, 0}}
	if got := r.Missed(); len(got) != 0 {
		t.Error(got)
	}
	var out strings.Builder
	r.Print(&out)
	for _, want := range []string{"| ours | 20.0 (20.0), +5.0, ×1.33 |", "| holding | P with our connector | 1.0 % | 1 |", "5 % of a core while it holds: holds."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
	r.States[2].Share = 0.051
	if got := r.Missed(); len(got) != 1 || !strings.Contains(got[0], theirD) {
		t.Error(got)
	}
}
