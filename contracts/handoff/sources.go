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

	records  map[Attempt]*Source
	freed    int // records that hold no memory: tombstones and freed sources
	grant    GrantID
	leases   leaseHeap
	maxLive  int
	maxFreed int
}

// NewSources begins a new incarnation of TP with an empty table.
func NewSources(node NodeID, i Incarnation) *Sources {
	return &Sources{Node: node, Incarnation: i, Lease: LeaseDefault, records: map[Attempt]*Source{},
		maxLive: MaxSources, maxFreed: MaxTombstones}
}

// Get gives the record of a, nil when unknown.
func (t *Sources) Get(a Attempt) *Source { return t.records[t.Omit.attempt(a)] }

// Live is the number of records that hold memory, Freed of those that do not.
func (t *Sources) Live() int  { return len(t.records) - t.freed }
func (t *Sources) Freed() int { return t.freed }

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
	in = t.Omit.sourceInput(in)
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
	case r == nil:
		return t.create(now, in, c.to)
	}
	t.effect(now, r, in, state)
	if c.to == SourceClosed && state != SourceClosed {
		r.Cause = sourceCause(in)
	}
	r.State = c.to
	return t.answer(r, CodeNone, "", state != c.to)
}

func (t *Sources) answer(r *Source, code Code, detail string, changed bool) SourceAnswer {
	ans := SourceAnswer{Code: code, Detail: detail, Changed: changed}
	if r != nil {
		ans.State, ans.Validated, ans.Grant = r.State, r.Validated, r.Grant
	}
	return ans
}

// effect runs what an accepted event does to a known source.
func (t *Sources) effect(now Instant, r *Source, in SourceInput, from SourceState) {
	switch in.Event {
	case SourceAnnounce:
		if !r.HasAnnounced(in.Piece) {
			r.Announced[in.Piece/64] |= 1 << (in.Piece % 64)
			r.Left--
		}
		r.Digests[in.Piece] = in.Digest
	case SourceSeal:
		if from == SourceOpened {
			r.Manifest = Manifest{Attempt: r.Plan.Attempt, Shape: r.Shape, Digests: r.Digests}.Digest()
		}
	case SourceRead:
		r.Posted += count(in.Count)
		r.Stopped = false // a holder that came back: its earlier word no longer counts
	case SourceReadDone:
		r.Posted -= count(in.Count)
	case SourceQuestion:
		r.Validated = true // recorded before the yes leaves (rule 12)
	case SourceFinish:
		r.Stopped = true
	case SourceDestroy:
		r.Posted, r.Stopped = 0, true
	case SourceRenew:
		r.End = max(r.End, now+clampLease(in.Lease, t.Lease))
	}
}

// create makes the record of an attempt that was unknown: a source, or the
// tombstone that an undo leaves (rule 7).
func (t *Sources) create(now Instant, in SourceInput, to SourceState) SourceAnswer {
	switch {
	case to == SourceUnknown, in.Event != SourceOpen && t.Omit.Has(RuleTombstone):
		return SourceAnswer{State: to}
	case in.Event != SourceOpen:
		r := &Source{Plan: Plan{Attempt: in.Attempt, P: in.P}, State: to, Freed: true, Stopped: true, Cause: sourceCause(in)}
		t.records[in.Attempt] = r
		t.freed++
		return t.answer(r, CodeNone, "", true)
	}
	t.grant++
	n := in.Shape.Pieces()
	r := &Source{Plan: *in.Plan, State: to, Shape: *in.Shape, Grant: t.grant, Lane: in.Lane,
		Announced: make([]uint64, (n+63)/64), Digests: make([]uint32, n), Left: n}
	t.records[in.Attempt] = r
	r.End = now + clampLease(in.Lease, t.Lease)
	t.leases.set(r.End, in.Attempt)
	return t.answer(r, CodeNone, "", true)
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
		switch {
		case r == nil || r.State == SourceClosed:
		case r.End > now:
			t.leases.set(r.End, e.attempt) // renewed meanwhile
		case t.Step(now, SourceInput{Event: SourceExpire, Attempt: e.attempt}).Changed:
			moved = append(moved, e.attempt)
		}
	}
	return moved
}

// NextTick is when Tick has something to do at the earliest.
func (t *Sources) NextTick() (Instant, bool) { return t.leases.next() }

// Free records that the engine took the blocks of a back; refused until drained.
func (t *Sources) Free(a Attempt) error {
	r := t.Get(a)
	switch {
	case r == nil:
		return Errorf(CodeInvalid, "no source %s", a)
	case r.Freed:
		return nil
	case !r.Drained() && !t.Omit.Has(RuleDrained):
		return Errorf(CodeNotReady, "source %s is %s with %d reads posted", a, r.State, r.Posted)
	}
	r.Freed = true
	r.Announced, r.Digests = nil, nil
	r.Shape = Shape{}
	t.freed++
	return nil
}

// Forget drops a freed, closed record once no message of its attempt can matter.
func (t *Sources) Forget(a Attempt) bool {
	r := t.Get(a)
	if r == nil || !r.Freed || !r.Drained() {
		return false
	}
	delete(t.records, r.Plan.Attempt)
	t.freed--
	return true
}
