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
	highest    map[HandoffID]Epoch
	generation Generation
	leases     leaseHeap
}

// NewTargets begins a new incarnation of TD with an empty table.
func NewTargets(node NodeID, i Incarnation) *Targets {
	return &Targets{Node: node, Incarnation: i, Lease: LeaseDefault,
		records: map[Attempt]*Target{}, highest: map[HandoffID]Epoch{}}
}

// Get gives the record of a, nil when unknown.
func (t *Targets) Get(a Attempt) *Target { return t.records[a] }

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
	t.records[ad.Plan.Attempt] = r
	t.generation = max(t.generation, ad.Generation)
	t.highest[ad.Plan.Attempt.Handoff] = max(t.highest[ad.Plan.Attempt.Handoff], ad.Plan.Attempt.Epoch)
	t.renew(now, r, 0)
}

// Step performs one event and answers the present state.
func (t *Targets) Step(now Instant, in TargetInput) TargetAnswer {
	r := t.records[in.Attempt]
	state := TargetUnknown
	if r != nil {
		state = r.State
	}
	if code, detail := t.guard(r, in); code != CodeNone {
		return t.answer(r, code, detail, false)
	}
	c := targetTable[in.Event][state]
	switch {
	case !c.ok:
		return t.answer(r, CodeInternal, "no transition for "+in.Event.String()+" in "+state.String(), false)
	case c.code != CodeNone:
		return t.answer(r, c.code, in.Event.String()+" in "+state.String(), false)
	}
	return t.apply(now, r, in, state, c.to)
}

// guard checks what the table cannot: who asks, under which incarnation, epoch
// and token. It changes nothing.
func (t *Targets) guard(r *Target, in TargetInput) (Code, string) {
	a := in.Attempt
	switch in.Event {
	case TargetOpen, TargetUndo, TargetRelease, TargetCommit:
		adopted := r != nil && r.Adopted
		if (in.D.Node != t.Node || in.D.Incarnation != t.Incarnation) && !adopted && !t.Omit.Has(RuleIncarnation) {
			return CodeStaleIncarnation, "this is another life of the daemon"
		}
	}
	switch in.Event {
	case TargetOpen:
		return t.guardOpen(r, in)
	case TargetPost, TargetLand, TargetFail, TargetVerify, TargetAsk, TargetYes, TargetNo, TargetCommit:
		if r == nil {
			return CodeNotReady, "target not open"
		}
		if in.Token != r.Token() {
			return CodeStaleToken, in.Token.String()
		}
	}
	switch in.Event {
	case TargetPost, TargetVerify, TargetAsk, TargetYes, TargetCommit:
		if h := t.highest[a.Handoff]; a.Epoch < h && r.State < TargetCommitted && !t.Omit.Has(RuleEpochOrder) {
			return CodeStaleEpoch, "a higher epoch was seen"
		}
	}
	switch {
	case in.Event == TargetYes && r.State == TargetVerified && (in.Question != r.Question || in.Manifest != r.Manifest):
		return CodeStaleToken, "the answer belongs to another question"
	case in.Event == TargetLand && in.Piece >= r.Shape.Pieces(), in.Event == TargetMisverify && r != nil && in.Piece >= r.Shape.Pieces():
		return CodeInvalid, "piece out of range"
	case (in.Event == TargetLand || in.Event == TargetFail) && r.Posted == 0:
		return CodeInternal, "an operation ended that was never posted"
	}
	return CodeNone, ""
}

func (t *Targets) guardOpen(r *Target, in TargetInput) (Code, string) {
	a := in.Attempt
	if in.Plan == nil || in.Shape == nil || in.Plan.Attempt != a {
		return CodeInvalid, "open without its plan and shape"
	}
	if r != nil {
		if r.State != TargetClosed && r.Plan != *in.Plan {
			return CodeConflict, "this attempt has another plan" // rule 1
		}
		return CodeNone, ""
	}
	if t.highest[a.Handoff] > a.Epoch && !t.Omit.Has(RuleEpochOrder) {
		return CodeStaleEpoch, "a higher epoch was seen"
	}
	if len(t.records) >= MaxTargets {
		return CodeCapacity, "target table is full"
	}
	if other := t.sameEpoch(a); other != nil && !t.Omit.Has(RuleTargetNonce) {
		return CodeConflict, "another nonce holds this epoch" // rule 6
	}
	return CodeNone, ""
}

// sameEpoch finds a live target of a's epoch under another nonce.
func (t *Targets) sameEpoch(a Attempt) *Target {
	if t.highest[a.Handoff] != a.Epoch {
		return nil
	}
	for k, r := range t.records {
		if k.Handoff == a.Handoff && k.Epoch == a.Epoch && k.Nonce != a.Nonce && r.State.Live() {
			return r
		}
	}
	return nil
}

func (t *Targets) answer(r *Target, code Code, detail string, changed bool) TargetAnswer {
	ans := TargetAnswer{Code: code, Detail: detail, Changed: changed}
	if r != nil {
		ans.State = r.State
		ans.Token = r.Token()
	}
	return ans
}

