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

func (s *settled) successors(out func(step)) {
	var all []step
	s.each(func(n step) { all = append(all, n) })
	for _, n := range all {
		if s.Omit == 0 && n.act.(act).confluent() {
			out(n)
			return
		}
	}
	for _, n := range all {
		out(n)
	}
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
func (s *settled) mirror() bool                   { return false }
