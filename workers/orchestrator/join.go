package orchestrator

import (
	"cmp"
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// stateWithin bounds a question to a running workflow: the task of a worker that
// died goes to another after its timeout, and the question after the task.
const stateWithin = 2*workflows.TaskTimeout + time.Second

// joinTries bounds how often one submit looks again who holds its key.
const joinTries = 4

// Peer follows streams that other gateways read.
type Peer interface {
	// Follow reads the stream from its first token on. CodeUnavailable when the
	// gateway does not answer, CodeGone when it no longer holds the stream.
	Follow(ctx context.Context, address, tenant, id string, each func(Event) error) error
}

// holder is what is known of the run that holds a key.
type holder struct {
	handoff handoff.HandoffID // by the ledger; empty: not known
	owner   string            // its gateway
	settled string            // the ledger's outcome; empty: not settled
}

// join takes care of a stream whose key another run holds:
//
//	its gateway reads it        the stream is a copy of that gateway's
//	it ended committed          gone: such an outcome sticks, and its stream is not held
//	somebody else ended it      as that: nobody can say what it had come to
//	it ended refused, or never  the key is free: a run of our own
//	  became durable
//	it is ending                wait for its end, then as above
//	it runs, its reader is gone this process becomes the reader (rule 5c, clause 7)
func (o *Orchestrator) join(s *stream, id string, r Request, h holder, tries int) {
	ctx, cancel := context.WithCancel(o.life)
	s.mu.Lock()
	s.abandoned = func() {
		s.forgo()
		s.fail(handoff.Errorf(handoff.CodeCancelled, whyLeft)) // first: the look-up asks whether it is over
		cancel()
	}
	s.mu.Unlock()
	o.background(func(context.Context) {
		defer cancel()
		if err := o.joined(ctx, s, id, r, h, tries); err != nil {
			o.refuse(s, err)
		}
	})
}

func (o *Orchestrator) joined(ctx context.Context, s *stream, id string, r Request, h holder, tries int) error {
	in := steps.Input{Tenant: r.Tenant, ID: id, Key: keyHash(r), Deadline: r.Deadline, Decode: o.cfg.Decode, Lease: o.cfg.Lease}
	in.Plan.BodyDigest = r.Body
	for ; tries > 0 && !s.isOver(); tries-- {
		if done, err := o.copyOf(ctx, s, in, h.owner); done {
			return err
		}
		run, err := o.describeRun(ctx, in, o.cfg.StartTimeout)
		settled := h.settled != "" && (err == nil || gone(err)) && run.status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		switch {
		case settled, run.status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED && run.body == bodyText(r.Body):
			return o.sticks(ctx, s, in, run, h)
		case gone(err):
			return o.again(ctx, s, in, r, h, tries)
		case err != nil:
			return err
		case run.body != bodyText(r.Body):
			return handoff.Errorf(handoff.CodeKeyReused, "the idempotency key was used with another body")
		case run.status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, run.status == enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
			h.settled = "ended from outside"
			return o.sticks(ctx, s, in, run, h)
		case run.status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
			return o.again(ctx, s, in, r, h, tries)
		}
		next, done, err := o.takeOver(ctx, s, in, r, run)
		if done || err != nil {
			return err
		}
		h.owner = next
	}
	return handoff.Errorf(handoff.CodeUnavailable, "the run that holds this key changed too often")
}

// sticks is a committed outcome: the stream that its last reader may still hold,
// or none.
func (o *Orchestrator) sticks(ctx context.Context, s *stream, in steps.Input, run runFacts, h holder) error {
	if run.status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		if st, err := o.state(ctx, in); err == nil && st.Address != h.owner {
			if done, err := o.copyOf(ctx, s, in, st.Address); done {
				return err
			}
		}
	}
	if done, err := o.replay(ctx, s, in, h); done {
		return err
	}
	return handoff.Errorf(handoff.CodeGone, "the handoff is over (%s); its stream is not held", cmp.Or(h.settled, "committed"))
}

