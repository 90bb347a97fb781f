package fence

import (
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/segment"
)

// Pulled is what a finished pull did; a repeat of it is answered with it.
type Pulled struct {
	Bytes      uint64
	Pieces     uint32
	Lane       string
	Manifest   handoff.Digest
	WireMicros uint64
	// ScatterMicros is what of it went into scattering staged pieces into place.
	ScatterMicros uint64
	Repulled      uint32
}

// Landing is one pull's right to write one target's memory. A target has one at
// a time. Every write is between Post and Land, Fail or Destroyed.
type Landing struct {
	core    *Core
	target  *target
	plan    handoff.Plan
	token   handoff.Token
	shape   handoff.Shape
	stopped chan struct{} // closed once the target is over
	bytes   uint64        // that landed; guarded by core.mu
	lane    string        // guarded by core.mu
	stuck   bool          // a write failed that may still land; guarded by core.mu
}

// Land begins a pull into the open target of plan. When an earlier pull already
// validated it the answer is its result; when one runs, CodeConflict.
func (c *Core) Land(p handoff.Plan, token handoff.Token) (*Landing, *Pulled, error) {
	c.enter()
	defer c.leave()
	if err := c.targetServed(p); err != nil {
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", err)
	}
	r, t := c.targets.Get(p.Attempt), c.held[p.Attempt]
	switch {
	case c.stopped:
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(handoff.CodeUnavailable, "the daemon is stopping"))
	case r == nil && (p.D.Node != c.cfg.Node || p.D.Incarnation != c.cfg.Incarnation):
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(handoff.CodeStaleIncarnation, "this is another life of the daemon"))
	case r == nil:
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(handoff.CodeNotReady, "target not open"))
	case r.State == handoff.TargetClosed:
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(closedCode(r.Cause, handoff.CodeClosed), "the target is closed (%s)", r.Cause))
	case r.State == handoff.TargetAborted || t == nil:
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(handoff.CodeAborted, "the target was committed and is over (%s)", r.Cause))
	case token != r.Token():
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(handoff.CodeStaleToken, "%s", token))
	case r.State >= handoff.TargetValidated && t.pulled != nil:
		return nil, t.pulled, nil
	case r.State >= handoff.TargetValidated:
		return nil, &Pulled{Manifest: r.Manifest}, nil // adopted: how it came here is not known any more
	case t.landing != nil:
		return nil, nil, c.refused(machineTarget, p.Attempt, "pull", handoff.Errorf(handoff.CodeConflict, "a pull of this target runs"))
	}
	l := &Landing{core: c, target: t, plan: p, token: token, shape: r.Shape, stopped: make(chan struct{})}
	t.landing = l
	return l, nil, nil
}

// RefusePull counts and tells of a pull that was refused before it came to Land.
func (c *Core) RefusePull(a handoff.Attempt, why error) error {
	c.enter()
	defer c.leave()
	return c.refused(machineTarget, a, "pull", why)
}

// stop is called under the core's lock.
func (l *Landing) stop() {
	if !isClosed(l.stopped) {
		close(l.stopped)
	}
}

// Plan is what is pulled.
func (l *Landing) Plan() handoff.Plan { return l.plan }

// Token is τ.
func (l *Landing) Token() handoff.Token { return l.token }

// Shape is what must land.
func (l *Landing) Shape() handoff.Shape { return l.shape }

// Held are the pieces that the engine vouches for: they are neither read nor
// written. The slice must not be changed.
func (l *Landing) Held() []uint32 { return l.target.have }

// Stopped is closed once the target is over: no write may begin any more.
func (l *Landing) Stopped() <-chan struct{} { return l.stopped }

// View is the memory of a piece, nil when it is not mapped here; to be written
// only while it is posted.
func (l *Landing) View(piece uint32) []byte {
	return l.target.engine.Segment.View(l.target.extents[piece])
}

// Layout is what the target's layout stands for; nil when its engine did not say.
func (l *Landing) Layout() (*layout.Described, []byte) {
	return l.target.engine.Described, l.target.engine.Encoded
}

