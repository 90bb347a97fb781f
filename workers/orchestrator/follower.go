package orchestrator

import (
	"context"
	"io"

	"github.com/surehand/surehand/contracts/handoff"
)

// follower is one client's place in a stream.
type follower struct {
	s      *stream
	joined bool
	next   int
	closed bool
}

// follow adds a client to the stream, from its first event on.
func (s *stream) follow(joined bool) Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers++
	return &follower{s: s, joined: joined}
}

func (f *follower) Handoff() string { return f.s.id }
func (f *follower) Joined() bool    { return f.joined || f.s.joined() }

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
