package handoff

import (
	"slices"
	"testing"
	"time"
)

// A repeat of a promise prolongs it, and takes no more.
func TestARepeatedPromiseLastsLonger(t *testing.T) {
	c, a := Capacity{Total: 4}, testPlan(1, 1).Attempt
	at := func(d time.Duration) Instant { return Instant(0) + Instant(d) }
	for _, now := range []time.Duration{0, 500 * time.Millisecond} {
		if err := c.Reserve(at(now), a, 2, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if c.Expire(at(1200 * time.Millisecond)); c.Free() != 2 {
		t.Errorf("%d blocks are free while the repeat's lease lasts", c.Free())
	}
	if c.Expire(at(1600 * time.Millisecond)); c.Free() != 4 {
		t.Errorf("%d blocks are free after it", c.Free())
	}
}

// What an operator replaces is fenced like what failed, once.
func TestAReplacedAttemptIsFenced(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	c.Commands()
	if !c.Replace("moved") || c.Phase() != PhaseFencing {
		t.Fatalf("it is %v", c.Phase())
	}
	undo := false
	for _, cmd := range c.Commands() {
		undo = undo || cmd.Step == StepUndoTransfer
	}
	if !undo {
		t.Error("nothing is undone")
	}
	if c.Replace("again") {
		t.Error("replaced twice")
	}
}

// What ended makes room by itself, in the order of its attempts; a rebuild adds to
// what is promised and takes nothing that its daemon does not know.
func TestTheLedgerExpiresInOrderAndARebuildKeepsTheRest(t *testing.T) {
	c := Capacity{Total: 8}
	var as []Attempt
	for n := range Nonce(8) {
		as = append(as, testPlan(1, n+1).Attempt)
		if err := c.Reserve(0, as[n], 1, 10); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Expire(10); !slices.Equal(got, as) {
		t.Errorf("ended: %v", got)
	}
	for i, a := range as[:2] { // the first one's lease has ended when the second asks
		if err := c.Reserve(Instant(20+20*i), a, 8, 10); err != nil {
			t.Errorf("what ended takes room: %v", err)
		}
	}
	c.Rebuild(41, map[Attempt]uint32{as[0]: 2}, 10)
	if c.Used() != 10 {
		t.Errorf("%d blocks are used: a promise is gone of which the daemon knows nothing yet", c.Used())
	}
}

// A lease ends at its end, the earliest first, and a renewed one at its new end.
func TestLeasesEndInTheirOrderAtTheirEnd(t *testing.T) {
	td, tp := NewTargets("d0", 1), NewSources("p", 1)
	ends := []Instant{5, 2, 4, 1, 3}
	at := func(i int) Plan {
		p := testPlan(1, 1)
		p.Attempt.Handoff = HandoffID([]string{"a", "b", "c", "d", "e"}[i])
		return p
	}
	for i, end := range ends {
		p, lease := at(i), end*time.Second
		if td.Step(0, TargetInput{Event: TargetOpen, Attempt: p.Attempt, D: p.D, Plan: &p, Shape: &stageShape, Lease: lease}).Err() != nil ||
			tp.Step(0, SourceInput{Event: SourceOpen, Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape, Lease: lease}).Err() != nil {
			t.Fatal("not opened")
		}
	}
	last := at(0).Attempt // which is renewed past its end
	td.Step(4*time.Second, TargetInput{Event: TargetRenew, Attempt: last, Lease: 3 * time.Second})
	tp.Step(4*time.Second, SourceInput{Event: SourceRenew, Attempt: last, Grant: tp.Get(last).Grant, Lease: 3 * time.Second})
	for now := time.Second; now <= 7*time.Second; now += time.Second {
		var want []Attempt
		for i, end := range ends {
			if i > 0 && end*time.Second == now || i == 0 && now == 7*time.Second {
				want = append(want, at(i).Attempt)
			}
		}
		if early := append(td.Tick(now-1), tp.Tick(now-1)...); len(early) > 0 {
			t.Errorf("before %s: %v", now, early)
		}
		if next, ok := td.NextTick(); len(want) > 0 && (!ok || next > now) {
			t.Errorf("next of targets: %s, %v", next, ok)
		}
		if got := td.Tick(now); !slices.Equal(got, want) {
			t.Errorf("targets at %s: %v, want %v", now, got, want)
		}
		if got := tp.Tick(now); !slices.Equal(got, want) {
			t.Errorf("sources at %s: %v, want %v", now, got, want)
		}
	}
	if _, ok := tp.NextTick(); ok {
		t.Error("a lease runs of what is over")
	}
}

// The decode lease begins at the commit and once (rule 14).
func TestTheDecodeLeaseBeginsAtTheCommit(t *testing.T) {
	td, p := NewTargets("d0", 1), testPlan(1, 1)
	tok := openTarget(t, td, p)
	step := func(now Instant, in TargetInput) {
		t.Helper()
		in.Attempt, in.Token, in.D = p.Attempt, tok, p.D
		if ans := td.Step(now, in); ans.Err() != nil {
			t.Fatal(in.Event, ans.Err())
		}
	}
	m := manifestOf(p.Attempt)
	step(0, TargetInput{Event: TargetPost, Count: 2})
	step(0, TargetInput{Event: TargetLand, Count: 2})
	step(0, TargetInput{Event: TargetVerify, Manifest: m})
	step(0, TargetInput{Event: TargetAsk, Question: 1, Grant: 1})
	step(0, TargetInput{Event: TargetYes, Question: 1, Grant: 1, Manifest: m})
	step(LeaseDefault-1, TargetInput{Event: TargetCommit, Lease: 2 * LeaseDefault})
	end := 3*LeaseDefault - 1
	step(2*LeaseDefault, TargetInput{Event: TargetCommit, Lease: 2 * LeaseDefault}) // a repeat renews nothing
	if got := td.Tick(end - 1); len(got) > 0 {
		t.Errorf("ended early: %v", got)
	}
	if got := td.Tick(end); len(got) != 1 || td.Get(p.Attempt).State != TargetAborted {
		t.Errorf("at its end: %v", got)
	}
}

// What a restarted TD adopted counts as seen, and is named by the life that committed it.
func TestAnAdoptedTargetIsSeenAndNamedByItsOwnLife(t *testing.T) {
	td, p := NewTargets("d0", 2), testPlan(2, 2)
	td.Adopt(0, Adopted{Plan: p, Generation: 7})
	older := testPlan(1, 1)
	older.D.Incarnation = 2
	if ans := td.Step(0, TargetInput{Event: TargetOpen, Attempt: older.Attempt, D: older.D, Plan: &older, Shape: &stageShape}); ans.Code != CodeStaleEpoch {
		t.Errorf("a lower epoch is opened beside it: %v", ans.Err())
	}
	for _, d := range []Seat{{"ed", "d0", 2}, {"ed", "d1", 1}} {
		if ans := td.Step(0, TargetInput{Event: TargetUndo, Attempt: p.Attempt, D: d}); ans.Code != CodeStaleIncarnation {
			t.Errorf("named by %+v: %+v", d, ans)
		}
	}
	if ans := td.Step(0, TargetInput{Event: TargetUndo, Attempt: p.Attempt, D: p.D}); ans.State != TargetCommitted || ans.Err() != nil {
		t.Errorf("named by its own life: %+v", ans)
	}
}

// Why something is over is kept, whoever ended it, and the first reason stays.
func TestTheFirstCauseOfAnEndIsKept(t *testing.T) {
	ends := map[TargetEvent]Code{TargetExpire: CodeLease, TargetSupersede: CodeStaleEpoch, TargetNo: CodeNotValidated, TargetRelease: CodeCancelled, TargetAbandon: CodeProgress, TargetUndo: CodeNone}
	for e, want := range ends {
		td, p := NewTargets("d0", 1), testPlan(1, 1)
		tok := openTarget(t, td, p)
		for _, e := range []TargetEvent{e, TargetRelease} {
			td.Step(0, TargetInput{Event: e, Attempt: p.Attempt, D: p.D, Token: tok, Cause: CodeProgress})
		}
		if r := td.Get(p.Attempt); r.State != TargetClosed || r.Cause != want {
			t.Errorf("target %s: %s because of %s", e, r.State, r.Cause)
		}
	}
	for e, want := range map[SourceEvent]Code{SourceExpire: CodeLease, SourceRelease: CodeCancelled, SourcePreempt: CodeEngine, SourceUndo: CodeNone, SourceFinish: CodeNone} {
		tp, p := NewSources("p", 1), testPlan(1, 1)
		g := tp.Step(0, SourceInput{Event: SourceOpen, Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape}).Grant
		for _, e := range []SourceEvent{e, SourceRelease} {
			tp.Step(0, SourceInput{Event: e, Attempt: p.Attempt, P: p.P, Grant: g, Cause: CodeEngine})
		}
		if r := tp.Get(p.Attempt); r.State != SourceClosed || r.Cause != want {
			t.Errorf("source %s: %s because of %s", e, r.State, r.Cause)
		}
	}
	td, tp, p := NewTargets("d0", 1), NewSources("p", 1), testPlan(1, 1) // tombstones have one too
	td.Step(0, TargetInput{Event: TargetRelease, Attempt: p.Attempt, D: p.D})
	tp.Step(0, SourceInput{Event: SourceRelease, Attempt: p.Attempt, P: p.P})
	if td.Get(p.Attempt).Cause != CodeCancelled || tp.Get(p.Attempt).Cause != CodeCancelled {
		t.Error("a tombstone does not say why")
	}
}

// A holder that reads by itself said that it stopped, and came back: it pins until
// it says so again (rule 10).
func TestAHolderThatCameBackPinsAgain(t *testing.T) {
	tp, p := NewSources("p", 1), testPlan(1, 1)
	open := tp.Step(0, SourceInput{Event: SourceOpen, Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape, Lane: LaneLocal})
	step := func(e SourceEvent) {
		t.Helper()
		if ans := tp.Step(0, SourceInput{Event: e, Attempt: p.Attempt, P: p.P, Grant: open.Grant}); ans.Err() != nil {
			t.Fatal(e, ans.Err())
		}
	}
	step(SourceAnnounce)
	step(SourceRead)
	step(SourceDestroy)
	step(SourceRead)
	step(SourceReadDone)
	step(SourceRelease)
	if CodeOf(tp.Free(p.Attempt)) != CodeNotReady {
		t.Fatal("freed though its holder can start another read")
	}
	if tp.Forget(p.Attempt) {
		t.Fatal("forgotten while it pins")
	}
	step(SourceFinish)
	if err := tp.Free(p.Attempt); err != nil {
		t.Fatal(err)
	}
	if r := tp.Get(p.Attempt); r.Announced != nil || r.Digests != nil || r.Shape.Groups != nil || tp.Live() != 0 || tp.Freed() != 1 {
		t.Errorf("a freed source holds %+v", r)
	}
	if err := tp.Free(p.Attempt); err != nil || tp.Freed() != 1 {
		t.Errorf("freed twice: %v, %d", err, tp.Freed())
	}
	if !tp.Forget(p.Attempt) || tp.Freed() != 0 || tp.Get(p.Attempt) != nil {
		t.Error("never forgotten")
	}
}

// A piece whose digest differs is read again: nothing else of the pull is lost.
func TestOnlyTheBadPieceIsReadAgain(t *testing.T) {
	td, p := NewTargets("d0", 1), testPlan(1, 1)
	tok := openTarget(t, td, p)
	step := func(e TargetEvent, piece, n uint32) {
		t.Helper()
		if ans := td.Step(0, TargetInput{Event: e, Attempt: p.Attempt, Token: tok, Piece: piece, Count: n}); ans.Err() != nil {
			t.Fatal(e, ans.Err())
		}
	}
	step(TargetPost, 0, 2)
	step(TargetLand, 0, 2)
	for range 2 { // a repeat takes nothing more back
		step(TargetMisverify, 1, 0)
	}
	if r := td.Get(p.Attempt); r.State != TargetRunning || r.Left != 1 || !r.HasLanded(0) || r.HasLanded(1) {
		t.Fatalf("%+v", r)
	}
	if ans := td.Step(0, TargetInput{Event: TargetMisverify, Attempt: p.Attempt, Piece: 2}); ans.Code != CodeInvalid {
		t.Errorf("a piece that there is not: %+v", ans)
	}
	step(TargetPost, 1, 1)
	step(TargetLand, 1, 1)
	if r := td.Get(p.Attempt); r.State != TargetLanded {
		t.Errorf("%+v", r)
	}
}

// An attempt that was committed and given up by its reader is for no key: a cancel
// before the next plan ends as never committed.
func TestACancelAfterTheReaderGaveACommitUpFreesTheKey(t *testing.T) {
	c := decoding(t)
	c.StreamLost(c.Reader(), CodeEngine, "D died")
	if c.Cancel(); c.Outcome().Committed || c.Outcome().Code != CodeCancelled {
		t.Errorf("%+v", c.Outcome())
	}
}

// A commit that was adopted by an earlier fence is no answer to the next one: TD is
// asked again, since history names a reader that did not answer yet.
func TestAnAdoptedCommitIsNoAnswerToTheNextFence(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	a := c.Plan().Attempt
	c.Step(Result{Step: StepTransfer, Attempt: a, Code: CodeUnavailable})
	c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictCommitted})
	c.Step(Result{Step: StepUndoPrefill, Attempt: a, Verdict: VerdictOver})
	c.StreamLost(c.Reader(), CodeEngine, "")
	c.NameReader(Reader{"g1", 1, 2})
	next := testPlan(2, 2)
	c.Step(Result{Step: StepPlace, Attempt: a, Next: &next})
	c.Step(Result{Step: StepAskReader, Attempt: a, Verdict: VerdictUnknown, Reader: c.Reader()})
	if c.Phase() != PhaseFencing {
		t.Fatalf("%s before TD answered", c.Phase())
	}
	c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictCommitted})
	if c.Phase() != PhaseDecoding {
		t.Errorf("%s: TD says that it is committed", c.Phase())
	}
}