// Extent is the place of bytes of a piece, which lie inside of it.
func (l *Landing) Extent(piece, at, bytes uint32) segment.Extent {
	e := l.target.extents[piece]
	if at > e.Length || bytes > e.Length-at {
		panic("fence: bytes outside of their piece")
	}
	return segment.Extent{At: e.At + uint64(at), Length: bytes}
}

// Write copies staged bytes into extents of posted pieces.
func (l *Landing) Write(to []segment.Extent, from [][]byte) error {
	began := time.Now()
	err := l.target.engine.Segment.Write(to, from)
	l.core.took(&l.core.totals.scattering, time.Since(began))
	if segment.IsNotQuiescent(err) {
		l.core.enter()
		defer l.core.leave()
		l.stuck = true
		l.core.tellStuck("target", l.plan.Attempt)
	}
	return err
}

// rereadBytes is how much of a piece is read under the core's lock at a time.
const rereadBytes = 1 << 20

// Reread takes the checksum of what lies in a landed piece's memory now. Nothing is
// posted then that keeps that memory from being freed and unmapped, so each stretch
// is read under the lock, while the target is live.
func (l *Landing) Reread(piece uint32) (sum uint32, err error) {
	var buffer []byte
	for at, length := uint32(0), l.Length(piece); at < length; at += rereadBytes {
		if sum, err = l.reread(sum, l.Extent(piece, at, min(rereadBytes, length-at)), &buffer); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

func (l *Landing) reread(sum uint32, e segment.Extent, buffer *[]byte) (uint32, error) {
	l.core.enter()
	defer l.core.leave()
	if r := l.core.targets.Get(l.plan.Attempt); r == nil || !r.State.Live() {
		return 0, handoff.Errorf(handoff.CodeClosed, "the target is over")
	}
	s := l.target.engine.Segment
	if b := s.View(e); b != nil {
		return wire.MoreChecksum(sum, b), nil
	}
	if *buffer == nil {
		*buffer = make([]byte, rereadBytes)
	}
	b := (*buffer)[:e.Length]
	err := s.Read([]segment.Extent{e}, [][]byte{b})
	return wire.MoreChecksum(sum, b), err
}

// Length is the size of a piece of this target's shape.
func (l *Landing) Length(piece uint32) uint32 { return l.target.extents[piece].Length }

func (l *Landing) step(in handoff.TargetInput) handoff.TargetAnswer {
	in.Attempt, in.Token = l.plan.Attempt, l.token
	return l.core.stepTarget(in)
}

// Post says that n operations may write the memory from now on; all or none.
func (l *Landing) Post(n int, g handoff.GrantID) error {
	l.core.enter()
	defer l.core.leave()
	if n == 0 {
		return nil
	}
	return l.step(handoff.TargetInput{Event: handoff.TargetPost, Grant: g, Count: uint32(n)}).Err()
}

// Landed ends an operation for each piece, which is in place, and partial more,
// which wrote a part of a piece.
func (l *Landing) Landed(pieces []uint32, partial int, bytes uint64) error {
	l.core.enter()
	defer l.core.leave()
	l.core.totals.pulledBytes += bytes
	l.bytes += bytes
	for len(pieces) > 0 {
		n := stretch(pieces)
		if err := l.step(handoff.TargetInput{Event: handoff.TargetLand, Piece: pieces[0], Count: uint32(n)}).Err(); err != nil {
			return err
		}
		pieces = pieces[n:]
	}
	l.fail(partial)
	return nil
}

// stretch is how many of the first pieces are consecutive: one step is for them all.
func stretch(pieces []uint32) int {
	n := 1
	for n < len(pieces) && pieces[n] == pieces[n-1]+1 {
		n++
	}
	return n
}

// Failed ends n posted operations without a landing.
func (l *Landing) Failed(n int) {
	l.core.enter()
	defer l.core.leave()
	l.fail(n)
}

func (l *Landing) fail(n int) {
	if l.stuck {
		return
	}
	if n > 0 {
		l.step(handoff.TargetInput{Event: handoff.TargetFail, Count: uint32(n)})
	}
	l.core.settleTarget(l.plan.Attempt)
}

// Destroyed says that the connection is gone and nothing posted through it can
// land any more. A write that may still land is no connection's: it keeps the target
// quarantined as long as this process lives.
func (l *Landing) Destroyed() {
	l.core.enter()
	defer l.core.leave()
	if l.stuck {
		return
	}
	if r := l.core.targets.Get(l.plan.Attempt); r == nil || r.Posted == 0 {
		return // everything had landed or failed: no news
	}
	l.step(handoff.TargetInput{Event: handoff.TargetDestroy})
	l.core.settleTarget(l.plan.Attempt)
}

// Progress is how far a target is.
type Progress struct {
	State         handoff.TargetState
	Pieces, Total uint32 // landed, of how many
	Bytes         uint64 // that came, read again ones twice
	Lane          string // the transport that is used; empty before the source was reached
}

// By says which transport is used from now on.
func (l *Landing) By(lane string) {
	l.core.enter()
	defer l.core.leave()
	l.lane = lane
}

// Progress is how far the pull is.
func (l *Landing) Progress() Progress {
	l.core.enter()
	defer l.core.leave()
	p := Progress{Total: l.shape.Pieces(), Bytes: l.bytes, Lane: l.lane}
	if r := l.core.targets.Get(l.plan.Attempt); r != nil {
		p.State, p.Pieces = r.State, p.Total-min(r.Left, p.Total)
	}
	return p
}

// State is the target's present state.
func (l *Landing) State() handoff.TargetState {
	l.core.enter()
	defer l.core.leave()
	if r := l.core.targets.Get(l.plan.Attempt); r != nil {
		return r.State
	}
	return handoff.TargetUnknown
}

// Why is the refusal of whoever comes after the target was stopped.
func (l *Landing) Why() error {
	l.core.enter()
	defer l.core.leave()
	r := l.core.targets.Get(l.plan.Attempt)
	if r == nil {
		return handoff.Errorf(handoff.CodeClosed, "the target is not known any more")
	}
	if r.State.Live() {
		return handoff.Errorf(handoff.CodeUnavailable, "the daemon is stopping")
	}
	plain := handoff.CodeClosed
	if r.State == handoff.TargetAborted {
		plain = handoff.CodeAborted
	}
	return handoff.Errorf(closedCode(r.Cause, plain), "the target is %s (%s)", r.State, r.Cause)
}

// Misverify takes a landed piece back: its bytes are not what P sealed.
func (l *Landing) Misverify(piece uint32) error {
	return l.locked(handoff.TargetInput{Event: handoff.TargetMisverify, Piece: piece})
}

// Verify says that everything landed and equals the sealed digests.
func (l *Landing) Verify(m handoff.Digest) error {
	return l.locked(handoff.TargetInput{Event: handoff.TargetVerify, Manifest: m})
}

// Ask mints the question of the validated read; question is fresh.
func (l *Landing) Ask(question handoff.Nonce, g handoff.GrantID) error {
	return l.locked(handoff.TargetInput{Event: handoff.TargetAsk, Question: question, Grant: g})
}

// Yes takes TP's yes to this very question.
func (l *Landing) Yes(question handoff.Nonce, g handoff.GrantID, m handoff.Digest, done Pulled) error {
	l.core.enter()
	defer l.core.leave()
	ans := l.step(handoff.TargetInput{Event: handoff.TargetYes, Question: question, Grant: g, Manifest: m})
	if ans.Err() == nil {
		l.target.pulled = &done
	}
	return ans.Err()
}

// No takes TP's no: the attempt is closed.
func (l *Landing) No() error { return l.locked(handoff.TargetInput{Event: handoff.TargetNo}) }

// Abandon closes the target: the pull failed for good.
func (l *Landing) Abandon(cause handoff.Code) error {
	return l.locked(handoff.TargetInput{Event: handoff.TargetAbandon, Cause: cause})
}

func (l *Landing) locked(in handoff.TargetInput) error {
	l.core.enter()
	defer l.core.leave()
	return l.step(in).Err()
}

// End gives the right back; nothing is posted any more.
func (l *Landing) End() {
	l.core.enter()
	defer l.core.leave()
	if l.target.landing == l {
		l.target.landing = nil
	}
}
