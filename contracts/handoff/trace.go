package handoff

import (
	"cmp"
	"fmt"
)

// TraceEvent is one accepted or refused event of a machine, as a daemon emits
// it. Names are those of String: a trace can be kept as text. Events that change
// no state may be left out. From may be empty for what a Step did not do itself
// (a Tick's expire, whose Code is the cause of its move); a target that a higher epoch's
// open superseded needs no event of its own.
type TraceEvent struct {
	Node        NodeID
	Incarnation Incarnation
	Machine     string // target or source
	Attempt     Attempt
	Event       string // of the table; adopt for a target taken over at a restart
	From, To    string
	Code        string // none or empty when accepted
}

// Events besides those of the tables.
const (
	TraceAdopt  = "adopt"  // a restarted TD takes a visible target over
	TraceForget = "forget" // a final record is dropped
)

// Traced describes one Step of t: from is the state before it.
func (t *Targets) Traced(in TargetInput, from TargetState, ans TargetAnswer) TraceEvent {
	return TraceEvent{t.Node, t.Incarnation, "target", in.Attempt, in.Event.String(), from.String(), ans.State.String(), ans.Code.String()}
}

// Traced describes one Step of t: from is the state before it.
func (t *Sources) Traced(in SourceInput, from SourceState, ans SourceAnswer) TraceEvent {
	return TraceEvent{t.Node, t.Incarnation, "source", in.Attempt, in.Event.String(), from.String(), ans.State.String(), ans.Code.String()}
}

// Trace validates what one or several daemons did: whether each attempt's events
// are a path of the transition tables, and whether S3 and S6 hold along it. The
// zero value is ready.
type Trace struct {
	at      map[traceKey]string
	highest map[traceLife]Epoch
}

type traceLife struct {
	node        NodeID
	incarnation Incarnation
	handoff     HandoffID
}

type traceKey struct {
	traceLife
	machine string
	attempt Attempt
}

// Add takes the next event; the error names why it cannot have happened.
func (t *Trace) Add(e TraceEvent) error {
	if t.at == nil {
		t.at, t.highest = map[traceKey]string{}, map[traceLife]Epoch{}
	}
	life := traceLife{e.Node, e.Incarnation, e.Attempt.Handoff}
	k := traceKey{life, e.Machine, e.Attempt}
	if e.Machine == "engine" || e.To == "" {
		return nil // news that claims no state
	}
	was, known := t.at[k]
	if !known {
		was = "unknown"
	}
	if e.From == "" {
		e.From = was
	}
	if e.Event == TargetExpire.String() && e.To != e.From {
		e.Code = "" // the cause of an expiry that a Tick did, no refusal
	}
	if e.Event == TargetSupersede.String() && e.To == was {
		e.From = was // told after its open had been
	}
	fail := func(format string, args ...any) error {
		return Errorf(CodeInternal, "%s %s at %s.i%d: %s %s -> %s %s: %s", e.Machine, e.Attempt, e.Node, e.Incarnation,
			e.Event, e.From, e.To, e.Code, fmt.Sprintf(format, args...))
	}
	if e.From != was {
		return fail("it was %s", was)
	}
	code := CodeNone
	if e.Code != "" {
		if code = ParseCode(e.Code); code.String() != e.Code {
			return fail("not a code")
		}
	}
	var reason string
	switch {
	case e.Event == TraceForget:
		if e.To != "unknown" || e.From != "closed" && e.From != "aborted" {
			reason = "only a final record is forgotten"
		}
	case e.Machine == "target" && e.Event == TraceAdopt:
		if known || code != CodeNone || e.To != TargetCommitted.String() {
			reason = "only an unknown target is adopted, as committed"
		}
	case e.Machine == "target":
		reason = targetPath(e.Event, e.From, e.To, code)
	case e.Machine == "source":
		reason = sourcePath(e.Event, e.From, e.To, code)
	default:
		reason = "no such machine"
	}
	if reason != "" {
		return fail("%s", reason)
	}
	if e.Machine == "target" && code == CodeNone && e.From != e.To {
		if reason := t.epochs(life, e); reason != "" {
			return fail("%s", reason)
		}
	}
	t.at[k] = e.To
	return nil
}

