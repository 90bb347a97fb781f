package orchestrator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// role is what this process is to a stream's handoff.
type role uint8

const (
	roleNone  role = iota // not known yet: the key is being looked up
	roleReads             // history names this process as the reader, or will: it is in Start's input
	roleCopy              // another gateway reads; this one repeats what it hears
)

// stream is one handoff as this process reads it: the tokens so far, who follows
// them, and the fence of rule 5(c). One lock covers the fence's test, its record
// and the append, so that a byte is in the stream only if its attempt delivers.
type stream struct {
	tenant, id string
	body       handoff.Digest
	open       *atomic.Int64                   // streams without an end, of the hub
	over       func(s *stream, outcome string) // called once, without the lock, after the end

	mu        sync.Mutex
	events    []Event
	shown     int           // of them, that followers may have: the rest is not journalled yet
	journaled bool          // a journal is being written
	broken    bool          // its beginning is not held: only who comes from the beginning is served
	loaded    chan struct{} // closed when what was delivered before is here; nil: nothing was
	kind      string
	bytes     int
	done      bool
	more      chan struct{} // closed at the next append; nil: nobody waits
	pipe      *pipe         // writes to the one client, if that lets it
	followers int
	role      role
	reading   handoff.Reading
	in        steps.Input // with plan and route of the newest planned attempt
	reader    handoff.Reader
	attached  handoff.Attempt    // whose events are being read
	detach    context.CancelFunc // ends that reading
	tokens    uint32
	base      uint32        // where the present attempt's first token stands
	epoch     handoff.Epoch // of the last token
	began     time.Time
	first     time.Duration // to the first token
	ended     time.Time
	elsewhere bool   // its key was held by another run when it was asked for
	forgone   bool   // a look-up or copy whose clients left: its end is not the handoff's
	left      bool   // ended by leave: its workflow must hear of it
	abandoned func() // called once when the last follower left an unfinished stream
	forget    func() // called when the last follower left one that is over; nil: it is kept for a while
}

func newStream(tenant, id string, body handoff.Digest, open *atomic.Int64, over func(*stream, string)) *stream {
	open.Add(1)
	return &stream{tenant: tenant, id: id, body: body, open: open, over: over, began: time.Now(), detach: func() {}}
}

// join notes that an earlier submit held the key.
func (s *stream) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elsewhere = true
}

// forgotten has the stream dropped once it is over and nobody follows it.
func (s *stream) forgotten(drop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget = drop
}

func (s *stream) joined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.elsewhere
}

// append adds an event unless the stream is over, and says whether that ended
// it. Callers hold the lock, and call over when they have released it.
func (s *stream) append(e Event) (ended bool) {
	if s.done {
		return false
	}
	if s.tokens == 0 && e.Tokens > 0 {
		s.first = time.Since(s.began)
	}
	s.events = append(s.events, e)
	if !s.journaled {
		s.shown = len(s.events)
	}
	s.bytes += len(e.Text)
	if s.tokens += e.Tokens; e.Tokens > 0 || e.Resumed != nil {
		s.epoch = e.Epoch
	}
	if e.Terminal() {
		s.done, s.ended = true, time.Now()
		s.open.Add(-1)
		s.detach()
	}
	s.wake()
	return s.done
}

// wake lets everybody look again. Callers hold the lock.
func (s *stream) wake() {
	if s.pipe != nil {
		s.pipe.poked()
	}
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// waiting is closed when there is something to look at again. Callers hold the lock.
func (s *stream) waiting() <-chan struct{} {
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.more
}

// deliver appends an event of attempt a if the fence lets it and it is the next.
func (s *stream) deliver(a handoff.Attempt, e Event) error {
	s.mu.Lock()
	switch {
	case s.done:
		s.mu.Unlock()
		return errGivenUp
	case e.Position != s.tokens && s.reading.State(a) != handoff.ReaderGivenUp:
		s.mu.Unlock()
		return handoff.Errorf(handoff.CodeInternal, "an event at position %d came at %d", e.Position, s.tokens) // S10
	case !s.reading.Deliver(a):
		s.mu.Unlock()
		return errGivenUp
	}
	e.Epoch = a.Epoch
	if s.tokens > 0 && s.epoch != a.Epoch { // the client is told before it gets a byte of it
		s.append(Event{Epoch: a.Epoch, Position: s.tokens, Resumed: &steps.Resumed{From: s.epoch, Position: s.tokens}})
	}
	p := s.pipe
	if p != nil && s.followers == 1 {
		s.pipe = nil // whoever appends does not poke it: it is run here
	}
	ended := s.append(e)
	if s.pipe = p; s.followers != 1 {
		p = nil
	}
	s.mu.Unlock()
	if p != nil {
		p.run()
	}
	if ended {
		s.over(s, outcomeOf(e))
	}
	return nil
}

// repeat appends what another gateway's reader delivered.
func (s *stream) repeat(e Event) {
	s.mu.Lock()
	ended := s.append(e)
	s.mu.Unlock()
	if ended {
		s.over(s, outcomeOf(e))
	}
}

func outcomeOf(e Event) string {
	if e.Err != nil {
		return e.Err.Code.String()
	}
	return outcomeCompleted
}

const outcomeCompleted = "completed"

// fail ends the stream with a typed error; a stream that is over stays as it is.
func (s *stream) fail(err *handoff.Error) {
	s.mu.Lock()
	ended := s.append(Event{Position: s.tokens, Err: err})
	s.mu.Unlock()
	if ended {
		s.over(s, err.Code.String())
	}
}

// leave gives the newest attempt up and ends the stream, unless unless says no.
// The input is that of the attempt, the role what this process was.
func (s *stream) leave(err *handoff.Error, unless func(*stream) bool) (in steps.Input, was role, left bool) {
	s.mu.Lock()
	if unless != nil && unless(s) {
		defer s.mu.Unlock()
		return s.in, s.role, false
	}
	if s.in.Plan.Attempt.Epoch != 0 {
		s.reading.GiveUp(s.in.Plan.Attempt)
	}
	in, was = s.in, s.role
	ended := s.append(Event{Position: s.tokens, Err: err})
	s.left = s.left || ended
	s.mu.Unlock()
	if ended {
		s.over(s, err.Code.String())
	}
	return in, was, true
}

// forgo says that the stream's end will be this process's alone: who comes next
// looks anew.
func (s *stream) forgo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgone = s.forgone || !s.done && s.role != roleReads
}

