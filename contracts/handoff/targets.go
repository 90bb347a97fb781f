package handoff

import (
	"slices"
	"time"
)

// Targets is TD's side of the protocol: every attempt that names this daemon as
// the owner of its target memory. It is not safe for concurrent use; its owner
// holds one lock. The zero value is not usable: NewTargets.
type Targets struct {
	Node        NodeID
	Incarnation Incarnation
	Lease       time.Duration // reservation and decode lease; LeaseDefault
	Omit        Omitted       // only the explorer sets it

	records    map[Attempt]*Target
	families   map[HandoffID]*family
	freed      int // records that hold no memory: tombstones and freed targets
	generation Generation
	leases     leaseHeap
	maxLive    int
	maxFreed   int
}

// family is what this daemon knows of one handoff.
type family struct {
	highest Epoch     // opened or adopted here (S3)
	members []*Target // in the order of their attempts
}

// NewTargets begins a new incarnation of TD with an empty table.
func NewTargets(node NodeID, i Incarnation) *Targets {
	return &Targets{Node: node, Incarnation: i, Lease: LeaseDefault, maxLive: MaxTargets, maxFreed: MaxTombstones,
		records: map[Attempt]*Target{}, families: map[HandoffID]*family{}}
}

// Get gives the record of a, nil when unknown.
func (t *Targets) Get(a Attempt) *Target { return t.records[t.Omit.attempt(a)] }

// Highest is the highest epoch of r that was opened here, zero for none.
func (t *Targets) Highest(r HandoffID) Epoch {
	if f := t.families[r]; f != nil {
		return f.highest
	}
	return 0
}

// Live is the number of records that hold memory, Freed of those that do not.
func (t *Targets) Live() int  { return len(t.records) - t.freed }
func (t *Targets) Freed() int { return t.freed }

// All gives the records in the order of their attempts.
func (t *Targets) All() []*Target {
	out := make([]*Target, 0, len(t.records))
	for _, r := range t.records {
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y *Target) int { return x.Plan.Attempt.Compare(y.Plan.Attempt) })
	return out
}

// Adopted is a visible target that a restarted TD found on an engine's flag page.
type Adopted struct {
	Plan       Plan
	Generation Generation
}

// Adopt takes over a visible target before the daemon serves (rule 9). Every
// other slot of the page was never committed; its engine may free it at once,
// since the process that could write it is dead.
func (t *Targets) Adopt(now Instant, ad Adopted) {
	if t.Omit.Has(RuleAdopt) {
		return
	}
	r := &Target{Plan: ad.Plan, State: TargetCommitted, Generation: ad.Generation, Adopted: true}
	t.insert(r)
	t.generation = max(t.generation, ad.Generation)
	f := t.families[ad.Plan.Attempt.Handoff]
	f.highest = max(f.highest, ad.Plan.Attempt.Epoch)
	t.startLease(now, r, 0)
}

// Step performs one event and answers the present state.
func (t *Targets) Step(now Instant, in TargetInput) TargetAnswer {
	in = t.Omit.targetInput(in)
	r := t.records[in.Attempt]
	state := TargetUnknown
	if r != nil {
		state = r.State
	}
	if code, detail := t.guard(r, in); code != CodeNone {
		return t.answer(r, code, detail, false)
	}
	c := t.Omit.targetCell(in.Event, state, targetTable[in.Event][state])
	switch {
	case !c.ok:
		return t.answer(r, CodeInternal, "no transition for "+in.Event.String()+" in "+state.String(), false)
	case c.code != CodeNone:
		return t.answer(r, c.code, in.Event.String()+" in "+state.String(), false)
	case r == nil:
		return t.create(now, in, c.to)
	}
	to := t.effect(now, r, in, state, c.to)
	if to.Final() && !state.Final() {
		r.Cause = closeCause(in)
	}
	if !t.Omit.answersFirst(in.Event, state) {
		r.State = to
	}
	ans := t.answer(r, CodeNone, "", state != to)
	ans.State = to
	return ans
}

