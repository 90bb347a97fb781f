package fence

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/segment"
)

// MaxArrivals bounds the attempts whose pulls wait for their source to open.
const MaxArrivals = 4096

// Reading is one connection's right to read one source, as its holder proved it.
// The holder of the memory checks each range here: capability, announcement,
// state. A source has one Reading at a time, so that destroying it can speak for
// every posted read of the grant.
type Reading struct {
	core    *Core
	attempt handoff.Attempt
	grant   handoff.GrantID
	pieces  capability.Range
	source  *source
	shape   handoff.Shape
	changed chan struct{} // one token: something new is announced or sealed
	stopped chan struct{} // closed once no read may begin any more
	ended   chan struct{} // closed by Destroy

	pending []wire.Run    // announced and not yet taken; guarded by core.mu
	joined  int           // connections beside the first one; guarded by core.mu
	alone   chan struct{} // closed once none of them is left, while Destroy waits for it
	stuck   bool          // a copy failed that may still read the memory; guarded by core.mu
}

// Holder is who presents a capability, as its connection proved.
type Holder struct {
	Node        handoff.NodeID
	Incarnation handoff.Incarnation
}

// Admit verifies a capability for its presenter and waits, up to the lease, for
// the source to open.
func (c *Core) Admit(ctx context.Context, a handoff.Attempt, token []byte, h Holder) (*Reading, error) {
	right, err := capability.Verify(c.key, token, capability.Presented{Attempt: a, Source: c.cfg.Node, Incarnation: c.cfg.Incarnation, Holder: h.Node, Now: c.now()})
	if err != nil {
		c.enter()
		defer c.leave()
		return nil, c.denied(a, token, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Lease)
	defer cancel()
	for {
		r, wait, err := c.admit(right, h)
		if err != nil || r != nil {
			return r, err
		}
		select {
		case <-wait:
			c.unwait(a)
		case <-ctx.Done():
			c.unwait(a)
			return nil, c.late(a)
		}
	}
}

func (c *Core) late(a handoff.Attempt) error {
	c.enter()
	defer c.leave()
	return c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeNotReady, "the source did not open in time"))
}

// admit makes the reading, or says what to wait for.
func (c *Core) admit(right capability.Right, h Holder) (*Reading, <-chan struct{}, error) {
	c.enter()
	defer c.leave()
	a := right.Attempt
	r, l := c.sources.Get(a), c.lent[a]
	switch {
	case c.stopped:
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeUnavailable, "the daemon is stopping"))
	case r == nil:
		wait, err := c.wait(a)
		return nil, wait, err
	case r.State == handoff.SourceClosed || l == nil:
		return nil, nil, c.refused(machineSource, a, "read", closedSource(r))
	case r.Grant != right.Grant:
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeStaleToken, "the capability is of another grant"))
	case r.Plan.D.Incarnation != h.Incarnation:
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeStaleIncarnation, "the plan's D is in its life %d, this is %d", r.Plan.D.Incarnation, h.Incarnation))
	case l.reading != nil:
		l.reading.stop() // its holder dialled again: the older connection is of no use to it
		return nil, l.reading.ended, nil
	}
	n := &Reading{core: c, attempt: a, grant: r.Grant, pieces: right.Pieces, source: l, shape: r.Shape,
		changed: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{})}
	n.announced(announcedRuns(r))
	l.reading = n
	return n, nil, nil
}

func closedSource(r *handoff.Source) error {
	return handoff.Errorf(closedCode(r.Cause, handoff.CodeClosed), "the source is closed (%s)", r.Cause)
}

// closedCode prefers the cause, which says more than *closed*.
func closedCode(cause, plain handoff.Code) handoff.Code {
	if cause == handoff.CodeNone {
		return plain
	}
	return cause
}