func (s *stream) isForgone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgone
}

// forsake ends a look-up or a copy whose stream is over.
func (s *stream) forsake() {
	s.mu.Lock()
	abandoned := s.abandoned
	s.mu.Unlock()
	if abandoned != nil {
		abandoned()
	}
}

// giveUp is rule 5(c) at this reader: it records, then answers. Undecided means
// that it could not be recorded, which proves nothing.
func (s *stream) giveUp(a handoff.Attempt) handoff.ReaderState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.reading.GiveUp(a)
	if state == handoff.ReaderGivenUp && s.attached == a {
		s.detach()
	}
	return state
}

// fenced says that the reader has decided about a already, either way.
func (s *stream) fenced(a handoff.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading.State(a) != handoff.ReaderUndecided
}

// plan takes the newest planned attempt; older ones count as given up. fresh
// says that the caller must read it, with detach as the way to end that; a
// repeat is not fresh.
func (s *stream) plan(p handoff.Plan, r steps.Route, detach context.CancelFunc) (old handoff.Attempt, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := p.Attempt
	switch {
	case s.done || s.role != roleReads || s.in.Plan.Attempt.Handoff != a.Handoff:
		return old, false, handoff.Errorf(handoff.CodeGone, "no open stream of %s is read here", a.Handoff)
	case a.Epoch < s.in.Plan.Attempt.Epoch:
		return old, false, handoff.Errorf(handoff.CodeStaleEpoch, "epoch %d is planned", s.in.Plan.Attempt.Epoch)
	case s.attached == a:
		return old, false, nil
	}
	if prior := s.in.Plan.Attempt; prior != a {
		s.reading.GiveUp(prior)
		old = prior
	}
	s.reading.Newest(a)
	s.detach()
	s.attached, s.detach = a, detach
	if s.reading.State(a) != handoff.ReaderDelivering {
		s.base = s.tokens // zero, but behind a resume
	}
	s.in.Plan, s.in.Route = p, r
	return old, true, nil
}

func (s *stream) input() steps.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in
}

func (s *stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// wasLeft says whether the stream was cancelled, which a whole one was not.
func (s *stream) wasLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// final says that nobody will need the body again: the client has tokens, or
// left. A stream that was lost or failed may be taken over elsewhere.
func (s *stream) final() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.events); s.done && s.in.Journal && s.events[n-1].Err != nil && s.events[n-1].Err.Code == handoff.CodeUnavailable {
		return false // its client may come back elsewhere
	}
	return s.done && (s.left || s.tokens > 0)
}

func (s *stream) roleNow() role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role
}

// decided is the role, waited for while the stream has none.
func (s *stream) decided(ctx context.Context, within time.Duration) role {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		s.mu.Lock()
		role, done, more := s.role, s.done, s.waiting()
		s.mu.Unlock()
		if role != roleNone || done {
			return role
		}
		select {
		case <-more:
		case <-late.C:
			return role
		case <-ctx.Done():
			return role
		}
	}
}

// place is the position of the next token, and whether a's bytes are delivered.
func (s *stream) place(a handoff.Attempt) (position uint32, delivering bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens, s.reading.State(a) == handoff.ReaderDelivering
}

// heard says whether any event came yet.
func (s *stream) heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events) > 0
}

func (s *stream) usage() steps.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.events); n > 0 && s.events[n-1].Finish != "" {
		return steps.Usage(s.events[n-1].Usage)
	}
	return steps.Usage{Prompt: s.in.PromptTokens, Completion: s.tokens}
}

func (s *stream) report(a handoff.Attempt) steps.Ended {
	u := s.usage()
	s.mu.Lock()
	defer s.mu.Unlock()
	return steps.Ended{Attempt: a, Reader: s.reader, Usage: u, FirstToken: s.first.Microseconds(), LastToken: time.Since(s.began).Microseconds()}
}