// apply runs the effect of an accepted event, then sets the state.
func (t *Targets) apply(now Instant, r *Target, in TargetInput, from, to TargetState) TargetAnswer {
	if r == nil {
		if r = t.create(now, in, to); r == nil {
			return TargetAnswer{State: to} // nothing to undo and tombstones are left out
		}
		return t.answer(r, CodeNone, "", true)
	}
	switch in.Event {
	case TargetPost:
		r.Posted++
	case TargetLand:
		r.Posted--
		if from == TargetRunning && !r.HasLanded(in.Piece) {
			r.Landed[in.Piece/64] |= 1 << (in.Piece % 64)
			if r.Left--; r.Left == 0 {
				to = TargetLanded
			}
		}
	case TargetFail:
		r.Posted--
	case TargetDestroy:
		r.Posted = 0
	case TargetMisverify:
		r.Landed[in.Piece/64] &^= 1 << (in.Piece % 64)
		r.Left++
		r.Question = 0
	case TargetVerify:
		r.Manifest = in.Manifest
	case TargetAsk:
		r.Question = in.Question
	case TargetCommit:
		if from == TargetValidated {
			t.renew(now, r, in.Lease) // rule 14: a decode lease from the instant of commit
		}
	case TargetRenew:
		t.renew(now, r, in.Lease)
	case TargetUndo:
		if from == TargetCommitted && t.Omit.Has(RuleUndoKeepsCommit) {
			to = TargetAborted
		}
	}
	if to.Final() && !from.Final() {
		r.Cause = closeCause(in)
	}
	r.State = to
	return t.answer(r, CodeNone, "", from != to)
}

// create makes the record of an attempt that was unknown: a target, or the
// tombstone that an undo leaves (rule 7).
func (t *Targets) create(now Instant, in TargetInput, to TargetState) *Target {
	if to == TargetUnknown {
		return nil
	}
	a := in.Attempt
	if in.Event != TargetOpen {
		if t.Omit.Has(RuleTombstone) {
			return nil
		}
		r := &Target{Plan: Plan{Attempt: a, D: Seat{Node: t.Node, Incarnation: t.Incarnation}}, State: to, Freed: true, Cause: closeCause(in)}
		t.records[a] = r
		return r
	}
	if h := t.highest[a.Handoff]; a.Epoch > h {
		t.highest[a.Handoff] = a.Epoch
		t.supersede(now, a)
	}
	t.generation++
	n := in.Shape.Pieces()
	r := &Target{Plan: *in.Plan, State: to, Shape: *in.Shape, Generation: t.generation,
		Landed: make([]uint64, (n+63)/64), Left: n}
	t.records[a] = r
	t.renew(now, r, in.Lease)
	return r
}

// supersede closes uncommitted targets of lower epochs (rule 6).
func (t *Targets) supersede(now Instant, a Attempt) {
	for _, r := range t.All() {
		if k := r.Plan.Attempt; k.Handoff == a.Handoff && k.Epoch < a.Epoch {
			t.Step(now, TargetInput{Event: TargetSupersede, Attempt: k})
		}
	}
}

func (t *Targets) renew(now Instant, r *Target, d time.Duration) {
	if d <= 0 || d > LeaseMax {
		d = t.Lease
	}
	if end := now + d; end > r.End {
		r.End = end
		t.leases.set(end, r.Plan.Attempt)
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

// Tick ends the leases that are due and gives the attempts that it moved.
func (t *Targets) Tick(now Instant) []Attempt {
	var moved []Attempt
	for _, e := range t.leases.due(now) {
		r := t.records[e.attempt]
		if r == nil || r.End != e.end || r.State.Final() {
			continue // renewed, or over already
		}
		if r.State == TargetCommitted && t.Omit.Has(RuleDecodeLease) {
			continue
		}
		if t.Step(now, TargetInput{Event: TargetExpire, Attempt: e.attempt}).Changed {
			moved = append(moved, e.attempt)
		}
	}
	return moved
}

// NextTick is when Tick has something to do at the earliest.
func (t *Targets) NextTick() (Instant, bool) { return t.leases.next() }

// Free records that the engine took the blocks of a back. It is refused while
// an operation may still land in them (rules 21, 22).
func (t *Targets) Free(a Attempt) error {
	r := t.records[a]
	switch {
	case r == nil:
		return Errorf(CodeInvalid, "no target %s", a)
	case !r.Drained() && !t.Omit.Has(RuleDrained):
		return Errorf(CodeNotReady, "target %s is %s with %d operations posted", a, r.State, r.Posted)
	}
	r.Freed = true
	r.Landed = nil
	r.Shape = Shape{}
	return nil
}

// Forget drops a freed, final record once no message of its attempt can matter:
// past the handoff's deadline and budget (rule 7). The highest epoch stays
// until the last record of the handoff goes.
func (t *Targets) Forget(a Attempt) bool {
	r := t.records[a]
	if r == nil || !r.Freed || !r.State.Final() || r.Posted > 0 {
		return false
	}
	delete(t.records, a)
	for k := range t.records {
		if k.Handoff == a.Handoff {
			return true
		}
	}
	delete(t.highest, a.Handoff)
	return true
}