func (c *Core) wait(a handoff.Attempt) (<-chan struct{}, error) {
	w := c.arrivals[a]
	if w == nil {
		if len(c.arrivals) >= MaxArrivals {
			return nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeCapacity, "%d attempts wait for their source", MaxArrivals))
		}
		w = &arrival{opened: make(chan struct{})}
		c.arrivals[a] = w
	}
	w.waiting++
	return w.opened, nil
}

func (c *Core) unwait(a handoff.Attempt) {
	c.enter()
	defer c.leave()
	if w := c.arrivals[a]; w != nil {
		if w.waiting--; w.waiting <= 0 {
			delete(c.arrivals, a)
		}
	}
}

func announcedRuns(r *handoff.Source) []wire.Run {
	var out []wire.Run
	for i := range r.Shape.Pieces() {
		if !r.HasAnnounced(i) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].First+out[n-1].Count == i {
			out[n-1].Count++
		} else {
			out = append(out, wire.Run{First: i, Count: 1})
		}
	}
	return out
}

// announced, wake and stop are called under the core's lock.
func (r *Reading) announced(runs []wire.Run) {
	if len(runs) > 0 {
		r.pending = append(r.pending, runs...)
		r.wake()
	}
}

func (r *Reading) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *Reading) stop() {
	if !isClosed(r.stopped) {
		close(r.stopped)
	}
}

// Grant numbers the right.
func (r *Reading) Grant() handoff.GrantID { return r.grant }

// Trace is the traceparent that the source was opened with.
func (r *Reading) Trace() string { return r.source.trace }

// Shape is what there is to read.
func (r *Reading) Shape() handoff.Shape { return r.shape }

// Layout is what the shape's layout stands for, as the engine described it.
func (r *Reading) Layout() []byte { return r.source.engine.Encoded }

// Changed gets a token when something new is announced or sealed.
func (r *Reading) Changed() <-chan struct{} { return r.changed }

// Stopped is closed once no read may begin any more.
func (r *Reading) Stopped() <-chan struct{} { return r.stopped }

// Length is the size of a piece; zero out of range.
func (r *Reading) Length(piece uint32) uint32 {
	if int(piece) >= len(r.source.extents) {
		return 0
	}
	return r.source.extents[piece].Length
}

// News takes what was announced since the last call, at most wire.MaxRuns runs;
// rest says that there is more to take.
func (r *Reading) News() (runs []wire.Run, rest bool) {
	r.core.enter()
	defer r.core.leave()
	n := min(len(r.pending), wire.MaxRuns)
	runs, r.pending = r.pending[:n:n], r.pending[n:]
	return runs, len(r.pending) > 0
}

// State is the source's present state.
func (r *Reading) State() handoff.SourceState {
	r.core.enter()
	defer r.core.leave()
	if s := r.core.sources.Get(r.attempt); s != nil {
		return s.State
	}
	return handoff.SourceUnknown
}

// Why is the typed refusal of whoever comes after the source was stopped.
func (r *Reading) Why() error {
	r.core.enter()
	defer r.core.leave()
	s := r.core.sources.Get(r.attempt)
	if s == nil || s.State != handoff.SourceClosed {
		return handoff.Errorf(handoff.CodeUnavailable, "a newer connection reads this source")
	}
	return closedSource(s)
}

// Sealed is the frozen manifest; false before it is sealed.
func (r *Reading) Sealed() (wire.Sealed, bool) {
	r.core.enter()
	defer r.core.leave()
	s := r.core.sources.Get(r.attempt)
	if s == nil {
		return wire.Sealed{}, false
	}
	m, ok := s.Sealed()
	return wire.Sealed{Manifest: s.Manifest, Digests: m.Digests}, ok
}

