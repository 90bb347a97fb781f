package model

import "fmt"

// Replay makes the state that a prefix hit lacks. A hit brings the paged KV of
// positions 0..len(prefix)-1 and nothing else; the ring and the history of
// that boundary are rebuilt here, with the bits that Forward would have left:
// the ring's rows depend on the layers below only, whose KV is there. The paged
// KV is read and never written, since others share it.
//
// prefix is all tokens so far; s.Pos becomes their number. Replaying twice
// gives the same state.
func (r *Runner) Replay(prefix []int, s *State) error {
	if len(s.History) != HistoryBytes {
		return fmt.Errorf("%w: n-gram history of %d bytes", ErrState, len(s.History))
	}
	if len(prefix) >= MaxPositions {
		return fmt.Errorf("%w: prefix of %d tokens", ErrInput, len(prefix))
	}
	from := max(0, len(prefix)-window+1) // the next position sees window-1 older ones
	past := [history]uint16{None, None, None}
	for _, token := range prefix[max(0, from-history):from] {
		past = pushed(past, token)
	}
	writeHistory(s.History, past)
	s.Pos = from
	if from == len(prefix) {
		return nil
	}
	tail := prefix[from:]
	next, err := r.embed(tail, s)
	if err != nil {
		return err
	}
	for l := range ringLayer { // the layers below the ring's are all paged
		r.project(l, len(tail), from)
		if err := r.attendPaged(l, len(tail), s); err != nil {
			return err
		}
		r.finish(l, len(tail))
	}
	r.project(ringLayer, len(tail), from)
	r.storeRing(len(tail), s)
	writeHistory(s.History, next)
	s.Pos = len(prefix)
	return nil
}
