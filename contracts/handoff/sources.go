package handoff

import (
	"slices"
	"time"
)

// Sources is TP's side of the protocol: every attempt whose prefill's state lies
// in this daemon's memory. Not safe for concurrent use. NewSources.
type Sources struct {
	Node        NodeID
	Incarnation Incarnation
	Lease       time.Duration
	Omit        Omitted // only the explorer sets it

	records map[Attempt]*Source
	grant   GrantID
	leases  leaseHeap
}

// NewSources begins a new incarnation of TP with an empty table.
func NewSources(node NodeID, i Incarnation) *Sources {
	return &Sources{Node: node, Incarnation: i, Lease: LeaseDefault, records: map[Attempt]*Source{}}
}

// Get gives the record of a, nil when unknown.
func (t *Sources) Get(a Attempt) *Source { return t.records[a] }

// All gives the records in the order of their attempts.
func (t *Sources) All() []*Source {
	out := make([]*Source, 0, len(t.records))
	for _, r := range t.records {
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y *Source) int { return x.Plan.Attempt.Compare(y.Plan.Attempt) })
	return out
}

// Step performs one event and answers the present state.
func (t *Sources) Step(now Instant, in SourceInput) SourceAnswer {
	r := t.records[in.Attempt]
	state := SourceUnknown
	if r != nil {
		state = r.State
	}
	if code, detail := t.guard(r, in); code != CodeNone {
		return t.answer(r, code, detail, false)
	}
	c := sourceTable[in.Event][state]
	switch {
	case !c.ok:
		return t.answer(r, CodeInternal, "no transition for "+in.Event.String()+" in "+state.String(), false)
	case c.code != CodeNone:
		return t.answer(r, c.code, in.Event.String()+" in "+state.String(), false)
	}
	return t.apply(now, r, in, state, c.to)
}

func (t *Sources) guard(r *Source, in SourceInput) (Code, string) {
	switch in.Event {
	case SourceOpen, SourceUndo, SourceRelease, SourceQuestion:
		if (in.P.Node != t.Node || in.P.Incarnation != t.Incarnation) && !t.Omit.Has(RuleIncarnation) {
			return CodeStaleIncarnation, "this is another life of the daemon"
		}
	}
	if in.Event == SourceOpen {
		return t.guardOpen(r, in)
	}
	if r == nil {
		return CodeNone, ""
	}
	switch in.Event {
	case SourceRead, SourceReadDone, SourceQuestion, SourceFinish, SourceRenew, SourceDestroy:
		if in.Grant != r.Grant {
			return CodeStaleToken, "another grant"
		}
	}
	switch in.Event {
	case SourceAnnounce, SourceRead:
		if in.Piece >= r.Shape.Pieces() && r.State != SourceClosed {
			return CodeInvalid, "piece out of range"
		}
	}
	switch in.Event {
	case SourceAnnounce:
		if r.State == SourceOpened && r.HasAnnounced(in.Piece) && r.Digests[in.Piece] != in.Digest && !t.Omit.Has(RuleAnnounceFinal) {
			return CodeConflict, "an announced piece is final" // rule 11; the engine must close and open a new grant
		}
	case SourceRead:
		if r.State != SourceClosed && !r.HasAnnounced(in.Piece) {
			return CodeNotReady, "piece not announced"
		}
	case SourceSeal:
		if r.State == SourceOpened && r.Left > 0 {
			return CodeNotReady, "pieces missing"
		}
	case SourceReadDone:
		if r.Posted == 0 {
			return CodeInternal, "a read ended that never began"
		}
	case SourceQuestion:
		if r.State == SourceSealed && in.Manifest != r.Manifest {
			return CodeIntegrity, "another manifest"
		}
	}
	return CodeNone, ""
}

func (t *Sources) guardOpen(r *Source, in SourceInput) (Code, string) {
	a := in.Attempt
	if in.Plan == nil || in.Shape == nil || in.Plan.Attempt != a {
		return CodeInvalid, "open without its plan and shape"
	}
	if r != nil {
		if r.State != SourceClosed && r.Plan != *in.Plan {
			return CodeConflict, "this attempt has another plan" // rules 1 and 6: the body digest is in the plan
		}
		return CodeNone, ""
	}
	if len(t.records) >= MaxSources {
		return CodeCapacity, "source table is full"
	}
	return CodeNone, ""
}

