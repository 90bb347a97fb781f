package handoff

import "fmt"

// Invariant is one named promise. Check gives "" where it holds; where it is
// nil, Checker says what proves the promise instead.
type Invariant struct {
	ID        string
	Statement string
	Check     func(*World) string
	Checker   string
}

// Invariants are S1–S18 and L1–L8. The same names stand in code, tests, model
// and reports.
var Invariants = []Invariant{
	{"S1", "epoch purity: what a decode of (r, e) reads was produced by the prefill of (r, e), at D for (r, e), or is a prefix of the same tenant, salt, layout and tokens", checkPurity, "explorer; on real bytes the reference engine, whose KV depends on (r, e)"},
	{"S2", "one owner: of the attempts visible at engines all but one are given up by their reader; after the first token it never changes; what was answered closed or planned after a cancel never becomes visible", checkOwner, "explorer; porcupine on real histories"},
	{"S3", "epochs only grow: no operation acts on an uncommitted attempt below the highest epoch seen", checkEpochs, "explorer; trace validator"},
	{"S4", "stale writer harmless: an operation changes a slot only while the slot's generation is its own", checkWrites, "explorer; poisoned blocks in chaos runs"},
	{"S5", "readers pin: while TP's incarnation lives, memory is not given back under a grant that is neither drained nor hard-fenced", checkReaders, "explorer; pins against reuse in chaos runs"},
	{"S6", "no half-visible state: visible only after every piece landed and was verified; nothing un-lands; an abort ends visibility, an undo never does", checkWhole, "explorer; trace validator"},
	{"S7", "manifest equality: sealed = verified", checkManifest, "explorer; layout and shape tests for refusal before the first byte"},
	{"S8", "released once: Σ live + free = capacity", checkLedger, "ledger explorer; ledgertest suite"},
	{"S9", "clean at rest: nothing is held when no workflow is open and no decode lives", checkRest, "explorer (AG EF clean); leak-failing TestMain"},
	{"S10", "one sampling run: the client's tokens are a prefix of one run, each position once", checkTokens, "explorer; token prefix checker"},
	{"S11", "exact boundary: positions with committed KV = computed tokens of the decode", nil, "engine conformance tests: logits equal to the baseline's"},
	{"S12", "honest path: direct only if all that KV came by the handoff", nil, "usage counters compared with the engines' own in chaos runs"},
	{"S13", "idempotent submit: same key and body, same workflow and stream; other body refused; no key is free whose client has tokens", checkKey, "explorer; ledgertest suite; porcupine on submit histories"},
	{"S14", "fail closed: an unknown or failed receive gives no token of that epoch", checkAnswers, "explorer; chaos matrix"},
	{"S15", "least privilege: bytes leave P only under a capability naming handoff, epoch, ranges, direction, holder, expiry", nil, "contracts/capability tests; wire fuzzing"},
	{"S16", "tenant wall: a block passes between tenants only zeroed; a prefix hit never crosses a salt", nil, "reference engine with poisoned blocks; prefix tests"},
	{"S17", "bounded: every table, queue and message has a limit and refuses over it", checkBounds, "limit tests; fuzzers with bounded allocation"},
	{"S18", "replay: every stored history replays on current code", nil, "workflow replay tests"},
	{"L1", "every accepted request ends: whole stream or explicit error (deadline + 2 s)", nil, "explorer (AG EF clean, untimed); chaos traffic"},
	{"L2", "reclaim when the holder is gone: cancel 250 ms p99, death 1 s, silence lease + 1 s", nil, "explorer (untimed); chaos reclaim times by cause"},
	{"L3", "goodput ≥ 95 % of before within 10 s after heal", nil, "chaos traffic"},
	{"L4", "every undo succeeds or is parked visibly with an alert (10 min)", nil, "unwind tests; coordinator awaits every result"},
	{"L5", "revoke → drained, else hard fence (2 s)", nil, "transferd drain tests"},
	{"L6", "bytes moved after a cancel reached TD: one slice a rail", nil, "transferd cancel tests"},
	{"L7", "one stuck peer delays no other pair (p99 TTFT + 10 %)", nil, "chaos: paused peer"},
	{"L8", "Temporal or Redis away: decodes and posted transfers go on, new requests refused with a typed error (1 s)", nil, "chaos: control plane down"},
}

// Violations runs every check and names what does not hold.
func Violations(w *World) []string {
	var out []string
	for _, inv := range Invariants {
		if inv.Check == nil {
			continue
		}
		if s := inv.Check(w); s != "" {
			out = append(out, inv.ID+": "+s)
		}
	}
	return out
}