// epochs checks S3 on accepted moves of a target.
func (t *Trace) epochs(life traceLife, e TraceEvent) string {
	switch e.Event {
	case TargetOpen.String(), TraceAdopt:
		if e.Attempt.Epoch < t.highest[life] && e.Event != TraceAdopt {
			return "S3: a higher epoch was opened before"
		}
		t.highest[life] = max(t.highest[life], e.Attempt.Epoch)
		t.supersede(life, e.Attempt.Epoch)
	case TargetPost.String(), TargetVerify.String(), TargetYes.String(), TargetCommit.String():
		if e.Attempt.Epoch < t.highest[life] {
			return "S3: a higher epoch was opened before"
		}
	}
	return ""
}

// supersede closes what an open of epoch e closed at the same daemon (rule 6).
func (t *Trace) supersede(life traceLife, e Epoch) {
	for k, s := range t.at {
		if k.traceLife == life && k.machine == "target" && k.attempt.Epoch < e && s != "committed" && s != "aborted" && s != "unknown" {
			t.at[k] = TargetClosed.String()
		}
	}
}

// Final says whether every attempt in the trace has ended, and gives the first
// that has not: for a run that should be at rest (S9).
func (t *Trace) Final() (attempt Attempt, state string, ok bool) {
	var first traceKey
	ok = true
	for k, s := range t.at {
		if s == "closed" || s == "aborted" || s == "unknown" {
			continue
		}
		if ok || k.before(first) {
			first, state, ok = k, s, false
		}
	}
	return first.attempt, state, ok
}

// before orders keys: by attempt, machine, then the daemon's life.
func (k traceKey) before(o traceKey) bool {
	return cmp.Or(k.attempt.Compare(o.attempt), cmp.Compare(k.machine, o.machine), cmp.Compare(k.node, o.node), cmp.Compare(k.incarnation, o.incarnation)) < 0
}

func targetPath(event, from, to string, code Code) string {
	for e := range targetEvents {
		for s := range targetStates {
			if e.String() == event && s.String() == from {
				return path(targetTable[e][s], s, to, code, guardCodes(e.String()), e == TargetLand || e == TargetFail || e == TargetDestroy)
			}
		}
	}
	return "no such event or state"
}

func sourcePath(event, from, to string, code Code) string {
	for e := range sourceEvents {
		for s := range sourceStates {
			if e.String() == event && s.String() == from {
				return path(sourceTable[e][s], s, to, code, guardCodes(e.String()), false)
			}
		}
	}
	return "no such event or state"
}

// path says why an event cannot lead from s to the state named to with code.
func path[S interface {
	comparable
	String() string
}](c cell[S], s S, to string, code Code, guards []Code, settles bool) string {
	switch {
	case code != CodeNone && to != s.String():
		return "a refused event moves nothing"
	case code != CodeNone:
		for _, g := range guards {
			if code == g {
				return ""
			}
		}
		if code != c.code {
			return "this event is not refused so"
		}
		return ""
	case c.code != CodeNone:
		return "this event is refused here"
	case to == c.to.String():
		return ""
	case settles && s.String() == TargetRunning.String() && to == TargetLanded.String():
		return "" // the last posted operation ended
	}
	return "the table leads to " + c.to.String()
}

// guardCodes are the refusals that a guard may give in any state.
func guardCodes(event string) []Code {
	switch event {
	case "open":
		return []Code{CodeStaleIncarnation, CodeStaleEpoch, CodeConflict, CodeCapacity, CodeInvalid, CodeTooLarge}
	case "undo", "release":
		return []Code{CodeStaleIncarnation, CodeCapacity}
	case "expire", "supersede", "preempt", "finish", "abandon":
		return []Code{CodeStaleToken, CodeNotReady}
	}
	return []Code{CodeStaleIncarnation, CodeStaleToken, CodeStaleEpoch, CodeConflict, CodeInvalid, CodeIntegrity, CodeNotReady, CodeInternal}
}