// What TD says of an attempt that is over is enough to know that it was committed,
// and so is what the commit was told.
func TestWhateverSaysCommittedSticks(t *testing.T) {
	for name, say := range map[string]struct {
		commit Code
		target Verdict
	}{"TD": {CodeUnavailable, VerdictOver}, "the commit": {CodeAborted, VerdictUnknown}} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		answers(c, func(cmd Command) Result {
			r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
			switch cmd.Step {
			case StepCommit:
				r.Code = say.commit
			case StepUndoTransfer:
				r.Verdict = say.target
			case StepUndoPrefill, StepAskReader:
				r.Verdict = VerdictUnknown
			}
			return r
		})
		if o := c.Outcome(); o == nil || !o.Committed {
			t.Errorf("%s says so: %+v", name, o)
		}
	}
}

// A reset run plans nothing; if its reader delivers, the key is spent (rule 13).
func TestAResetRunWhoseReaderDeliversEndsAsCommitted(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	answers(c, func(cmd Command) Result {
		r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
		switch cmd.Step {
		case StepReserve:
			r.Code = CodeReset
		case StepUndoTransfer, StepUndoPrefill:
			r.Verdict = VerdictUnknown
		case StepAskReader:
			r.Verdict, r.Reader = VerdictCommitted, c.Reader()
		case StepPlace:
			t.Error("a reset run plans")
		}
		return r
	})
	if o := c.Outcome(); o == nil || !o.Committed || o.Code != CodeReset || !c.Ended() {
		t.Errorf("%+v, %s", o, c.Phase())
	}
}