// copyOf makes s a copy of the stream that owner reads; done once that told
// anything: one reader's stream is never continued from another's.
func (o *Orchestrator) copyOf(ctx context.Context, s *stream, in steps.Input, owner string) (done bool, err error) {
	peer, ok := o.cfg.Remote.(Peer)
	if !ok || owner == "" || owner == o.cfg.Process {
		return false, nil
	}
	s.mu.Lock()
	s.role = roleCopy
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, in.Deadline+in.Decode)
	defer cancel()
	err = peer.Follow(ctx, owner, in.Tenant, in.ID, func(e Event) error {
		s.repeat(e)
		return nil
	})
	switch {
	case s.isOver():
		return true, nil
	case s.heard():
		position, _ := s.place(handoff.Attempt{})
		return true, handoff.Errorf(handoff.CodeStreamBroken, "after position %d: the gateway that reads this handoff ended the stream: %v", position, err)
	}
	s.mu.Lock()
	s.role = roleNone
	s.mu.Unlock()
	return false, nil
}

// again frees the key of a run that is no more and begins one of our own.
func (o *Orchestrator) again(ctx context.Context, s *stream, in steps.Input, r Request, h holder, tries int) error {
	if r.attach {
		return o.sticks(ctx, s, in, runFacts{}, holder{settled: "refused"})
	}
	o.unclaim(ctx, in, h.handoff)
	return o.begin(ctx, s, in.ID, r, tries-1)
}

// takeOver makes this process the reader of a run whose reader does not answer.
// It reads only once history names it (rule 5c, clause 7); the workflow then
// tells it the newest planned attempt. Not done: look again, at next's gateway.
func (o *Orchestrator) takeOver(ctx context.Context, s *stream, in steps.Input, r Request, run runFacts) (next string, done bool, err error) {
	st, err := o.state(ctx, in)
	switch {
	case gone(err):
		return "", false, nil
	case err != nil:
		return "", false, err
	case st.Outcome != nil, o.local(steps.ReaderAt{Reader: st.Reader}):
		// Ending; or our own stream of it was: the client comes back too soon.
		return "", false, o.awaitEnd(ctx, in, run)
	case st.Address != run.owner && st.Address != o.cfg.Process:
		if done, err := o.copyOf(ctx, s, in, st.Address); done {
			return "", true, err
		}
	}
	me := handoff.Reader{Process: o.cfg.Process, Incarnation: o.incarnation, Number: st.Reader.Number + 1}
	full, err := o.readerInput(ctx, r, st)
	if err != nil {
		return "", false, err
	}
	release := o.adoptAs(s, full, me)
	named, err := o.nameReader(ctx, in, me)
	switch {
	case gone(err):
		release()
		return "", false, nil
	case err != nil:
		release()
		if s.isOver() { // its client left while history was being asked
			o.recording(func(ctx context.Context) { o.letGo(ctx, full, me) })
		}
		return "", false, err
	case named.Outcome != nil:
		release()
		return "", false, o.awaitEnd(ctx, in, run)
	case named.Reader != me:
		release()
		return named.Address, false, nil // another gateway was faster
	}
	o.preload(ctx, s, full, me)
	o.keepReading(s, full)
	return "", true, nil
}

// readerInput is the running handoff's input as its reader needs it.
func (o *Orchestrator) readerInput(ctx context.Context, r Request, st steps.State) (in steps.Input, err error) {
	in = st.Input
	in.Plan, in.Route = st.Plan, st.Route
	if in.Plan.BodyDigest != r.Body {
		return in, handoff.Errorf(handoff.CodeKeyReused, "the idempotency key was used with another body")
	}
	body := bodyOf(r)
	if r.attach {
		body, err = o.bodies.Body(ctx, in.Tenant, in.Plan.Attempt.Handoff)
		if c := handoff.CodeOf(err); c == handoff.CodeGone || c == handoff.CodeStaleIncarnation {
			return in, nil // nobody keeps it; needed for another epoch only
		}
		if err != nil {
			return in, err
		}
	}
	return in, o.bodies.keep(in, body)
}

