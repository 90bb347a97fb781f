package client

import (
	"context"
	"sync"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/internal/socket"
)

// link is one connection to one daemon.
type link struct {
	conn    *socket.Conn
	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan *transferv1.DaemonMessage // nil once broken
}

// ask sends a request and waits for its answer.
func (e *Engine) ask(ctx context.Context, m *transferv1.EngineMessage) (*transferv1.DaemonMessage, error) {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	if l == nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "detached from the daemon")
	}
	id, reply := l.expect()
	if reply == nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "detached from the daemon")
	}
	defer l.forget(id)
	m.Id = id
	if err := l.send(ctx, m); err != nil {
		return nil, err
	}
	select {
	case r := <-reply:
		if r == nil {
			return nil, handoff.Errorf(handoff.CodeUnavailable, "the daemon left before it answered")
		}
		return r, rpc.FromFailure(r.GetFailure())
	case <-ctx.Done():
		return nil, handoff.Errorf(handoff.CodeUnavailable, "no answer: %s", ctx.Err())
	}
}

// tell sends a message that has no answer.
func (e *Engine) tell(ctx context.Context, m *transferv1.EngineMessage) error {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	if l == nil {
		return handoff.Errorf(handoff.CodeUnavailable, "detached from the daemon")
	}
	return l.send(ctx, m)
}

func (l *link) send(ctx context.Context, m *transferv1.EngineMessage) error {
	if err := ctx.Err(); err != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "not sent: %s", err)
	}
	err := l.conn.Send(time.Now().Add(sendTimeout), m)
	if err == nil {
		return nil
	}
	err = unavailable(err)
	if handoff.CodeOf(err) == handoff.CodeUnavailable {
		return also(err, l.conn.Close()) // half a frame may be out: the stream is broken
	}
	return err
}

func (l *link) expect() (uint64, chan *transferv1.DaemonMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		return 0, nil
	}
	l.next++
	reply := make(chan *transferv1.DaemonMessage, 1)
	l.pending[l.next] = reply
	return l.next, reply
}

func (l *link) answer(m *transferv1.DaemonMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reply, ok := l.pending[m.GetId()]; ok {
		reply <- m
		delete(l.pending, m.GetId())
	}
}

func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
}

// fail answers everybody who waits with nil: nothing is known of their requests.
func (l *link) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, reply := range l.pending {
		reply <- nil
	}
	l.pending = nil
}
