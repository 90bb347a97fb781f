package client

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/internal/socket"
)

// Re-attaching after the daemon's death: it comes back within a backoff.
const (
	attachTimeout = 10 * time.Second // of one try; the daemon may wait for drains
	backoffMin    = 5 * time.Millisecond
	backoffMax    = 100 * time.Millisecond
)

// connect tries to attach until it succeeds, ctx ends or the daemon refuses for good.
func (e *Engine) connect(ctx context.Context) (*link, *transferv1.Attached, error) {
	pause := backoffMin
	for {
		l, attached, err := e.attachOnce(ctx)
		if err == nil {
			return l, attached, nil
		}
		if a := handoff.CodeOf(err).Advice(); a == handoff.GiveUp || a == handoff.CallOperator {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(pause):
		}
		pause = min(2*pause, backoffMax)
	}
}

func (e *Engine) attachOnce(ctx context.Context) (l *link, attached *transferv1.Attached, err error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "unix", e.cfg.Socket)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	conn := socket.New(raw.(*net.UnixConn))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // the read below then fails
	defer stop()
	defer func() {
		if err != nil {
			err = also(err, conn.Close())
		}
	}()
	attach := &transferv1.Attach{Engine: string(e.cfg.Engine), SegmentBytes: e.cfg.Segment.Size(), FlagSlots: e.cfg.FlagSlots,
		Revision: e.cfg.Revision, Layout: e.cfg.Layout[:]}
	if e.cfg.Described != nil {
		attach.Described = rpc.Layout(*e.cfg.Described)
	}
	files, err := e.lend(conn, attach)
	if err != nil {
		return nil, nil, err
	}
	hello := &transferv1.EngineMessage{Id: 1, Body: &transferv1.EngineMessage_Attach{Attach: attach}}
	if err := conn.SendFirst(time.Now().Add(sendTimeout), hello, files...); err != nil {
		return nil, nil, unavailable(err)
	}
	reply := new(transferv1.DaemonMessage)
	if err := conn.Receive(reply); err != nil {
		return nil, nil, unavailable(err)
	}
	if err := rpc.FromFailure(reply.GetFailure()); err != nil {
		return nil, nil, err
	}
	if reply.GetAttached() == nil || !stop() {
		return nil, nil, handoff.Errorf(handoff.CodeUnavailable, "the daemon did not attach in time")
	}
	return &link{conn: conn, next: 1, pending: map[uint64]chan *transferv1.DaemonMessage{}}, reply.GetAttached(), nil
}

// lend says where the segment is, and gives the descriptors to send. Plain memory
// is opened to the daemon that serves the socket, and to no other process.
func (e *Engine) lend(conn *socket.Conn, m *transferv1.Attach) ([]*os.File, error) {
	if f := e.cfg.Segment.File(); f != nil {
		return []*os.File{f, e.flags.File()}, nil
	}
	if d := e.cfg.Segment.device; d != nil {
		m.Cuda = &transferv1.CudaMemory{Device: d.Device[:], Handle: d.Handle[:], Offset: d.Offset}
		return []*os.File{e.flags.File()}, nil
	}
	pid, err := native.PeerPID(conn.Unix())
	if err == nil {
		err = native.AllowReader(pid)
	}
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeDenied, "plain memory: %s", err)
	}
	m.ProcessAddress = native.Address(e.cfg.Segment.Bytes())
	return []*os.File{e.flags.File()}, nil
}

// unavailable types an error that says nothing about what was done; one that is
// typed already stays.
func unavailable(err error) error {
	var typed *handoff.Error
	if errors.As(err, &typed) {
		return typed
	}
	return handoff.Errorf(handoff.CodeUnavailable, "%s", err)
}

