package handoff

import (
	"math/rand"
	"testing"
)

// What the real machines do, whatever happens to them, is a path of the tables.
func TestTheMachinesTracesAreValid(t *testing.T) {
	rnd := rand.New(rand.NewSource(3))
	for run := range 200 {
		td, tp := NewTargets("d0", 1), NewSources("p", 1)
		var trace Trace
		for range 200 {
			p := testPlan(Epoch(1+rnd.Intn(2)), Nonce(1+rnd.Intn(2)))
			in := TargetInput{Event: TargetEvent(rnd.Intn(int(targetEvents))), Attempt: p.Attempt, D: p.D, Plan: &p, Shape: &stageShape,
				Piece: uint32(rnd.Intn(3)), Manifest: Digest{1}, Question: 1, Grant: 1}
			from := TargetUnknown
			if r := td.Get(p.Attempt); r != nil {
				from, in.Token = r.State, r.Token()
			}
			ev := td.Traced(in, from, td.Step(0, in))
			bulk := in.Event == TargetPost || in.Event == TargetLand || in.Event == TargetFail
			if bulk && ev.From == ev.To && ev.Code == "none" {
				continue // a daemon leaves out what changes nothing
			}
			if err := trace.Add(ev); err != nil {
				t.Fatalf("run %d: %v", run, err)
			}
			if rnd.Intn(30) == 0 {
				for _, a := range td.Tick(Instant(1 << 40)) {
					if err := trace.Add(TraceEvent{"d0", 1, "target", a, "expire", "", td.Get(a).State.String(), CodeLease.String()}); err != nil {
						t.Fatalf("run %d: %v", run, err)
					}
				}
			}
			sin := SourceInput{Event: SourceEvent(rnd.Intn(int(sourceEvents))), Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape, Piece: uint32(rnd.Intn(3)), Digest: 1}
			sfrom := SourceUnknown
			if r := tp.Get(p.Attempt); r != nil {
				sfrom, sin.Grant, sin.Manifest = r.State, r.Grant, r.Manifest
			}
			if err := trace.Add(tp.Traced(sin, sfrom, tp.Step(0, sin))); err != nil {
				t.Fatalf("run %d: %v", run, err)
			}
		}
	}
}

// Daemons name what an expiry ended, and its cause as the code.
func TestAnExpiryThatNamesWhatItEndedIsAPath(t *testing.T) {
	a := testPlan(1, 1).Attempt
	var trace Trace
	for _, e := range []TraceEvent{{"p", 1, "source", a, "open", "unknown", "opened", ""}, {"p", 1, "source", a, "expire", "opened", "closed", "lease_expired"}, {"p", 1, "source", a, "undo", "closed", "closed", ""}} {
		if err := trace.Add(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTracesThatCannotHaveHappenedAreRefused(t *testing.T) {
	a, b := testPlan(1, 1).Attempt, testPlan(2, 2).Attempt
	ev := func(a Attempt, event, from, to, code string) TraceEvent {
		return TraceEvent{"d0", 1, "target", a, event, from, to, code}
	}
	for name, events := range map[string][]TraceEvent{
		"begins in the middle":          {ev(a, "commit", "validated", "committed", "")},
		"commits without validation":    {ev(a, "open", "unknown", "opened", ""), ev(a, "commit", "opened", "committed", "")},
		"leaves a final state":          {ev(a, "undo", "unknown", "closed", ""), ev(a, "open", "closed", "opened", "none")},
		"an undo takes a commit back":   {ev(a, "adopt", "unknown", "committed", ""), ev(a, "undo", "committed", "aborted", "")},
		"a refusal moves":               {ev(a, "open", "unknown", "opened", "capacity")},
		"an odd refusal":                {ev(a, "open", "unknown", "unknown", "cancelled")},
		"adopted late":                  {ev(a, "open", "unknown", "opened", ""), ev(a, "adopt", "opened", "committed", "")},
		"forgotten alive":               {ev(a, "open", "unknown", "opened", ""), ev(a, "forget", "opened", "unknown", "")},
		"a lower epoch opens after":     {ev(b, "open", "unknown", "opened", ""), ev(a, "open", "unknown", "opened", "")},
		"no such machine":               {{"d0", 1, "reader", a, "open", "unknown", "opened", ""}},
		"no such code":                  {ev(a, "open", "unknown", "unknown", "nonsense")},
		"a source that was never there": {{"p", 1, "source", a, "seal", "opened", "sealed", ""}},
	} {
		var trace Trace
		var err error
		for _, e := range events {
			if err = trace.Add(e); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestATraceAtRestHasOnlyEndedAttempts(t *testing.T) {
	a := testPlan(1, 1).Attempt
	var trace Trace
	for _, e := range []TraceEvent{{"d0", 1, "target", a, "open", "unknown", "opened", ""}, {"p", 1, "source", a, "open", "unknown", "opened", ""},
		{"d0", 1, "target", a, "undo", "opened", "closed", ""}} {
		if err := trace.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if got, state, ok := trace.Final(); ok || got != a || state != "opened" {
		t.Errorf("%s is %s, ok %v", got, state, ok)
	}
	if err := trace.Add(TraceEvent{"p", 1, "source", a, "undo", "opened", "closed", "none"}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := trace.Final(); !ok {
		t.Error("ended attempts count as open")
	}
	if err := trace.Add(TraceEvent{"p", 1, "source", a, "forget", "closed", "unknown", "none"}); err != nil {
		t.Error(err)
	}
}