// adoptAs prepares s to be told; until history names this process, a client
// that leaves only ends this look-up. The function takes everything back.
func (o *Orchestrator) adoptAs(s *stream, in steps.Input, me handoff.Reader) (release func()) {
	s.mu.Lock()
	lookup := s.abandoned
	s.loaded, s.broken = nil, true // told at once: the plan may come before anything else
	if in.Journal && o.cfg.Journal != nil {
		s.loaded, s.broken = make(chan struct{}), false
	}
	s.mu.Unlock()
	o.adopt(s, in, me)
	s.mu.Lock()
	s.abandoned = lookup
	s.mu.Unlock()
	return func() { o.withdraw(s, in) }
}

// withdraw takes back that s reads in's run.
func (o *Orchestrator) withdraw(s *stream, in steps.Input) {
	o.bodies.drop(in.Plan.Attempt.Handoff)
	o.hub.unnamed(in.Plan.Attempt.Handoff, s)
	s.mu.Lock()
	s.role, s.broken = roleNone, false
	s.in.Plan = handoff.Plan{}
	s.mu.Unlock()
}

// keepReading makes the named reader responsible: its client's leaving cancels
// the handoff, and so does its deadline.
func (o *Orchestrator) keepReading(s *stream, in steps.Input) {
	s.mu.Lock()
	left := s.done
	s.abandoned = func() { o.abandon(s, in) }
	s.mu.Unlock()
	if left { // while it was being named
		o.recording(func(ctx context.Context) { o.tellCancel(ctx, in, whyLeft) })
		return
	}
	o.background(func(ctx context.Context) { o.deadline(ctx, s, in) })
}

// letGo cancels a handoff that history names this process for, though its client
// has left: nobody would read it, and it would decode to its end.
func (o *Orchestrator) letGo(ctx context.Context, in steps.Input, me handoff.Reader) {
	st, err := o.state(ctx, in)
	switch {
	case gone(err) || err == nil && st.Reader != me:
	case err != nil:
		o.log.Warn("a handoff whose client left is left to its decode's lease", "handoff", in.ID, "error", err.Error())
	default:
		o.tellCancel(ctx, in, whyLeft)
	}
}

// nameReader asks the workflow to name me, and tells whom it names then.
func (o *Orchestrator) nameReader(ctx context.Context, in steps.Input, me handoff.Reader) (steps.State, error) {
	at := steps.ReaderAt{Reader: me, Address: o.cfg.Process}
	try, cancel := context.WithTimeout(ctx, o.cfg.StartTimeout)
	defer cancel()
	if err := o.temporal.SignalWorkflow(try, o.workflowID(in.Tenant, in.ID), "", steps.SignalReattach, at); err != nil {
		if gone(err) {
			return steps.State{}, err
		}
		return steps.State{}, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	return o.state(ctx, in)
}

// state asks the running workflow; an error for which gone is true says that
// none runs.
func (o *Orchestrator) state(ctx context.Context, in steps.Input) (st steps.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	v, err := o.temporal.QueryWorkflow(ctx, o.workflowID(in.Tenant, in.ID), "", steps.QueryState)
	if gone(err) {
		return st, err
	}
	if err != nil {
		return st, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	if err := v.Get(&st); err != nil {
		return st, handoff.Errorf(handoff.CodeInternal, "workflow state: %s", err.Error())
	}
	return st, nil
}

// awaitEnd waits for the end of a run that is ending.
func (o *Orchestrator) awaitEnd(ctx context.Context, in steps.Input, run runFacts) error {
	ctx, cancel := context.WithTimeout(ctx, 2*in.Lease)
	defer cancel()
	err := o.temporal.GetWorkflow(ctx, o.workflowID(in.Tenant, in.ID), run.runID).Get(ctx, nil)
	if ctx.Err() != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "an earlier run of this key is still being undone")
	}
	if err != nil && !endedRun(err) {
		return handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	return nil
}

// Follow serves another gateway that holds a client of a handoff read here.
// Between the claim of its key and its plan a stream here has no reader yet:
// that is waited for, or the asker would take the key for abandoned.
func (o *Orchestrator) Follow(ctx context.Context, tenant, id string) (Follower, error) {
	s := o.hub.find(tenant, id)
	if s == nil || s.decided(ctx, o.cfg.StartTimeout) != roleReads {
		return nil, handoff.Errorf(handoff.CodeGone, "no stream of %s is held here", id)
	}
	return s.follow(true), nil
}
