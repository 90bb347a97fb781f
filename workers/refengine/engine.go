package refengine

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/paged"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

// Engine is one engine. New, then Serve, then Close.
type Engine struct {
	c        Config
	compute  compute.Compute
	form     form
	segment  *client.Memory
	arena    *paged.Arena
	device   *schedule.Scheduler
	daemon   daemon
	attempts *attempts
	listener net.Listener
	attached atomic.Bool
	changes  chan struct{}

	ctx    context.Context // ends when the engine stops; its cause is typed
	cancel context.CancelCauseFunc
	owners sync.WaitGroup // of memory: the device and each source and target
	events sync.WaitGroup
}

// stopping ends whatever still runs when the engine stops.
var stopping = handoff.Errorf(handoff.CodeUnavailable, "the engine is stopping")

// New maps the memory, attaches to the transferd beside it, waiting for it until
// ctx ends, and listens.
func New(ctx context.Context, c Config) (*Engine, error) {
	e, err := newEngine(c)
	if err != nil {
		return nil, err
	}
	d, err := client.Attach(ctx, client.EngineConfig{Socket: e.c.TransferdSocket, Engine: e.c.ID, Revision: e.form.revision,
		Layout: e.form.digest, Described: &e.form.described, Segment: e.segment, FlagSlots: uint32(e.c.Slots)})
	if err != nil {
		return nil, errors.Join(err, e.segment.Close())
	}
	if err := e.listen(); err != nil {
		return nil, errors.Join(err, d.Close(), e.segment.Close())
	}
	e.start(d)
	return e, nil
}

// newEngine is everything but the processes around it.
func newEngine(c Config) (*Engine, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	work, err := newCompute(c)
	if err != nil {
		return nil, err
	}
	e := &Engine{c: c, compute: work, attempts: newAttempts(), changes: make(chan struct{}, 1)}
	if e.form, err = newForm(work, c.Blocks, c.Slots); err != nil {
		return nil, err
	}
	e.device = schedule.New(schedule.Options{Profile: c.Profile, ChunkTokens: min(c.ChunkTokens, work.MaxChunk()), MaxRunning: c.MaxRunning})
	if err := e.form.layout.Check(); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "%s", err)
	}
	bytes := e.form.layout.Bytes()
	if e.segment, err = client.NewMemory("surehand-"+string(c.ID), bytes); err != nil {
		return nil, err
	}
	if e.arena, err = paged.New(e.form.layout, e.segment.Bytes()[:bytes], paged.Options{Poison: c.Poison}); err != nil {
		return nil, errors.Join(handoff.Errorf(handoff.CodeInternal, "%s", err), e.segment.Close())
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e, nil
}

func (e *Engine) listen() (err error) {
	if e.listener, err = net.Listen("tcp", e.c.Listen); err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "listen: %s", err)
	}
	return nil
}

func (e *Engine) start(d daemon) {
	e.daemon = d
	e.attached.Store(true)
	e.owners.Go(func() { e.device.Run(e.ctx) })
	e.events.Go(e.obey)
}

// fail stops the engine because its books are wrong.
func (e *Engine) fail(err error) {
	e.c.Log.Error("the engine stops: an invariant does not hold", "error", err)
	e.cancel(err)
}

// Close ends everything and unmaps the memory. To transferd it is the engine's
// death: what is open is closed, committed targets are aborted.
func (e *Engine) Close() error {
	e.cancel(stopping)
	e.owners.Wait()
	err := e.daemon.Close()
	e.events.Wait()
	if e.listener != nil {
		if lerr := e.listener.Close(); !errors.Is(lerr, net.ErrClosed) {
			err = errors.Join(err, lerr)
		}
	}
	return errors.Join(err, e.segment.Close())
}

// Run is one engine process: it returns when ctx ends, and nil then.
func Run(ctx context.Context, c Config) error {
	e, err := New(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before it was attached
		}
		return err
	}
	return errors.Join(e.Serve(ctx), e.Close())
}
