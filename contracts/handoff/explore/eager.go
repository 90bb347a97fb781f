package explore

import "github.com/surehand/surehand/contracts/handoff"

// settled is the small world as a closure walks over it: normalised, and with a
// confluent step taken before any other.
type settled struct{ *world }

// confluent says whether a step commutes with everything else that may ever
// happen, faults included, and is seen by no check: then taking it alone loses
// no behaviour (τ-confluence), and leaks and fair runs stay what they are.
// TestConfluentStepsCommute holds each of them against every scenario. Nearly
// all other steps are races on purpose: an Undo beside an Open is what the
// protocol is about. A rule left out may make any step a race.
func (x act) confluent() bool { return x.kind == actYes || x.kind == actTest }

// taken gives the steps that a walk takes: one that is confluent, and only that,
// or else all.
func (w *world) taken(out func(x act, isFault, only bool, n *world)) {
	type one struct {
		x       act
		isFault bool
		n       *world
	}
	var all []one
	w.next(func(x act, isFault bool, n *world) { all = append(all, one{x, isFault, n}) })
	for _, s := range all {
		if w.Omit == 0 && s.x.confluent() {
			out(s.x, s.isFault, true, s.n)
			return
		}
	}
	for _, s := range all {
		out(s.x, s.isFault, false, s.n)
	}
}

func (s *settled) successors(out func(step)) {
	s.taken(func(x act, isFault, _ bool, n *world) {
		n.normalise()
		out(step{x, x, isFault, &settled{n}})
	})
}

func (s *settled) each(out func(step)) {
	s.next(func(x act, isFault bool, n *world) {
		n.normalise()
		out(step{x, x, isFault, &settled{n}})
	})
}

func (s *settled) violations(v *handoff.World) []string {
	s.look(v)
	return handoff.Violations(v)
}

func (s *settled) fingerprint(buf *[]byte) uint64 { return s.world.compact(buf) }
func (s *settled) busy() bool                     { return s.events.any() }
func (s *settled) quiet()                         { s.events = events{} }