// adopt makes l the present link. Whatever this engine had open and the daemon
// did not adopt is over and drained: the daemon answers an attach only then.
func (e *Engine) adopt(l *link, m *transferv1.Attached, first bool) error {
	adopted, err := rpc.FromAttempts(m.GetAdopted())
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	cause := handoff.CodeEngine // the same life took us for dead
	if e.daemon.incarnation != handoff.Incarnation(m.GetIncarnation()) {
		cause = handoff.CodeStaleIncarnation
	}
	e.daemon = identity{handoff.NodeID(m.GetNode()), handoff.Incarnation(m.GetIncarnation()), m.GetPeerAddress(), m.GetPeerProtocol()}
	e.link = l
	if first {
		return nil
	}
	kept := map[handoff.Attempt]bool{}
	for _, a := range adopted {
		kept[a] = true
	}
	var closed []handoff.Attempt
	var events []Event
	for a, t := range e.targets {
		if kept[a] {
			if !t.committed { // the old daemon committed it and could not say so any more
				t.committed = true
				events = append(events, Event{Kind: TargetCommitted, Attempt: a})
			}
			continue
		}
		kind := TargetClosed
		if t.committed {
			kind = TargetAborted
		}
		closed = append(closed, a)
		events = append(events, t.end(kind, TargetDrained, a, cause)...)
		delete(e.targets, a)
	}
	for a, t := range e.sources {
		closed = append(closed, a)
		events = append(events, t.end(SourceClosed, SourceDrained, a, cause)...)
		delete(e.sources, a)
	}
	e.events.put(Event{Kind: Reattached, Incarnation: e.daemon.incarnation, Adopted: adopted, Closed: closed})
	e.events.put(events...)
	return nil
}

// end gives the events that an attempt which is over and drained still owes.
func (t *track) end(over, drained EventKind, a handoff.Attempt, cause handoff.Code) (events []Event) {
	if !t.over {
		events = append(events, Event{Kind: over, Attempt: a, Cause: cause, Drained: true})
	}
	if !t.drained {
		events = append(events, Event{Kind: drained, Attempt: a, Cause: cause, Drained: true})
	}
	t.over, t.drained = true, true
	return events
}

// note records what is told, and drops what was told before.
func (e *Engine) note(events []Event) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := events[:0]
	for _, ev := range events {
		t := e.targets[ev.Attempt]
		if ev.Kind == SourceClosed || ev.Kind == SourceDrained {
			t = e.sources[ev.Attempt]
		}
		if t == nil {
			kept = append(kept, ev)
			continue
		}
		seen := &t.over
		switch ev.Kind {
		case TargetCommitted:
			seen = &t.committed
		case TargetDrained, SourceDrained:
			seen = &t.drained
		}
		if !*seen {
			*seen = true
			kept = append(kept, ev)
		}
	}
	return kept
}

// run reads the present link until it breaks, then attaches again, until Close.
func (e *Engine) run(l *link) {
	for {
		e.read(l)
		e.mu.Lock()
		e.link = nil
		e.mu.Unlock()
		l.fail()
		_ = l.conn.Close() // broken already; the next link replaces it
		if e.ctx.Err() != nil {
			return
		}
		e.events.put(Event{Kind: Detached})
		next, ok := e.reattach()
		if !ok {
			return
		}
		l = next
	}
}

// reattach goes on until Close: even a daemon that refuses now may be replaced.
func (e *Engine) reattach() (*link, bool) {
	for {
		l, attached, err := e.connect(e.ctx)
		if err == nil {
			if err = e.adopt(l, attached, false); err == nil {
				if e.ctx.Err() == nil {
					return l, true
				}
			}
			_ = l.conn.Close() // not used; the error that matters is err
		}
		select {
		case <-e.ctx.Done():
			return nil, false
		case <-time.After(backoffMax):
		}
	}
}

// read dispatches replies and events until the connection breaks.
func (e *Engine) read(l *link) {
	for {
		m := new(transferv1.DaemonMessage)
		if l.conn.Receive(m) != nil {
			return
		}
		if m.GetId() != 0 {
			l.answer(m)
			continue
		}
		events, err := eventsOf(m)
		if err != nil {
			return // a daemon that we do not understand is left
		}
		e.events.put(e.note(events)...)
	}
}