// Begin posts a read of each piece; until Done its memory may be looked at. It
// posts all or none.
func (r *Reading) Begin(pieces []uint32) error {
	c := r.core
	c.enter()
	defer c.leave()
	if isClosed(r.stopped) {
		return c.refused(machineSource, r.attempt, "read", handoff.Errorf(handoff.CodeClosed, "this connection may not read any more"))
	}
	for i := 0; i < len(pieces); {
		n := stretch(pieces[i:])
		err := r.permitted(pieces[i], uint32(n))
		if err == nil {
			err = c.stepSource(handoff.SourceInput{Event: handoff.SourceRead, Attempt: r.attempt, Grant: r.grant, Piece: pieces[i], Count: uint32(n)}).Err()
		}
		if err != nil {
			r.done(i)
			return err
		}
		i += n
	}
	return nil
}

// permitted refuses pieces outside of the capability.
func (r *Reading) permitted(first, n uint32) error {
	for p := first; p < first+n; p++ {
		if !r.pieces.Has(p) {
			return r.core.refused(machineSource, r.attempt, "read", handoff.Errorf(handoff.CodeDenied, "piece %d is outside the capability's %d..%d", p, r.pieces.From, r.pieces.To))
		}
	}
	return nil
}

// Views gives the bytes of posted pieces, valid until Done: the memory itself
// where it is mapped, else a copy in buffer.
func (r *Reading) Views(pieces []uint32, views [][]byte, buffer *[]byte) ([][]byte, error) {
	memory := r.source.engine.Segment
	if len(pieces) > 0 && r.View(pieces[0]) == nil {
		extents := r.source.places(pieces)
		at := len(views)
		views = segment.Carve(buffer, extents, views)
		began := time.Now()
		err := r.looked(memory.Read(extents, views[at:]))
		r.core.took(&r.core.totals.gathering, time.Since(began))
		return views, err
	}
	for _, p := range pieces {
		views = append(views, r.View(p))
	}
	return views, nil
}

// View gives the memory of a posted piece, nil when it is not mapped here.
func (r *Reading) View(piece uint32) []byte {
	return r.source.engine.Segment.View(r.source.extents[piece])
}

// Copy copies posted pieces to where they shall be.
func (r *Reading) Copy(pieces []uint32, into [][]byte) error {
	return r.looked(r.source.engine.Segment.Read(r.source.places(pieces), into))
}

// looked notes that a copy may still look at the memory: the source is never
// called drained then, as long as this process lives.
func (r *Reading) looked(err error) error {
	if segment.IsNotQuiescent(err) {
		r.core.enter()
		defer r.core.leave()
		r.stuck = true
		r.core.tellStuck("source", r.attempt)
	}
	return err
}

func (s *source) places(pieces []uint32) []segment.Extent {
	out := make([]segment.Extent, len(pieces))
	for i, p := range pieces {
		out[i] = s.extents[p]
	}
	return out
}

// Done ends n posted reads: their memory is not looked at any more.
func (r *Reading) Done(n int) {
	r.core.enter()
	defer r.core.leave()
	r.done(n)
}

func (r *Reading) done(n int) {
	if r.stuck {
		return
	}
	if n > 0 {
		r.core.stepSource(handoff.SourceInput{Event: handoff.SourceReadDone, Attempt: r.attempt, Grant: r.grant, Count: uint32(n)})
	}
	r.core.settleSource(r.attempt)
}

// Question asks for the validated read (rule 12); nil is yes, and TP has
// recorded it before it says so.
func (r *Reading) Question(q wire.Question) error {
	c := r.core
	c.enter()
	defer c.leave()
	s := c.sources.Get(r.attempt)
	if s == nil {
		return c.refused(machineSource, r.attempt, handoff.SourceQuestion.String(), handoff.Errorf(handoff.CodeClosed, "the source is not known any more"))
	}
	d := s.Plan.D
	if q.Token.Attempt != r.attempt || q.Token.Node != d.Node || q.Token.Incarnation != d.Incarnation {
		return c.refused(machineSource, r.attempt, handoff.SourceQuestion.String(), handoff.Errorf(handoff.CodeDenied, "the question is of another target"))
	}
	if isClosed(r.stopped) && s.State != handoff.SourceClosed {
		return c.refused(machineSource, r.attempt, handoff.SourceQuestion.String(), handoff.Errorf(handoff.CodeUnavailable, "a newer connection reads this source"))
	}
	return c.stepSource(handoff.SourceInput{Event: handoff.SourceQuestion, Attempt: r.attempt, Grant: q.Grant, Manifest: q.Manifest, Nonce: q.Nonce,
		P: handoff.Seat{Engine: s.Plan.P.Engine, Node: s.Plan.P.Node, Incarnation: q.Incarnation}}).Err()
}

