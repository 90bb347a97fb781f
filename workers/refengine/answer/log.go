package answer

import (
	"context"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
)

// Counts say how each prompt token's state came here, and how long the answer is.
type Counts struct{ Direct, Cached, Recomputed, Completion uint32 }

// Event is one piece at its position. The last one has Finish.
type Event struct {
	Position uint32 // of the first token
	Piece
	Finish string // stop or length
	Counts Counts // with Finish
}

// Reasons why a completion is over.
const (
	FinishStop   = "stop"
	FinishLength = "length"
)

// Log is the completion of one attempt. Any number of readers may follow it.
// NewLog.
type Log struct {
	mu      sync.Mutex
	text    []byte
	pieces  []piece
	next    uint32 // position after the last piece
	over    bool
	finish  string
	counts  Counts
	err     error // why it broke
	changed chan struct{}
}

type piece struct {
	position uint32
	end      int // of its text
}

// NewLog begins an empty completion.
func NewLog() *Log { return &Log{changed: make(chan struct{})} }

// Append adds a piece. A piece of no tokens changes nothing.
func (l *Log) Append(p Piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || p.Tokens == 0 {
		return
	}
	l.append(p)
	l.wake()
}

func (l *Log) append(p Piece) {
	l.text = append(l.text, p.Text...)
	l.pieces = append(l.pieces, piece{l.next, len(l.text)})
	l.next += p.Tokens
}

// Finish ends the completion with its last piece, which may be empty.
func (l *Log) Finish(last Piece, reason string, counts Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.append(last)
	l.over, l.finish, l.counts = true, reason, counts
	l.wake()
}

// Break ends the completion with an error. It says whether this call did.
func (l *Log) Break(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.over, l.err = true, err
	l.wake()
	return true
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Len is the number of tokens so far.
func (l *Log) Len() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Over says whether the completion has ended.
func (l *Log) Over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Follow calls each with every event from a position on, waiting for what is
// not there yet, and returns nil after the last. The error of a completion that
// broke, of ctx or of each ends it. A position inside a piece, or beyond the end,
// is refused with CodeInvalid: positions are those that events named.
func (l *Log) Follow(ctx context.Context, from uint32, each func(Event) error) error {
	i, err := l.find(ctx, from)
	for ; err == nil; i++ {
		var e Event
		if e, err = l.wait(ctx, i); err != nil {
			return err
		}
		if err = each(e); err == nil && e.Finish != "" {
			return nil
		}
	}
	return err
}

// find gives the index of the piece at a position.
func (l *Log) find(ctx context.Context, from uint32) (int, error) {
	for {
		l.mu.Lock()
		for i, p := range l.pieces {
			if p.position == from {
				l.mu.Unlock()
				return i, nil
			}
		}
		switch {
		case from == l.next && (!l.over || l.finish != ""):
			n := len(l.pieces)
			l.mu.Unlock()
			return n, nil
		case from < l.next || l.over:
			err := l.err
			next := l.next
			l.mu.Unlock()
			if err != nil {
				return 0, err
			}
			return 0, handoff.Errorf(handoff.CodeInvalid, "position %d begins no piece, %d tokens so far", from, next)
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// wait gives event i once it is there.
func (l *Log) wait(ctx context.Context, i int) (Event, error) {
	for {
		l.mu.Lock()
		if i < len(l.pieces) {
			e := l.event(i)
			l.mu.Unlock()
			return e, nil
		}
		over, err, changed := l.over, l.err, l.changed
		end := Event{Position: l.next, Finish: l.finish, Counts: l.counts}
		l.mu.Unlock()
		switch {
		case over && err == nil:
			return end, nil // the reader has every token, but not how it ended
		case over:
			return Event{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// event reads piece i; the text is shared and never written again.
func (l *Log) event(i int) Event {
	begin, next := 0, l.next
	if i > 0 {
		begin = l.pieces[i-1].end
	}
	if i+1 < len(l.pieces) {
		next = l.pieces[i+1].position
	}
	p := l.pieces[i]
	e := Event{Position: p.position, Piece: Piece{l.text[begin:p.end:p.end], next - p.position}}
	if l.finish != "" && i == len(l.pieces)-1 {
		e.Finish, e.Counts = l.finish, l.counts
	}
	return e
}
