// Package local moves pieces between two engines of the same host: their one
// daemon maps both memories and copies. The source's table is asked for each
// range as it is for any other reader: capability, grant, announcement.
package local

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/transport"
)

// batchBytes is copied between two looks at whether the pull is over (L6).
const batchBytes = 2 << 20

// Opener opens lanes inside one daemon.
type Opener struct{ Core *fence.Core }

// Name implements transport.Transport.
func (o *Opener) Name() string { return "local" }

// Reaches implements transport.Transport: the source must be of this very daemon.
func (o *Opener) Reaches(t transport.Target) error {
	if t.Node != o.Core.Node() {
		return handoff.Errorf(handoff.CodeMismatch, "%s is another host", t.Node)
	}
	return nil
}

// Open implements transport.Transport.
func (o *Opener) Open(ctx context.Context, t transport.Target, sink transport.Sink) (transport.Lane, error) {
	c := o.Core
	if t.Node != c.Node() || t.Instance != c.Incarnation() {
		return nil, handoff.Errorf(handoff.CodeStaleIncarnation, "this is %s in its life %d", c.Node(), c.Incarnation())
	}
	r, err := c.Admit(ctx, t.Attempt, t.Capability, fence.Holder{Node: c.Node(), Incarnation: c.Incarnation()})
	if err != nil {
		return nil, err
	}
	l := &lane{reading: r, sink: sink, lease: c.Lease(), unchecked: t.Unchecked, over: make(chan struct{})}
	l.source = wire.Source{Grant: r.Grant(), State: r.State(), Shape: r.Shape(), Layout: r.Layout()}
	return l, nil
}

type lane struct {
	reading *fence.Reading
	source  wire.Source
	sink    transport.Sink
	lease   time.Duration

	unchecked bool     // nobody looks at a checksum
	asked     []uint32 // in the order of asking
	sealed    bool
	answer    *wire.Answer

	once sync.Once
	over chan struct{}

	entries []wire.Entry
	places  [][]byte
}

func (l *lane) Name() string        { return "local" }
func (l *lane) Source() wire.Source { return l.source }
func (l *lane) Streams() int        { return 1 }

func (l *lane) Read(runs []wire.Run) error {
	for _, r := range runs {
		for i := range r.Count {
			l.asked = append(l.asked, r.First+i)
		}
	}
	return nil
}

func (l *lane) Ask(q wire.Question) error {
	l.answer = &wire.Answer{Nonce: q.Nonce}
	if err := l.reading.Question(q); err != nil {
		l.answer.Refusal = handoff.Errorf(handoff.CodeOf(err), "%s", err)
	}
	return nil
}

// Step does the next thing. It may wait for announcements for ever: the daemon
// that announces is this one, so there is no peer whose silence means anything.
func (l *lane) Step(time.Duration) error {
	if l.interrupted() {
		return handoff.Errorf(handoff.CodeUnavailable, "the pull is over")
	}
	switch {
	case l.answer != nil:
		a := *l.answer
		l.answer = nil
		return l.sink.Answered(a)
	case len(l.asked) > 0:
		return l.copy()
	}
	runs, _ := l.reading.News()
	if len(runs) > 0 {
		return l.sink.Announced(runs)
	}
	if s, ok := l.reading.Sealed(); ok && !l.sealed {
		l.sealed = true
		return l.sink.Sealed(s)
	}
	select {
	case <-l.reading.Changed():
		return nil
	case <-l.reading.Stopped():
		return l.reading.Why()
	case <-l.over:
		return handoff.Errorf(handoff.CodeUnavailable, "the pull is over")
	}
}

func (l *lane) interrupted() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// copy moves one batch, reads posted at the source all the while.
func (l *lane) copy() error {
	n, bytes := 0, uint32(0)
	for n < len(l.asked) && n < wire.MaxBatchPieces && (n == 0 || bytes+l.reading.Length(l.asked[n]) <= batchBytes) {
		bytes += l.reading.Length(l.asked[n])
		n++
	}
	batch := l.asked[:n]
	l.asked = l.asked[n:]
	l.entries = l.entries[:0]
	for _, p := range batch {
		l.entries = append(l.entries, wire.Entry{Piece: p, Length: l.reading.Length(p)})
	}
	if err := l.reading.Begin(batch); err != nil {
		return err
	}
	defer l.reading.Done(n)
	var err error
	if l.places, err = l.sink.Places(l.entries, l.places[:0]); err != nil {
		return err
	}
	isMapped := l.reading.View(batch[0]) != nil
	if !isMapped { // many places a system call
		if err := l.reading.Copy(batch, l.places); err != nil {
			return err
		}
	}
	for i, p := range batch {
		if isMapped {
			copy(l.places[i], l.reading.View(p))
		}
		if !l.unchecked {
			l.entries[i].Check = wire.Checksum(l.places[i]) // while it is in the cache
		}
	}
	return l.sink.Landed(l.entries, nil)
}

func (l *lane) Finish() error { return l.reading.Finish() }

func (l *lane) Ping() error {
	_, err := l.reading.Renew(l.lease)
	return err
}

func (l *lane) Interrupt() { l.once.Do(func() { close(l.over) }) }
func (l *lane) Close()     { l.reading.Destroy() }
