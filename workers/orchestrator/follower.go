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
	from   From
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
		if f.next < f.s.shown {
			e, tell := f.take()
			f.s.mu.Unlock()
			if tell {
				return e, nil
			}
			continue
		}
		over, more := f.s.done && f.next >= len(f.s.events), f.s.waiting()
		f.s.mu.Unlock()
		if over {
			return Event{}, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, handoff.Errorf(handoff.CodeCancelled, "the client left")
		}
	}
}

// take is the next event, and whether this client has not got it yet. Callers
// hold the stream's lock.
func (f *follower) take() (e Event, tell bool) {
	e = f.s.events[f.next]
	f.next++
	switch end := e.Position + e.Tokens; {
	case f.from.Position == 0:
		return e, true
	case f.s.broken:
		return f.refuse("what was delivered before position %d is not held", f.from.Position), true
	case e.Err != nil:
		return e, true
	case e.Resumed != nil && f.from.Position > e.Position && f.from.Epoch < e.Epoch:
		return f.refuse("epoch %d went on from position %d; what the client has of epoch %d behind it is not in this stream", e.Epoch, e.Position, f.from.Epoch), true
	case e.Resumed != nil:
		return e, f.from.Epoch < e.Epoch
	case e.Finish != "" && end < f.from.Position:
		return f.refuse("the stream ended at position %d, before %d", end, f.from.Position), true
	case end <= f.from.Position && e.Finish == "":
		return e, false
	case end == f.from.Position: // it has the text, and now the end
		e.Position, e.Tokens, e.Text = end, 0, ""
		return e, true
	case e.Tokens > 0 && e.Position < f.from.Position && end > f.from.Position:
		return f.refuse("position %d is amid a piece: pieces begin at %d and %d", f.from.Position, e.Position, end), true
	}
	return e, true
}

// refuse ends this client's stream, and nobody else's.
func (f *follower) refuse(format string, args ...any) Event {
	f.next = len(f.s.events)
	return Event{Err: handoff.Errorf(handoff.CodeGone, format, args...)}
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
	var then func()
	switch {
	case f.s.followers > 0:
	case f.s.done:
		then = f.s.forget
	default:
		then = f.s.abandoned
	}
	f.s.mu.Unlock()
	if then != nil {
		then()
	}
}