// A commit that a cancel met on its way is known by what the release found (rule 18).
func TestACancelThatCameAfterTheCommitSaysSo(t *testing.T) {
	for verdict, committed := range map[Verdict]bool{VerdictOver: true, VerdictCommitted: true, VerdictClosed: false, VerdictUnknown: false} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		a := c.Plan().Attempt
		for _, s := range []Step{StepReserve, StepPrefill, StepTransfer} {
			c.Step(Result{Step: s, Attempt: a})
		}
		c.Cancel()
		c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: verdict})
		if o := c.Outcome(); o.Committed != committed || o.Code != CodeCancelled {
			t.Errorf("the release found %s: %+v", verdict, o)
		}
	}
}

// A stream that cannot resume leaves nothing: all of its attempt is released.
func TestAStreamThatCannotResumeIsReleased(t *testing.T) {
	c := decoding(t)
	c.StreamResumes(c.Reader(), CodeEngine, "D died")
	answers(c, func(cmd Command) Result {
		r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
		if cmd.Step == StepPlace {
			r.Code = CodeCapacity
		}
		return r
	})
	if !c.Ended() {
		t.Fatal(c.Phase())
	}
	c = decoding(t)
	c.StreamResumes(c.Reader(), CodeEngine, "D died")
	c.Commands()
	c.Step(Result{Step: StepPlace, Attempt: c.Plan().Attempt, Code: CodeCapacity})
	var released []Step
	for _, cmd := range c.Commands() {
		if cmd.Hard {
			released = append(released, cmd.Step)
		}
	}
	if !slices.Equal(released, []Step{StepUndoTransfer, StepUndoPrefill, StepUndoReserve}) {
		t.Errorf("released: %v", released)
	}
}