func (t *Sources) answer(r *Source, code Code, detail string, changed bool) SourceAnswer {
	ans := SourceAnswer{Code: code, Detail: detail, Changed: changed}
	if r != nil {
		ans.State, ans.Validated, ans.Grant = r.State, r.Validated, r.Grant
	}
	return ans
}

func (t *Sources) apply(now Instant, r *Source, in SourceInput, from, to SourceState) SourceAnswer {
	if r == nil {
		if r = t.create(now, in, to); r == nil {
			return SourceAnswer{State: to}
		}
		return t.answer(r, CodeNone, "", true)
	}
	switch in.Event {
	case SourceAnnounce:
		if !r.HasAnnounced(in.Piece) {
			r.Announced[in.Piece/64] |= 1 << (in.Piece % 64)
			r.Left--
		}
		r.Digests[in.Piece] = in.Digest
	case SourceSeal:
		if from == SourceOpened {
			r.Manifest = Manifest{Attempt: in.Attempt, Shape: r.Shape, Digests: r.Digests}.Digest()
		}
	case SourceRead:
		r.Posted++
	case SourceReadDone:
		r.Posted--
	case SourceQuestion:
		r.Validated = true // recorded before the yes leaves (rule 12)
	case SourceFinish:
		r.Stopped = true
	case SourceDestroy:
		r.Posted, r.Stopped = 0, true
	case SourceRenew:
		t.renew(now, r, in.Lease)
	}
	if to == SourceClosed && from != SourceClosed {
		r.Cause = sourceCause(in)
	}
	r.State = to
	return t.answer(r, CodeNone, "", from != to)
}

func (t *Sources) create(now Instant, in SourceInput, to SourceState) *Source {
	if to == SourceUnknown {
		return nil
	}
	if in.Event != SourceOpen {
		if t.Omit.Has(RuleTombstone) {
			return nil
		}
		r := &Source{Plan: Plan{Attempt: in.Attempt, P: Seat{Node: t.Node, Incarnation: t.Incarnation}},
			State: to, Freed: true, Stopped: true, Cause: sourceCause(in)}
		t.records[in.Attempt] = r
		return r
	}
	t.grant++
	n := in.Shape.Pieces()
	r := &Source{Plan: *in.Plan, State: to, Shape: *in.Shape, Grant: t.grant, Lane: in.Lane,
		Announced: make([]uint64, (n+63)/64), Digests: make([]uint32, n), Left: n}
	t.records[in.Attempt] = r
	t.renew(now, r, in.Lease)
	return r
}

func (t *Sources) renew(now Instant, r *Source, d time.Duration) {
	if d <= 0 || d > LeaseMax {
		d = t.Lease
	}
	if end := now + d; end > r.End {
		r.End = end
		t.leases.set(end, r.Plan.Attempt)
	}
}

func sourceCause(in SourceInput) Code {
	switch in.Event {
	case SourceExpire:
		return CodeLease
	case SourceRelease:
		return CodeCancelled
	case SourcePreempt:
		return in.Cause
	}
	return CodeNone
}

// Tick ends the leases that are due and gives the attempts that it moved.
func (t *Sources) Tick(now Instant) []Attempt {
	var moved []Attempt
	for _, e := range t.leases.due(now) {
		r := t.records[e.attempt]
		if r == nil || r.End != e.end || r.State == SourceClosed {
			continue
		}
		if t.Step(now, SourceInput{Event: SourceExpire, Attempt: e.attempt}).Changed {
			moved = append(moved, e.attempt)
		}
	}
	return moved
}

// NextTick is when Tick has something to do at the earliest.
func (t *Sources) NextTick() (Instant, bool) { return t.leases.next() }

// Free records that the engine took the blocks of a back; refused until drained.
func (t *Sources) Free(a Attempt) error {
	r := t.records[a]
	switch {
	case r == nil:
		return Errorf(CodeInvalid, "no source %s", a)
	case !r.Drained() && !t.Omit.Has(RuleDrained):
		return Errorf(CodeNotReady, "source %s is %s with %d reads posted", a, r.State, r.Posted)
	}
	r.Freed = true
	r.Announced, r.Digests = nil, nil
	r.Shape = Shape{}
	return nil
}

// Forget drops a freed, closed record once no message of its attempt can matter.
func (t *Sources) Forget(a Attempt) bool {
	r := t.records[a]
	if r == nil || !r.Freed || !r.Drained() {
		return false
	}
	delete(t.records, a)
	return true
}
