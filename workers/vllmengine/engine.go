package vllmengine

import (
	"context"
	"errors"
	"net"
	"sync"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/client"
)

// Engine is one front. New, then Serve, then Close.
type Engine struct {
	c         Config
	vllm      *server
	connector *connector
	attempts  *attempts
	listener  net.Listener

	ctx    context.Context // ends when the front stops; its cause is typed
	cancel context.CancelCauseFunc
	runs   sync.WaitGroup
	words  chan error // the end of the connector's socket
}

// stopping ends whatever still runs when the front stops.
var stopping = handoff.Errorf(handoff.CodeUnavailable, "the engine is stopping")

// New listens for the connector and waits, until ctx ends, for one that is
// attached to its transferd.
func New(ctx context.Context, c Config) (*Engine, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	socket, err := client.ListenPrivate(c.Socket)
	if err != nil {
		return nil, err
	}
	e := &Engine{c: c, vllm: newServer(c.URL, c.APIKey, nil), connector: newConnector(socket, c.Log), attempts: newAttempts(), words: make(chan error, 1)}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	if e.listener, err = net.Listen("tcp", c.Listen); err != nil {
		return nil, errors.Join(handoff.Errorf(handoff.CodeInvalid, "listen: %s", err), socket.Close())
	}
	go func() { e.words <- e.connector.serve(e.said, e.gone) }()
	select {
	case <-e.connector.known:
		return e, nil
	case <-ctx.Done():
		err := handoff.Errorf(handoff.CodeUnavailable, "no connector of vLLM beside a transferd called at %s", c.Socket)
		return nil, errors.Join(err, e.Close())
	}
}

// said does what the connector says. Words about what is not known here any more
// are no news.
func (e *Engine) said(m *enginev1.ConnectorMessage) error {
	switch body := m.GetBody().(type) {
	case *enginev1.ConnectorMessage_Target:
		return e.targetSaid(body.Target)
	case *enginev1.ConnectorMessage_Opened:
		return e.sourceOpened(body.Opened)
	case *enginev1.ConnectorMessage_Source:
		return e.sourceSaid(body.Source)
	case *enginev1.ConnectorMessage_Committed:
		return e.known(body.Committed.GetAttempt(), func(t *target) {
			if !isClosed(t.committed) {
				close(t.committed)
			}
		}, nil)
	case *enginev1.ConnectorMessage_Recomputed:
		return e.known(body.Recomputed.GetAttempt(), func(t *target) { t.recomputed.Store(body.Recomputed.GetTokens()) }, nil)
	case *enginev1.ConnectorMessage_Over:
		return e.over(body.Over)
	case *enginev1.ConnectorMessage_Freed:
		if body.Freed.GetSource() {
			return e.known(body.Freed.GetAttempt(), nil, func(s *source) { s.free() })
		}
		return e.known(body.Freed.GetAttempt(), func(t *target) { t.free() }, nil)
	}
	return nil
}

func (e *Engine) over(m *enginev1.ConnectorOver) error {
	cause := handoff.CodeNone
	if m.GetCause() != "" {
		cause = handoff.ParseCode(m.GetCause())
	}
	if m.GetSource() {
		return e.known(m.GetAttempt(), nil, func(s *source) { s.stop(closedBecause(cause, s.plan.Attempt)) })
	}
	return e.known(m.GetAttempt(), func(t *target) { e.targetOver(t, cause) }, nil)
}

// known calls what fits with the run of an attempt, if there is one.
func (e *Engine) known(m *transferv1.Attempt, onTarget func(*target), onSource func(*source)) error {
	a, err := rpc.FromAttempt(m)
	if err != nil {
		return err
	}
	if onTarget != nil {
		if t := e.attempts.findTarget(a); t != nil {
			onTarget(t)
		}
		return nil
	}
	if s := e.attempts.findSource(a); s != nil {
		onSource(s)
	}
	return nil
}

// gone ends everything: the engine died, and its memory with it.
func (e *Engine) gone() {
	why := handoff.Errorf(handoff.CodeEngine, "vLLM, or its connector, is gone")
	for _, r := range e.attempts.all() {
		r.stop(why)
		r.free()
	}
}

// cancelAttempt stops computing for an attempt at once, on both sides, and leaves
// a tombstone where it is not known.
//
// Idempotent: the first cause of an end counts.
func (e *Engine) cancelAttempt(plan handoff.Plan) (known bool, err error) {
	why := handoff.Errorf(handoff.CodeCancelled, "%s was cancelled", plan.Attempt)
	s, t, known, err := e.attempts.cancel(plan, why)
	if err != nil {
		return known, err
	}
	if s != nil {
		s.stop(why)
	}
	if t != nil {
		e.endTarget(t, why)
	}
	return known, nil
}

// Attached says whether the connector is here and a transferd stands beside it.
func (e *Engine) Attached() bool {
	_, beside, _, here := e.connector.state()
	return here && beside.GetAttached()
}

// Changes has a word whenever the connector, or the transferd beside it, came, left
// or began another life, for one listener; what is so now, Description and
// Attached say.
func (e *Engine) Changes() <-chan struct{} { return e.connector.changes }

// Address is where the front's gRPC listens.
func (e *Engine) Address() string { return e.listener.Addr().String() }

// Close ends everything. vLLM goes on without a front; what it held for attempts
// ends by the end of their requests and by their leases.
func (e *Engine) Close() error {
	e.cancel(stopping)
	e.runs.Wait()
	err := errors.Join(e.connector.close(), <-e.words)
	if lerr := e.listener.Close(); !errors.Is(lerr, net.ErrClosed) {
		err = errors.Join(err, lerr)
	}
	e.vllm.close()
	return err
}
