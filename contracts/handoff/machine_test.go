package handoff

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"
)

func TestEveryEventIsAnsweredInEveryState(t *testing.T) {
	for e := range targetEvents {
		for s := range targetStates {
			if c := targetTable[e][s]; !c.ok {
				t.Errorf("target table has no cell for %s in %s", e, s)
			} else if c.code == CodeNone && s.Final() && c.to != s {
				t.Errorf("%s leaves the final state %s", e, s)
			}
		}
	}
	for e := range sourceEvents {
		for s := range sourceStates {
			if c := sourceTable[e][s]; !c.ok {
				t.Errorf("source table has no cell for %s in %s", e, s)
			} else if c.code == CodeNone && s == SourceClosed && c.to != s {
				t.Errorf("%s leaves closed", e)
			}
		}
	}
}

func TestOnlyCommitMakesVisible(t *testing.T) {
	for e := range targetEvents {
		for s := range targetStates {
			if c := targetTable[e][s]; c.code == CodeNone && c.to == TargetCommitted && s != TargetCommitted && e != TargetCommit {
				t.Errorf("%s in %s commits", e, s)
			}
		}
	}
}

func testPlan(e Epoch, n Nonce) Plan {
	return Plan{Attempt: Attempt{"r", e, n}, P: Seat{"ep", "p", 1}, D: Seat{"ed", "d0", 1}, BodyDigest: Digest{1}}
}

func openTarget(t *testing.T, td *Targets, p Plan) Token {
	t.Helper()
	ans := td.Step(0, TargetInput{Event: TargetOpen, Attempt: p.Attempt, D: p.D, Plan: &p, Shape: &stageShape})
	if ans.Err() != nil {
		t.Fatal(ans.Err())
	}
	return ans.Token
}

// Arbitrary events, arbitrary arguments: what must hold of a record always does.
func TestArbitraryEventsKeepTheTargetsInvariants(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for run := range 300 {
		td := NewTargets("d0", 1)
		wasFinal := map[Attempt]TargetState{}
		for range 200 {
			p := testPlan(Epoch(1+rnd.Intn(2)), Nonce(1+rnd.Intn(2)))
			if rnd.Intn(20) == 0 {
				p.D.Incarnation = 2
			}
			var tok Token
			if r := td.Get(p.Attempt); r != nil && rnd.Intn(10) > 0 {
				tok = r.Token()
			}
			if rnd.Intn(15) == 0 {
				_ = td.Free(p.Attempt)
			}
			td.Step(Instant(rnd.Intn(5)), TargetInput{Event: TargetEvent(rnd.Intn(int(targetEvents))), Attempt: p.Attempt, D: p.D, Plan: &p,
				Shape: &stageShape, Token: tok, Piece: uint32(rnd.Intn(3)), Manifest: Digest{byte(1 + rnd.Intn(2))},
				Question: Nonce(rnd.Intn(3)), Grant: GrantID(rnd.Intn(3))})
			for _, r := range td.All() {
				checkTarget(t, td, r)
				if s, ok := wasFinal[r.Plan.Attempt]; ok && s != r.State {
					t.Fatalf("run %d: %s left %s for %s", run, r.Plan.Attempt, s, r.State)
				}
				if r.State.Final() {
					wasFinal[r.Plan.Attempt] = r.State
				}
			}
		}
	}
}

func checkTarget(t *testing.T, td *Targets, r *Target) {
	t.Helper()
	switch {
	case r.Posted < 0:
		t.Fatalf("%s: %d posted", r.Plan.Attempt, r.Posted)
	case r.State >= TargetLanded && r.State <= TargetCommitted && (r.Left != 0 || r.Posted != 0):
		t.Fatalf("%s is %s with %d pieces left and %d posted", r.Plan.Attempt, r.State, r.Left, r.Posted)
	case r.State >= TargetVerified && r.State <= TargetCommitted && r.Manifest.IsZero():
		t.Fatalf("%s is %s without a manifest", r.Plan.Attempt, r.State)
	case r.State >= TargetValidated && r.State <= TargetCommitted && (r.Question == 0 || r.Grant == 0):
		t.Fatalf("%s is %s without a question", r.Plan.Attempt, r.State)
	case r.Freed && !r.State.Final():
		t.Fatalf("%s is freed and %s", r.Plan.Attempt, r.State)
	case r.State.Live() && r.State != TargetCommitted && r.Plan.Attempt.Epoch < td.Highest(r.Plan.Attempt.Handoff):
		t.Fatalf("%s is %s below the highest epoch", r.Plan.Attempt, r.State)
	}
}

