package handoff

import (
	"slices"
	"time"
)

// Tick ends the leases that are due and gives the attempts that it moved.
func (t *Targets) Tick(now Instant) []Attempt {
	var moved []Attempt
	for _, e := range t.leases.due(now) {
		r := t.records[e.attempt]
		switch {
		case r == nil || r.State.Final():
		case r.End > now:
			t.leases.set(r.End, e.attempt) // renewed meanwhile
		case t.Step(now, TargetInput{Event: TargetExpire, Attempt: e.attempt}).Changed:
			moved = append(moved, e.attempt)
		}
	}
	return moved
}

// NextTick is when Tick has something to do at the earliest.
func (t *Targets) NextTick() (Instant, bool) { return t.leases.next() }

// startLease gives r a lease of d that begins now, whatever ran before.
func (t *Targets) startLease(now Instant, r *Target, d time.Duration) {
	r.End = now + clampLease(d, t.Lease)
	t.leases.set(r.End, r.Plan.Attempt)
}

// Free records that the engine took the blocks of a back. It is refused while
// an operation may still land in them (rules 21, 22).
func (t *Targets) Free(a Attempt) error {
	r := t.Get(a)
	switch {
	case r == nil:
		return Errorf(CodeInvalid, "no target %s", a)
	case r.Freed:
		return nil
	case !r.Drained() && !t.Omit.Has(RuleDrained):
		return Errorf(CodeNotReady, "target %s is %s with %d operations posted", a, r.State, r.Posted)
	}
	r.Freed = true
	r.Landed = nil
	r.Shape = Shape{}
	t.freed++
	return nil
}

// Forget drops a freed, final record once no message of its attempt can matter:
// past the handoff's deadline and budget (rule 7). The highest epoch stays
// until the last record of the handoff goes.
func (t *Targets) Forget(a Attempt) bool {
	r := t.Get(a)
	if r == nil || !r.Freed || !r.State.Final() || r.Posted > 0 {
		return false
	}
	k := r.Plan.Attempt
	delete(t.records, k)
	t.freed--
	f := t.families[k.Handoff]
	f.members = slices.DeleteFunc(f.members, func(m *Target) bool { return m == r })
	if len(f.members) == 0 {
		delete(t.families, k.Handoff)
	}
	return true
}

// insert enters a record and gives its handoff's family.
func (t *Targets) insert(r *Target) *family {
	a := r.Plan.Attempt
	t.records[a] = r
	f := t.families[a.Handoff]
	if f == nil {
		f = &family{}
		t.families[a.Handoff] = f
	}
	i, _ := slices.BinarySearchFunc(f.members, a, func(m *Target, a Attempt) int { return m.Plan.Attempt.Compare(a) })
	f.members = slices.Insert(f.members, i, r)
	return f
}