func checkPurity(w *World) string {
	for i := range w.Visible {
		v := &w.Visible[i]
		for p, got := range v.Pieces {
			if got != v.Want {
				return fmt.Sprintf("piece %d of %s visible at %s is of origin %d, want %d", p, v.Attempt, v.Node, got, v.Want)
			}
		}
	}
	return ""
}

func checkKey(w *World) string {
	if w.KeyFree && len(w.Tokens) > 0 {
		return "the key is free though the client has tokens"
	}
	return ""
}

func checkOwner(w *World) string {
	var owner *VisibleTarget
	for i := range w.Visible {
		v := &w.Visible[i]
		switch {
		case v.Refused:
			return fmt.Sprintf("%s is visible at %s after it was answered closed", v.Attempt, v.Node)
		case v.Late:
			return fmt.Sprintf("%s is visible at %s and was planned after the cancel", v.Attempt, v.Node)
		case v.GivenUp:
			continue
		case owner != nil:
			return fmt.Sprintf("two owners: %s at %s and %s at %s", owner.Attempt, owner.Node, v.Attempt, v.Node)
		}
		owner = v
		for _, d := range w.Tokens {
			if d.Attempt != v.Attempt {
				return fmt.Sprintf("%s is visible at %s after the client had a token of %s", v.Attempt, v.Node, d.Attempt)
			}
		}
	}
	return ""
}

func checkEpochs(w *World) string {
	for _, t := range w.Targets {
		if t.State.Live() && t.State != TargetCommitted && t.Attempt.Epoch < t.Highest {
			return fmt.Sprintf("%s is %s at %s, which has seen epoch %d", t.Attempt, t.State, t.Node, t.Highest)
		}
	}
	return ""
}

func checkWrites(w *World) string {
	for _, x := range w.Writes {
		if !x.Current {
			return fmt.Sprintf("an operation of %s wrote memory of another tenancy", x.Attempt)
		}
	}
	return ""
}

func checkReaders(w *World) string {
	for _, f := range w.Frees {
		if f.Readers > 0 {
			return fmt.Sprintf("the source of %s was freed under %d reads", f.Attempt, f.Readers)
		}
	}
	for _, r := range w.Reads {
		if r.Gone {
			return fmt.Sprintf("a read of %s was posted on memory given back", r.Attempt)
		}
	}
	return ""
}

func checkWhole(w *World) string {
	for i := range w.Visible {
		v := &w.Visible[i]
		if !v.Verified {
			return fmt.Sprintf("%s is visible at %s and not verified", v.Attempt, v.Node)
		}
		for p, got := range v.Pieces {
			if got == 0 {
				return fmt.Sprintf("%s is visible at %s without piece %d", v.Attempt, v.Node, p)
			}
		}
	}
	for _, a := range w.Undone {
		return fmt.Sprintf("an undo took the commit of %s back", a)
	}
	for _, t := range w.Targets {
		if t.State >= TargetLanded && t.State <= TargetCommitted && (t.Left > 0 || t.Posted > 0) {
			return fmt.Sprintf("%s is %s with %d pieces missing and %d posted", t.Attempt, t.State, t.Left, t.Posted)
		}
	}
	return ""
}

func checkManifest(w *World) string {
	for i := range w.Visible {
		if v := &w.Visible[i]; !v.Sealed.IsZero() && v.Sealed != v.Checked {
			return fmt.Sprintf("%s: sealed %s, verified %s", v.Attempt, v.Sealed, v.Checked)
		}
	}
	return ""
}

func checkLedger(w *World) string {
	for _, l := range w.Ledgers {
		if free := l.Total - min(l.Used, l.Total); l.Free != free { // a rebuild may find more in use than the whole
			return fmt.Sprintf("%d used + %d free of %d", l.Used, l.Free, l.Total)
		}
	}
	return ""
}

func checkRest(w *World) string {
	if w.Rest && w.Held > 0 {
		return fmt.Sprintf("%d resources are held at rest", w.Held)
	}
	return ""
}

func checkTokens(w *World) string {
	for i, d := range w.Tokens {
		if d.Attempt != w.Tokens[0].Attempt {
			return fmt.Sprintf("the client has tokens of %s and %s", w.Tokens[0].Attempt, d.Attempt)
		}
		if d.Position != uint32(i) {
			return fmt.Sprintf("the client got position %d where %d was due", d.Position, i)
		}
	}
	return ""
}

func checkAnswers(w *World) string {
	for _, a := range w.Answers {
		if a.Committed && a.State != TargetCommitted {
			return fmt.Sprintf("%s was answered committed while it is %s", a.Attempt, a.State)
		}
	}
	return ""
}

func checkBounds(w *World) string {
	if len(w.Targets) > MaxTargets+MaxTombstones || len(w.Sources) > MaxSources+MaxTombstones {
		return fmt.Sprintf("%d targets and %d sources", len(w.Targets), len(w.Sources))
	}
	return ""
}