func (t *Targets) answer(r *Target, code Code, detail string, changed bool) TargetAnswer {
	ans := TargetAnswer{Code: code, Detail: detail, Changed: changed}
	if r != nil {
		ans.State = r.State
		ans.Token = r.Token()
	}
	return ans
}

// effect runs what an accepted event does and says where it leads.
func (t *Targets) effect(now Instant, r *Target, in TargetInput, from, to TargetState) TargetState {
	switch in.Event {
	case TargetPost:
		r.Posted += count(in.Count)
		if r.Grant == 0 {
			r.Grant = in.Grant
		}
	case TargetLand:
		r.Posted -= count(in.Count)
		for p := in.Piece; from == TargetRunning && p < in.Piece+uint32(count(in.Count)); p++ {
			if !r.HasLanded(p) {
				r.Landed[p/64] |= 1 << (p % 64)
				r.Left--
			}
		}
		return r.settled(to)
	case TargetFail:
		r.Posted -= count(in.Count)
		return r.settled(to)
	case TargetDestroy:
		r.Posted = 0
		return r.settled(to)
	case TargetMisverify:
		if r.HasLanded(in.Piece) {
			r.Landed[in.Piece/64] &^= 1 << (in.Piece % 64)
			r.Left++
		}
	case TargetVerify:
		if from == TargetLanded {
			r.Manifest = in.Manifest
		}
	case TargetAsk:
		r.Question, r.Grant = in.Question, in.Grant
	case TargetCommit:
		if !from.Final() && from != TargetCommitted {
			t.startLease(now, r, in.Lease) // rule 14: a decode lease from the instant of commit
		}
	case TargetRenew:
		r.Reader = max(r.Reader, in.Reader)
		r.End = max(r.End, now+clampLease(in.Lease, t.Lease))
	}
	return to
}

// settled is where a running target stands after an operation ended: landed
// only when every piece is in place and nothing posted can still write one.
func (t *Target) settled(s TargetState) TargetState {
	if s == TargetRunning && t.Left == 0 && t.Posted == 0 {
		return TargetLanded
	}
	return s
}

// create makes the record of an attempt that was unknown: a target, or the
// tombstone that an undo leaves (rule 7).
func (t *Targets) create(now Instant, in TargetInput, to TargetState) TargetAnswer {
	a := in.Attempt
	switch {
	case to == TargetUnknown, in.Event != TargetOpen && t.Omit.Has(RuleTombstone):
		return TargetAnswer{State: to}
	case in.Event != TargetOpen:
		r := &Target{Plan: Plan{Attempt: a, D: in.D}, State: to, Freed: true, Cause: closeCause(in)}
		t.insert(r)
		t.freed++
		return t.answer(r, CodeNone, "", true)
	}
	t.generation++
	n := in.Shape.Pieces()
	r := &Target{Plan: *in.Plan, State: to, Shape: *in.Shape, Generation: t.generation,
		Landed: make([]uint64, (n+63)/64), Left: n}
	f := t.insert(r)
	if a.Epoch > f.highest {
		f.highest = a.Epoch
		t.supersede(now, f, a.Epoch)
	}
	t.startLease(now, r, in.Lease)
	return t.answer(r, CodeNone, "", true)
}

// supersede closes uncommitted targets of lower epochs (rule 6).
func (t *Targets) supersede(now Instant, f *family, e Epoch) {
	for _, r := range f.members {
		if r.Plan.Attempt.Epoch < e {
			t.Step(now, TargetInput{Event: TargetSupersede, Attempt: r.Plan.Attempt})
		}
	}
}

func closeCause(in TargetInput) Code {
	switch in.Event {
	case TargetExpire:
		return CodeLease
	case TargetSupersede:
		return CodeStaleEpoch
	case TargetNo:
		return CodeNotValidated
	case TargetRelease:
		return CodeCancelled
	case TargetAbandon:
		return in.Cause
	}
	return CodeNone
}
