package orchestrator

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// stream is one handoff as this process reads it: the tokens so far, who follows
// them, and the fence of rule 5(c). One lock covers the fence's test, its record
// and the append, so that a byte is in the stream only if its attempt delivers.
type stream struct {
	tenant, id string
	body       handoff.Digest

	mu        sync.Mutex
	events    []Event
	bytes     int
	done      bool
	more      chan struct{} // closed at each append
	followers int
	reading   handoff.Reading
	in        steps.Input // with plan and route of the newest planned attempt
	reader    handoff.Reader
	tokens    uint32
	began     time.Time
	first     time.Duration // to the first token
	ended     time.Time
	abandoned func() // called once when the last follower left an unfinished stream
	counted   bool   // in the metrics
	joined    bool   // made by another gateway; this process only relays it
}

func newStream(tenant, id string, body handoff.Digest) *stream {
	return &stream{tenant: tenant, id: id, body: body, more: make(chan struct{}), began: time.Now()}
}

// append adds an event unless the stream is over. Callers hold the lock.
func (s *stream) append(e Event) {
	if s.done {
		return
	}
	if s.tokens == 0 && e.Tokens > 0 {
		s.first = time.Since(s.began)
	}
	s.events = append(s.events, e)
	s.bytes += len(e.Text)
	s.tokens += e.Tokens
	if e.Terminal() {
		s.done, s.ended = true, time.Now()
	}
	close(s.more)
	s.more = make(chan struct{})
}

// deliver appends an event of attempt a if the fence lets it.
func (s *stream) deliver(a handoff.Attempt, e Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || !s.reading.Deliver(a) {
		return false
	}
	s.append(e)
	return true
}

// fail ends the stream with a typed error; a stream that is over stays as it is.
func (s *stream) fail(err *handoff.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(Event{Position: s.tokens, Err: err})
}

// giveUp is rule 5(c) at this reader. It says true when a will never be delivered.
func (s *stream) giveUp(a handoff.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading.GiveUp(a) == handoff.ReaderGivenUp
}

// plan takes the newest planned attempt; older ones count as given up.
func (s *stream) plan(p handoff.Plan, r steps.Route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || p.Attempt.Epoch < s.in.Plan.Attempt.Epoch {
		return false
	}
	if old := s.in.Plan.Attempt; old != p.Attempt && old.Epoch != 0 {
		s.reading.GiveUp(old)
	}
	s.in.Plan, s.in.Route = p, r
	return true
}

func (s *stream) input() steps.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in
}

func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// follow adds a reader of the stream, from its first event on.
func (s *stream) follow(joined bool) Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers++
	return &follower{s: s, joined: joined}
}

// follower is one client's place in a stream.
type follower struct {
	s      *stream
	joined bool
	next   int
	closed bool
}

func (f *follower) Handoff() string { return f.s.id }
func (f *follower) Joined() bool    { return f.joined }

// Next waits for the next event; io.EOF after the terminal one.
func (f *follower) Next(ctx context.Context) (Event, error) {
	for {
		f.s.mu.Lock()
		if f.next < len(f.s.events) {
			e := f.s.events[f.next]
			f.next++
			f.s.mu.Unlock()
			return e, nil
		}
		done, more := f.s.done, f.s.more
		f.s.mu.Unlock()
		if done {
			return Event{}, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, handoff.Errorf(handoff.CodeCancelled, "the client left")
		}
	}
}

// Close leaves the stream; the last one to leave an unfinished one cancels it.
func (f *follower) Close() {
	f.s.mu.Lock()
	if f.closed {
		f.s.mu.Unlock()
		return
	}
	f.closed = true
	f.s.followers--
	var abandoned func()
	if f.s.followers == 0 && !f.s.done {
		abandoned = f.s.abandoned
	}
	f.s.mu.Unlock()
	if abandoned != nil {
		abandoned()
	}
}