// One closer's proof is enough, TP's as well as TD's (rule 5b).
func TestPsWordAloneProvesAnAttemptClosed(t *testing.T) {
	for source, want := range map[Verdict]Phase{VerdictClosed: PhasePlacing, VerdictOver: PhaseFencing} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		a := c.Plan().Attempt
		c.Step(Result{Step: StepTransfer, Attempt: a, Code: CodeUnavailable})
		c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictUnknown})
		if c.Step(Result{Step: StepUndoPrefill, Attempt: a, Verdict: source}); c.Phase() != want {
			t.Errorf("TP says %s: %s", source, c.Phase())
		}
	}
}

// Tables are listed in the order of their attempts, and a ledger that knew nothing
// takes over what a daemon has.
func TestListsAreInOrderAndAFreshLedgerIsRebuilt(t *testing.T) {
	td, tp, c := NewTargets("d0", 1), NewSources("p", 1), Capacity{Total: 64}
	held := map[Attempt]uint32{}
	var want, targets, sources []Attempt
	for n := range Nonce(32) {
		a := testPlan(1, n+1).Attempt
		td.Step(0, TargetInput{Event: TargetUndo, Attempt: a, D: testPlan(1, 1).D})
		tp.Step(0, SourceInput{Event: SourceUndo, Attempt: a, P: testPlan(1, 1).P})
		want, held[a] = append(want, a), 1
	}
	for _, r := range td.All() {
		targets = append(targets, r.Plan.Attempt)
	}
	for _, r := range tp.All() {
		sources = append(sources, r.Plan.Attempt)
	}
	if !slices.Equal(targets, want) || !slices.Equal(sources, want) {
		t.Errorf("targets %v\nsources %v", targets, sources)
	}
	if c.Rebuild(0, held, 10); c.Used() != 32 || len(c.Expire(10)) != 32 {
		t.Errorf("%d blocks are used", c.Used())
	}
}

