package orchestrator

import (
	"context"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
)

// Piper is a follower whose events may be written by whoever brings them. Each
// token then costs one goroutine less to wake, which is half of what it costs to
// relay it.
type Piper interface {
	// Pipe calls write for each event from the follower's place on, in order and
	// never twice at once, until write had the terminal one, failed, or ctx ended.
	// Write is not running any more when Pipe returns.
	Pipe(ctx context.Context, write func(Event) error) error
}

var _ Piper = (*follower)(nil)

// pipe is one follower's writer while it is in use.
type pipe struct {
	f     *follower
	write func(Event) error
	poke  chan struct{} // there may be something to write

	mu   sync.Mutex // held while writing
	over bool
	err  error
	done chan struct{}
}

// Pipe leaves the writing of what D brings to its reader, for as long as nobody
// else follows: a client that stalls then stalls nothing but its own stream.
func (f *follower) Pipe(ctx context.Context, write func(Event) error) error {
	p := &pipe{f: f, write: write, poke: make(chan struct{}, 1), done: make(chan struct{})}
	f.s.mu.Lock()
	if f.s.pipe == nil {
		f.s.pipe = p
	}
	mine := f.s.pipe == p
	f.s.mu.Unlock()
	if !mine { // another client of the same stream has the place
		return f.relay(ctx, write)
	}
	defer p.leave()
	for {
		p.run()
		select {
		case <-p.poke:
		case <-p.done:
			return p.err
		case <-ctx.Done():
			return handoff.Errorf(handoff.CodeCancelled, "the client left")
		}
	}
}

// relay writes what Next gives.
func (f *follower) relay(ctx context.Context, write func(Event) error) error {
	for {
		e, err := f.Next(ctx)
		if err == nil {
			err = write(e)
		}
		if err != nil || e.Terminal() {
			return err
		}
	}
}

// run writes what there is. A place before the stream's first event, or one that
// a client came back to, is the follower's own to judge.
func (p *pipe) run() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over {
		e, ok := p.f.ready()
		if !ok {
			return
		}
		if p.err = p.write(e); p.err != nil || e.Terminal() {
			p.over = true
			close(p.done)
		}
	}
}

// leave takes the writer away; one that writes now is waited for.
func (p *pipe) leave() {
	s := p.f.s
	s.mu.Lock()
	s.pipe = nil
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// ready is the next event that this client has not got, if there is one.
func (f *follower) ready() (Event, bool) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for f.next < f.s.shown {
		if e, tell := f.take(); tell {
			return e, true
		}
	}
	return Event{}, false
}

// poked has the pipe's own goroutine look. Callers hold the stream's lock.
func (p *pipe) poked() {
	select {
	case p.poke <- struct{}{}:
	default: // it will look anyway
	}
}
