package pull

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/transport"
)

// status of a piece of P in this pull.
type status uint8

const (
	absent   status = iota
	asked           // it comes to a slot
	posted          // it comes straight into D's memory, which may be written from now on
	arriving        // its bytes are being read into place
	here
	unneeded // another rank has the same, or D's engine has it already
)

// loop is the state of one pull: a lane's streams land at once, its goroutine asks
// and verifies in between.
type loop struct {
	run     *Run
	landing *fence.Landing
	rail    string // of the present connection

	state    sync.Mutex // guards the rest, up to result
	fit      *fit       // nil before a source was met
	grant    handoff.GrantID
	ready    []wire.Run // announced, in the order of announcing
	status   []status   // of P's pieces
	checks   []uint32   // of pieces that are here
	digests  []uint32   // sealed by P; nil before
	manifest handoff.Digest
	repulls  map[uint32]int // of pieces that differed
	inFlight uint64         // bytes asked for and not here
	nonce    handoff.Nonce  // of the question that waits for an answer
	done     bool
	staging  ring

	wanted, inPlace []uint32 // of the batch that is asked for

	began, lastByte time.Time // of the bytes
	scattering      time.Duration
	progress        time.Time // when something last went forward
	result          fence.Pulled

	mu   sync.Mutex
	lane transport.Lane // nil between connections
	over bool           // no lane may be opened any more
}

func newLoop(r *Run) *loop {
	return &loop{run: r, landing: r.landing, repulls: map[uint32]int{}, progress: time.Now(), staging: ring{pool: &r.puller.slots}}
}

// meet learns what there is to read, before the first byte (S7). Every later
// connection must lead to the same.
func (l *loop) meet(s wire.Source) error {
	l.state.Lock()
	defer l.state.Unlock()
	l.grant = s.Grant
	if l.fit != nil {
		return s.Shape.Match(l.fit.source)
	}
	f, err := newFit(l.landing, s, &l.run.puller.plans)
	if err != nil {
		return err
	}
	n := s.Shape.Pieces()
	l.fit, l.status, l.checks = f, make([]status, n), make([]uint32, n)
	return l.settleHeld()
}

// settleHeld counts the pieces of a prefix that D's engine has as landed, once.
func (l *loop) settleHeld() error {
	held := l.landing.Held()
	if len(held) == 0 {
		return nil
	}
	if err := l.landing.Post(len(held), l.grant); err != nil {
		return err
	}
	return l.landing.Landed(held, 0, 0)
}

// start runs the pull to its end and gives the target back to the fence.
func (l *loop) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ctx, span := tracing.Start(tracing.With(ctx, l.run.spec.Trace), tracing.SpanPull, l.run.spec.Plan.Attempt)
	var tending sync.WaitGroup
	tending.Go(func() { l.tend(ctx) })
	err := l.pull(ctx)
	cancel()
	tending.Wait()
	l.landing.End()
	l.describe(span)
	span.End(err)
	if err != nil {
		l.run.err = err
		close(l.run.done)
	}
}

// describe says how much a pull moved, and by which lane, whatever became of it.
func (l *loop) describe(span tracing.Span) {
	p := l.landing.Progress()
	span.Number(tracing.KeyBytes, p.Bytes)
	span.Number(tracing.KeyPieces, uint64(p.Pieces))
	if p.Lane != "" {
		span.Text(tracing.KeyLane, p.Lane)
	}
}

// pull goes on over as many connections as it takes, until the target is
// validated, or the pull failed for good and the target is closed.
func (l *loop) pull(ctx context.Context) error {
	rails := strings.Split(l.run.spec.SourceAddress, ",")
	for {
		before := l.progress
		address, _ := l.run.puller.rails.Choose(time.Now(), rails)
		l.rail = address
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
	if err := l.meet(lane.Source()); err != nil {
		return err
	}
	l.result.Lane = lane.Name()
	l.landing.By(lane.Name())
	for {
		if err := l.Advance(lane); err != nil {
			return err
		}
		if l.isDone() {
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
		l.alive()
	}
}

func (l *loop) isDone() bool {
	l.state.Lock()
	defer l.state.Unlock()
	return l.done
}

// alive says that TP lives; it is progress while there is nothing to read.
func (l *loop) alive() {
	l.state.Lock()
	defer l.state.Unlock()
	if l.inFlight == 0 {
		l.progress = time.Now()
	}
}

func (l *loop) open(ctx context.Context, address string) (transport.Lane, error) {
	left := max(l.run.spec.ProgressDeadline-time.Since(l.progress), backoffMax)
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	p := l.run.spec.Plan
	to := transport.Target{Address: address, Node: p.P.Node, Instance: p.P.Incarnation, Attempt: p.Attempt, Capability: l.run.spec.Capability, Unchecked: l.run.spec.Unchecked}
	if capability.TakesTrace(to.Capability) {
		to.Trace = tracing.Text(ctx)
	}
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

// disconnect ends the connection, then says so: what was asked for is over.
func (l *loop) disconnect(lane transport.Lane) {
	l.release()
	lane.Close()
	l.landing.Destroyed()
	l.state.Lock()
	defer l.state.Unlock()
	for i, s := range l.status {
		if s != here && s != unneeded {
			l.status[i] = absent
		}
	}
	l.arrived(l.inFlight)
	l.staging.destroyed()
	l.ready, l.nonce = nil, 0
}