func TestArbitraryEventsKeepTheSourcesInvariants(t *testing.T) {
	rnd := rand.New(rand.NewSource(2))
	for range 300 {
		tp := NewSources("p", 1)
		sealed := map[Attempt]Digest{}
		for range 200 {
			p := testPlan(1, Nonce(1+rnd.Intn(2)))
			var g GrantID
			if r := tp.Get(p.Attempt); r != nil && rnd.Intn(10) > 0 {
				g = r.Grant
			}
			ans := tp.Step(0, SourceInput{Event: SourceEvent(rnd.Intn(int(sourceEvents))), Attempt: p.Attempt, P: p.P, Plan: &p,
				Shape: &stageShape, Lane: Lane(rnd.Intn(2)), Grant: g, Piece: uint32(rnd.Intn(3)), Digest: uint32(rnd.Intn(2)), Manifest: sealed[p.Attempt]})
			if rnd.Intn(20) == 0 {
				_ = tp.Free(p.Attempt)
			}
			r := tp.Get(p.Attempt)
			switch {
			case r == nil:
			case r.Posted < 0, r.Freed && !r.Drained():
				t.Fatalf("%+v", r)
			case r.State == SourceSealed && r.Left != 0:
				t.Fatalf("sealed with %d pieces missing", r.Left)
			case ans.NeverValidated() && r.Validated:
				t.Fatal("never validated, yet it was")
			case !r.Manifest.IsZero():
				if m, ok := r.Sealed(); ok && m.Digest() != r.Manifest {
					t.Fatal("the sealed manifest changed")
				}
				sealed[p.Attempt] = r.Manifest
			}
		}
	}
}

func TestTablesRefuseOverTheirLimits(t *testing.T) {
	td, tp := NewTargets("d0", 1), NewSources("p", 1)
	td.maxLive, td.maxFreed, tp.maxLive, tp.maxFreed = 1, 1, 1, 1
	plan := func(r HandoffID) Plan { p := testPlan(1, 1); p.Attempt.Handoff = r; return p }
	openT := func(p Plan) Code {
		return td.Step(0, TargetInput{Event: TargetOpen, Attempt: p.Attempt, D: p.D, Plan: &p, Shape: &stageShape}).Code
	}
	openS := func(p Plan) Code {
		return tp.Step(0, SourceInput{Event: SourceOpen, Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape}).Code
	}
	undoT := func(p Plan) Code { return td.Step(0, TargetInput{Event: TargetUndo, Attempt: p.Attempt, D: p.D}).Code }
	undoS := func(p Plan) Code { return tp.Step(0, SourceInput{Event: SourceUndo, Attempt: p.Attempt, P: p.P}).Code }
	for _, f := range []struct {
		got, want Code
	}{{openT(plan("a")), CodeNone}, {openT(plan("b")), CodeCapacity}, {undoT(plan("c")), CodeNone}, {undoT(plan("d")), CodeCapacity}, {undoT(plan("a")), CodeNone},
		{openS(plan("a")), CodeNone}, {openS(plan("b")), CodeCapacity}, {undoS(plan("c")), CodeNone}, {undoS(plan("d")), CodeCapacity}} {
		if f.got != f.want {
			t.Errorf("got %s, want %s", f.got, f.want)
		}
	}
	if !td.Forget(plan("c").Attempt) || td.Freed() != 0 || td.Highest("c") != 0 {
		t.Error("a forgotten tombstone still counts")
	}
	if td.Free(plan("a").Attempt) != nil || td.Live() != 0 || td.Freed() != 1 {
		t.Error("a freed target still counts as live")
	}
}

func TestMalformedOpensAreRefusedBeforeAllocation(t *testing.T) {
	td := NewTargets("d0", 1)
	p := testPlan(1, 1)
	huge := Shape{Revision: "m", Layout: Digest{1}, Tokens: 1, Groups: []Group{{"kv", 1 << 31, 1 << 31, 1}}}
	for _, in := range []TargetInput{{Plan: nil, Shape: &stageShape}, {Plan: &p}, {Plan: &p, Shape: &huge}} {
		in.Event, in.Attempt, in.D = TargetOpen, p.Attempt, p.D
		if ans := td.Step(0, in); ans.Err() == nil || td.Get(p.Attempt) != nil {
			t.Errorf("accepted %+v", in)
		}
	}
}

