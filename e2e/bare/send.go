package bare

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/transferd/client"
)

// Proxy sends asks by hand. Seats are looked up once, as an orchestrator would
// have them in its registry.
type Proxy struct {
	f *fleet.Fleet

	mu    sync.Mutex
	seats map[string]Handoff // by the two engines' ids: all that does not change
}

// New makes a proxy over a fleet's engines.
func New(f *fleet.Fleet) *Proxy { return &Proxy{f: f, seats: map[string]Handoff{}} }

func (p *Proxy) plan(ctx context.Context, a traffic.Ask) (*Handoff, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pair := a.Prefill + "/" + a.Decode
	known, ok := p.seats[pair]
	if !ok {
		h, err := Plan(ctx, p.f, a)
		if err != nil {
			return nil, err
		}
		known = *h
		p.seats[pair] = known
	}
	known.ask, known.prompt = a, []byte(a.Prompt)
	var err error
	known.Plan, err = plan(known.Plan.P, known.Plan.D, known.prompt)
	return &known, err
}

// Times of one handoff, since its request: when D's room was taken, the prompt
// computed, its state landed and committed.
type Times struct{ Reserved, Prefilled, Moved, Committed time.Duration }

// Send runs one handoff and reads its stream. Ask must name both engines.
func (p *Proxy) Send(ctx context.Context, a traffic.Ask) (out traffic.Answer, at Times) {
	began := time.Now()
	defer func() { out.Total = time.Since(began) }()
	h, err := p.plan(ctx, a)
	if err == nil {
		h.began = began
		out, err = h.run(ctx)
		at = h.at
	}
	if err != nil {
		out.Broken = err
		if h != nil {
			out.Broken = errors.Join(err, h.Release(context.WithoutCancel(ctx)))
		}
	}
	return out, at
}

// run overlaps what the protocol lets one overlap: reserve with prefill, the
// pull with the prefill of a long prompt, the attach with everything.
func (h *Handoff) run(ctx context.Context) (out traffic.Answer, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	fail := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	opened, sealed := make(chan struct{}), make(chan struct{})
	all.Go(func() {
		err := h.Prefill(ctx, func() { close(opened) })
		h.at.Prefilled = time.Since(h.began)
		if err == nil {
			close(sealed)
		}
		fail(err)
	})
	if err := h.Reserve(ctx); err != nil {
		cancel(err)
		all.Wait()
		return out, err
	}
	h.at.Reserved = time.Since(h.began)
	all.Go(func() { fail(h.move(ctx, opened, sealed)) })
	err = h.Attach(ctx, (&reading{out: &out, began: h.began}).take)
	if err == nil {
		out.Status, out.Done, out.Usage.Prompt = 200, true, len(h.prompt)+2
	} else {
		cancel(err)
	}
	all.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return out, err
}

// move pulls as soon as it pays, commits, and lets P go.
func (h *Handoff) move(ctx context.Context, opened, sealed <-chan struct{}) error {
	begin := opened
	if len(h.prompt)+2 < handoff.OverlapTokens {
		begin = sealed
	}
	for _, at := range []<-chan struct{}{begin, opened} {
		select {
		case <-at:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if _, err := h.Pull(ctx); err != nil {
		return err
	}
	h.at.Moved = time.Since(h.began)
	if err := h.Commit(ctx); err != nil {
		return err
	}
	h.at.Committed = time.Since(h.began)
	_, err := h.tp.Undo(context.WithoutCancel(ctx), h.Plan, h.Plan.Attempt.Operation("undo-prefill"), client.Sides{Source: true})
	return err
}

// reading is what a client would have seen of the stream.
type reading struct {
	out         *traffic.Answer
	began, last time.Time
}

func (r *reading) take(e engine.DecodeEvent) error {
	if len(e.Text) > 0 {
		now := time.Now()
		if r.out.Pieces == 0 {
			r.out.FirstToken = now.Sub(r.began)
		} else {
			r.out.Gaps = append(r.out.Gaps, now.Sub(r.last))
		}
		r.last = now
		r.out.Text += string(e.Text)
		r.out.Pieces++
	}
	if e.Finish != "" {
		c := e.Counts
		r.out.Finish = e.Finish
		r.out.Usage = traffic.Usage{Completion: int(c.Completion), Direct: int(c.Direct), Cached: int(c.Cached), Recomputed: int(c.Recomputed)}
	}
	return nil
}
