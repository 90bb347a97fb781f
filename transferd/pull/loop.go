package pull

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/transport"
)

// status of a piece in this pull.
type status uint8

const (
	absent   status = iota
	asked           // posted: its memory may be written
	arriving        // its bytes are being read into place
	here
)

// loop is the state of one pull. Only its goroutine touches it, except lane.
type loop struct {
	run     *Run
	landing *fence.Landing
	shape   handoff.Shape
	grant   handoff.GrantID

	ready    []wire.Run // announced, in the order of announcing
	status   []status
	checks   []uint32 // of pieces that are here
	digests  []uint32 // sealed by P; nil before
	manifest handoff.Digest
	repulls  map[uint32]int  // of pieces that differed
	held     map[uint32]bool // pieces that D's engine vouches for; nil before they count as landed
	inFlight uint64          // bytes asked for and not here
	nonce    handoff.Nonce   // of the question that waits for an answer
	done     bool

	staged [][]byte // the places of the batch that comes, when memory has no views
	buffer []byte

	began, lastByte time.Time // of the bytes
	progress        time.Time // when something last went forward
	result          fence.Pulled

	mu   sync.Mutex
	lane transport.Lane // nil between connections
	over bool           // no lane may be opened any more
}

func newLoop(r *Run) *loop {
	n := r.landing.Shape().Pieces()
	return &loop{run: r, landing: r.landing, shape: r.landing.Shape(), status: make([]status, n), checks: make([]uint32, n),
		repulls: map[uint32]int{}, progress: time.Now()}
}

// start runs the pull to its end and gives the target back to the fence.
func (l *loop) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var tending sync.WaitGroup
	tending.Go(func() { l.tend(ctx) })
	err := l.pull(ctx)
	cancel()
	tending.Wait()
	l.landing.End()
	if err != nil {
		l.run.err = err
		close(l.run.done)
	}
}

// pull goes on over as many connections as it takes, until the target is
// validated, or the pull failed for good and the target is closed.
func (l *loop) pull(ctx context.Context) error {
	rails := strings.Split(l.run.spec.SourceAddress, ",")
	for {
		before := l.progress
		address, _ := l.run.puller.rails.Choose(time.Now(), rails)
		err := l.connection(ctx, address)
		if err == nil {
			return nil
		}
		if l.isOver() {
			return l.landing.Why()
		}
		if l.progress.After(before) {
			l.run.puller.rails.Worked(address)
		}
		pause := l.blame(err, address, rails)
		another := pause == 0 // nobody answered by this rail, one is left
		if handoff.CodeOf(err).Advice() != handoff.RetrySame && !another {
			return l.fail(err)
		}
		if time.Since(l.progress) >= l.run.spec.ProgressDeadline {
			return l.fail(handoff.Errorf(handoff.CodeProgress, "nothing new for %s: %s", l.run.spec.ProgressDeadline, err))
		}
		select {
		case <-time.After(min(pause, backoffMax)):
		case <-l.landing.Stopped():
		}
	}
}

// blame pauses the rail that broke, and says in how long there is one again.
func (l *loop) blame(err error, address string, rails []string) time.Duration {
	if c := handoff.CodeOf(err); c != handoff.CodeUnavailable && c != handoff.CodeProgress {
		return backoffMax // the peer answered: the rail is well
	}
	book := &l.run.puller.rails
	now := time.Now()
	book.Failed(now, address)
	_, pause := book.Choose(now, rails)
	return pause
}

func (l *loop) isOver() bool {
	select {
	case <-l.landing.Stopped():
		return true
	default:
		return false
	}
}

// fail closes the target for good.
func (l *loop) fail(err error) error {
	end := l.landing.Abandon
	if handoff.CodeOf(err) == handoff.CodeNotValidated {
		end = func(handoff.Code) error { return l.landing.No() }
	}
	if end(handoff.CodeOf(err)) != nil {
		return l.landing.Why() // it was over already
	}
	return err
}

// tend pings TP so that the grant's lease is renewed by the holder's daemon
// and cuts the connection once the target is over.
func (l *loop) tend(ctx context.Context) {
	every := min(handoff.RenewEvery(l.run.puller.cfg.Core.Lease()), l.run.spec.ProgressDeadline/4)
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.landing.Stopped():
			l.mu.Lock()
			l.over = true
			if l.lane != nil {
				l.lane.Interrupt()
			}
			l.mu.Unlock()
			return
		case <-ticker.C:
			l.mu.Lock()
			if l.lane != nil {
				_ = l.lane.Ping() // a broken connection shows in the next Step
			}
			l.mu.Unlock()
		}
	}
}

// connection pulls over one connection until it is done or the connection broke.
// Afterwards nothing that was asked for over it can land any more.
func (l *loop) connection(ctx context.Context, address string) error {
	lane, err := l.open(ctx, address)
	if err != nil {
		return err
	}
	defer l.disconnect(lane)
	if err := l.shape.Match(lane.Source().Shape); err != nil {
		return err // before the first byte (S7)
	}
	l.grant, l.result.Lane = lane.Source().Grant, lane.Name()
	if err := l.settleHeld(); err != nil {
		return err
	}
	for {
		if err := l.ask(lane); err != nil {
			return err
		}
		if err := l.verify(lane); err != nil {
			return err
		}
		if l.done {
			l.release()          // nothing is posted: the target's end need not cut this connection
			err := lane.Finish() // TP then frees at once instead of by its lease
			if err != nil {
				l.run.puller.cfg.Log.Debug("finish did not reach the source", "attempt", l.run.spec.Plan.Attempt.String(), "error", err)
			}
			l.run.puller.rails.Worked(address)
			l.run.result = l.result
			close(l.run.done) // before the connection is lingered on
			return nil
		}
		if err := lane.Step(l.run.spec.ProgressDeadline); err != nil {
			return err
		}
		if l.inFlight == 0 {
			l.progress = time.Now() // TP lives; there is nothing to read yet
		}
	}
}