func TestALeaseHeapHoldsOneEntryARecord(t *testing.T) {
	td := NewTargets("d0", 1)
	p := testPlan(1, 1)
	openTarget(t, td, p)
	for i := range 1000 {
		td.Step(Instant(i), TargetInput{Event: TargetRenew, Attempt: p.Attempt})
		td.Tick(Instant(i))
	}
	if len(td.leases) != 1 {
		t.Errorf("%d entries", len(td.leases))
	}
	if _, ok := td.NextTick(); !ok {
		t.Error("no lease runs")
	}
}

func TestACloneSharesNothingAndHasTheSameKey(t *testing.T) {
	td, tp, rd := NewTargets("d0", 1), NewSources("p", 1), &Reading{}
	p := testPlan(1, 1)
	tok := openTarget(t, td, p)
	open := SourceInput{Event: SourceOpen, Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape}
	tp.Step(0, open)
	rd.Deliver(p.Attempt)
	c := NewCoordinator(p, Policy{})
	td2, tp2, rd2, c2 := td.Clone(), tp.Clone(), rd.Clone(), c.Clone()
	same := func(a, b interface{ AppendKey([]byte) []byte }) bool {
		return bytes.Equal(a.AppendKey(nil), b.AppendKey(nil))
	}
	if !same(td, td2) || !same(tp, tp2) || !same(rd, rd2) || !same(c, c2) {
		t.Fatal("a clone has another key")
	}
	td2.Step(0, TargetInput{Event: TargetPost, Attempt: p.Attempt, Token: tok})
	td2.Step(0, TargetInput{Event: TargetLand, Attempt: p.Attempt, Token: tok})
	tp2.Step(0, SourceInput{Event: SourceAnnounce, Attempt: p.Attempt, Digest: 3})
	rd2.GiveUp(testPlan(2, 2).Attempt)
	c2.Cancel()
	if same(td, td2) || same(tp, tp2) || same(rd, rd2) || same(c, c2) {
		t.Fatal("a change left the key alone")
	}
	if td.Get(p.Attempt).HasLanded(0) || tp.Get(p.Attempt).HasAnnounced(0) || c.Outcome() != nil {
		t.Fatal("a clone shares memory")
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	for _, c := range Codes() {
		err := error(Errorf(c, "x %d", 1))
		if ParseCode(c.String()) != c || CodeOf(err) != c || !errors.Is(err, &Error{Code: c}) || c.About() == "" || c.Advice().String() == "none" {
			t.Errorf("code %s", c)
		}
	}
	if CodeOf(nil) != CodeNone || CodeOf(errors.New("x")) != CodeUnavailable || ParseCode("of a newer peer") != CodeInternal {
		t.Error("unknown is not unknown")
	}
}

func TestOnlyACleanCloseIsAProof(t *testing.T) {
	for s := range targetStates {
		want := map[TargetState]Verdict{TargetClosed: VerdictClosed, TargetCommitted: VerdictCommitted, TargetAborted: VerdictOver}[s]
		if want == VerdictNone {
			want = VerdictUnknown
		}
		if v := TargetVerdict(TargetAnswer{State: s}); v != want {
			t.Errorf("target %s: %s", s, v)
		}
		if v := TargetVerdict(TargetAnswer{State: s, Code: CodeStaleIncarnation}); v != VerdictUnknown {
			t.Errorf("a refusal proves %s", v)
		}
	}
	if SourceVerdict(SourceAnswer{State: SourceClosed}) != VerdictClosed || SourceVerdict(SourceAnswer{State: SourceClosed, Validated: true}) != VerdictOver ||
		SourceVerdict(SourceAnswer{State: SourceSealed}) != VerdictUnknown || SourceVerdict(SourceAnswer{State: SourceClosed, Code: CodeStaleIncarnation}) != VerdictUnknown {
		t.Error("source verdicts")
	}
	if ReaderVerdict(ReaderGivenUp) != VerdictClosed || ReaderVerdict(ReaderDelivering) != VerdictCommitted || ReaderVerdict(ReaderUndecided) != VerdictUnknown {
		t.Error("reader verdicts")
	}
}