// Renew prolongs the grant's lease: the holder's daemon lives.
func (r *Reading) Renew(lease handoff.Instant) (handoff.SourceState, error) {
	r.core.enter()
	defer r.core.leave()
	ans := r.core.stepSource(handoff.SourceInput{Event: handoff.SourceRenew, Attempt: r.attempt, Grant: r.grant, Lease: lease})
	return ans.State, ans.Err()
}

// Finish is the reader's word that it stopped and will start no more: the source
// closes, so that P frees at once.
func (r *Reading) Finish() error {
	r.core.enter()
	defer r.core.leave()
	return r.core.stepSource(handoff.SourceInput{Event: handoff.SourceFinish, Attempt: r.attempt, Grant: r.grant}).Err()
}

// MaxJoined bounds the connections of one reading beside the first one.
const MaxJoined = 16

// Join lets one more connection of the same holder read, until leave is called. It
// presents the capability as the first one did, and ends with it: nothing of it
// begins once Stopped is closed.
func (c *Core) Join(a handoff.Attempt, token []byte, h Holder) (r *Reading, leave func(), err error) {
	right, err := capability.Verify(c.key, token, capability.Presented{Attempt: a, Source: c.cfg.Node, Incarnation: c.cfg.Incarnation, Holder: h.Node, Now: c.now()})
	c.enter()
	defer c.leave()
	if err != nil {
		return nil, nil, c.denied(a, token, err)
	}
	s, l := c.sources.Get(a), c.lent[a]
	switch {
	case s == nil || l == nil || l.reading == nil || isClosed(l.reading.stopped):
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeNotReady, "nobody reads this source: a pull comes first"))
	case s.Grant != right.Grant:
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeStaleToken, "the capability is of another grant"))
	case s.Plan.D.Incarnation != h.Incarnation:
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeStaleIncarnation, "the plan's D is in its life %d, this is %d", s.Plan.D.Incarnation, h.Incarnation))
	case l.reading.joined >= MaxJoined:
		return nil, nil, c.refused(machineSource, a, "read", handoff.Errorf(handoff.CodeCapacity, "%d connections read this source", MaxJoined+1))
	}
	r = l.reading
	r.joined++
	return r, r.left, nil
}

func (r *Reading) left() {
	r.core.enter()
	defer r.core.leave()
	if r.joined--; r.joined == 0 && r.alone != nil {
		close(r.alone)
	}
}

// desert stops the reading and waits until no other connection is left in it.
func (r *Reading) desert() {
	r.core.enter()
	r.stop()
	var wait chan struct{}
	if r.joined > 0 && r.alone == nil {
		r.alone = make(chan struct{})
		wait = r.alone
	}
	r.core.leave()
	if wait != nil {
		<-wait
	}
}

// Destroy says that the connection is gone and that nothing of it looks at the
// memory any more; it waits for those that joined. It comes last, from the
// goroutine that read.
func (r *Reading) Destroy() {
	r.desert()
	c := r.core
	c.enter()
	defer c.leave()
	if isClosed(r.ended) {
		return
	}
	close(r.ended)
	if r.source.reading == r {
		r.source.reading = nil
	}
	if r.stuck {
		return
	}
	c.stepSource(handoff.SourceInput{Event: handoff.SourceDestroy, Attempt: r.attempt, Grant: r.grant})
	c.settleSource(r.attempt)
}