// settleHeld counts the pieces of a prefix that D's engine has as landed, once.
func (l *loop) settleHeld() error {
	held := l.landing.Held()
	if len(held) == 0 || l.held != nil {
		return nil
	}
	if err := l.landing.Post(held, l.grant); err != nil {
		return err
	}
	l.held = map[uint32]bool{}
	for _, p := range held {
		l.held[p], l.status[p] = true, here
	}
	return l.landing.Landed(held, 0)
}

func (l *loop) open(ctx context.Context, address string) (transport.Lane, error) {
	left := max(l.run.spec.ProgressDeadline-time.Since(l.progress), backoffMax)
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	p := l.run.spec.Plan
	to := transport.Target{Address: address, Node: p.P.Node, Instance: p.P.Incarnation, Attempt: p.Attempt, Capability: l.run.spec.Capability, Unchecked: l.run.spec.Unchecked}
	how, err := l.run.puller.transport(l.run.spec, to)
	if err != nil {
		return nil, err
	}
	lane, err := how.Open(ctx, to, l)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		lane.Close()
		return nil, l.landing.Why()
	}
	l.lane = lane
	return lane, nil
}

// release takes the lane out of the reach of tend.
func (l *loop) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lane = nil
}

// disconnect ends the connection, then says so: what was posted is over.
func (l *loop) disconnect(lane transport.Lane) {
	l.release()
	lane.Close()
	l.landing.Destroyed()
	for i, s := range l.status {
		if s != here {
			l.status[i] = absent
		}
	}
	l.ready, l.inFlight, l.nonce = nil, 0, 0
}

// ask posts and asks for announced pieces while the window has room. It refills
// when half of it is free, so that one READ names many pieces.
func (l *loop) ask(lane transport.Lane) error {
	if l.inFlight > WindowBytes/2 || len(l.ready) == 0 {
		return nil
	}
	var pieces []uint32
	bytes := l.inFlight
	for len(l.ready) > 0 && bytes < WindowBytes {
		r := &l.ready[0]
		if l.status[r.First] == absent {
			bytes += uint64(l.landing.Length(r.First))
			if bytes > WindowBytes && len(pieces) > 0 {
				break
			}
			pieces = append(pieces, r.First)
			l.status[r.First] = asked
		}
		r.First++
		if r.Count--; r.Count == 0 {
			l.ready = l.ready[1:]
		}
	}
	if len(pieces) == 0 {
		return nil
	}
	if err := l.landing.Post(pieces, l.grant); err != nil {
		return err
	}
	if l.began.IsZero() {
		l.began = time.Now()
	}
	runs := wire.Runs(pieces)
	for len(runs) > 0 {
		n := min(len(runs), wire.MaxRuns)
		if err := lane.Read(runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	for _, p := range pieces {
		l.inFlight += uint64(l.landing.Length(p))
	}
	return nil
}

// verify compares what landed with what P sealed, and asks the question.
func (l *loop) verify(lane transport.Lane) error {
	if l.digests == nil || l.nonce != 0 || l.done {
		return nil
	}
	switch l.landing.State() {
	case handoff.TargetLanded:
		bad, err := l.compare()
		if err != nil || bad {
			return err
		}
		if err := l.landing.Verify(l.manifest); err != nil {
			return err
		}
	case handoff.TargetVerified: // an earlier connection was lost before the answer
	default:
		return nil
	}
	nonce := handoff.Nonce(rand.Uint64() | 1)
	if err := l.landing.Ask(nonce, l.grant); err != nil {
		return err
	}
	l.nonce = nonce
	return lane.Ask(wire.Question{Grant: l.grant, Incarnation: l.run.spec.Plan.P.Incarnation, Manifest: l.manifest, Token: l.landing.Token(), Nonce: nonce})
}

// compare takes back every landed piece whose bytes are not what P sealed.
func (l *loop) compare() (bad bool, err error) {
	if l.run.spec.Unchecked {
		return false, nil
	}
	for i, d := range l.digests {
		piece := uint32(i)
		if l.checks[i] == d || l.held[piece] {
			continue
		}
		if err := l.landing.Misverify(piece); err != nil {
			return true, err
		}
		bad = true
		if err := l.again(piece, "the sealed digest"); err != nil {
			return true, err
		}
	}
	return bad, nil
}

// again queues a piece whose bytes differ for another read, once.
func (l *loop) again(piece uint32, from string) error {
	l.status[piece] = absent
	if l.repulls[piece]++; l.repulls[piece] > MaxRepulls {
		return handoff.Errorf(handoff.CodeIntegrity, "piece %d differs from %s after %d reads", piece, from, l.repulls[piece])
	}
	l.result.Repulled++
	l.ready = append(l.ready, wire.Run{First: piece, Count: 1})
	return nil
}