// One generation reads under one grant, the first that an operation names (rule 11).
func TestOneGenerationReadsUnderOneGrant(t *testing.T) {
	td, p := NewTargets("d0", 1), testPlan(1, 1)
	tok := openTarget(t, td, p)
	for i, x := range []struct {
		grant GrantID
		want  Code
	}{{0, CodeNone}, {3, CodeNone}, {4, CodeConflict}, {3, CodeNone}, {0, CodeNone}} {
		if ans := td.Step(0, TargetInput{Event: TargetPost, Attempt: p.Attempt, Token: tok, Grant: x.grant}); ans.Code != x.want {
			t.Errorf("post %d under grant %d: %v, want %s", i, x.grant, ans.Err(), x.want)
		}
	}
	if r := td.Get(p.Attempt); r.Grant != 3 || r.Posted != 4 {
		t.Errorf("%d posted under grant %d", r.Posted, r.Grant)
	}
}

// Where the workflow records the handoff alone, the commit ends it: nothing of the
// decode is awaited, and nothing is undone.
func TestADetachedHandoffEndsAtItsCommit(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{Detach: true})
	answers(c, func(cmd Command) Result {
		switch cmd.Step {
		case StepReserve, StepPrefill, StepTransfer, StepCommit:
		default:
			t.Errorf("%s of what decodes", cmd.Step)
		}
		return Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
	})
	if o := c.Outcome(); !c.Ended() || o.Code != CodeNone || !o.Committed || !o.Sticks() {
		t.Errorf("%s %+v", c.Phase(), o)
	}
}

// Only a plan without a refusal beside it is another placement.
func TestAPlacementWithoutAPlanOrWithARefusalIsNone(t *testing.T) {
	next := testPlan(2, 2)
	for name, r := range map[string]Result{"no plan": {}, "a refusal with a plan": {Code: CodeCapacity, Next: &next}} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		r.Step, r.Attempt = StepPlace, c.Plan().Attempt
		c.Step(Result{Step: StepReserve, Attempt: r.Attempt, Code: CodeEngine})
		c.Step(Result{Step: StepUndoTransfer, Attempt: r.Attempt, Verdict: VerdictClosed})
		c.Step(r)
		if o := c.Outcome(); o == nil || o.Code != CodeEngine || c.Plan().Attempt.Epoch != 1 {
			t.Errorf("%s: %+v in epoch %d", name, o, c.Plan().Attempt.Epoch)
		}
	}
}
