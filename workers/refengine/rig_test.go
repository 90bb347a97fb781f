package refengine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/reference"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/answer"
	"github.com/surehand/surehand/workers/refengine/compute"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mover does what the orchestrator has transferd do.
type mover interface {
	pull(plan handoff.Plan, token handoff.Token, opened engine.Opened) error
	commit(plan handoff.Plan, token handoff.Token) error
	releaseTarget(plan handoff.Plan) error
	releaseSource(plan handoff.Plan) error
}

// rig is a P and a D, each with its transferd, spoken to over gRPC.
type rig struct {
	t      testing.TB
	p, d   *Engine
	pc, dc engine.Engine // the same through the adapter
	move   mover
	fp, fd *fakeDaemon // nil with real daemons
	hp, hd *host       // nil without
	nonce  atomic.Uint64
}

type fakeMover struct{ p, d *fakeDaemon }

func (m fakeMover) pull(plan handoff.Plan, token handoff.Token, _ engine.Opened) error {
	return m.d.pull(m.p, plan, token)
}
func (m fakeMover) commit(plan handoff.Plan, token handoff.Token) error {
	return m.d.commit(plan, token)
}
func (m fakeMover) releaseTarget(plan handoff.Plan) error { return m.d.releaseTarget(plan) }
func (m fakeMover) releaseSource(plan handoff.Plan) error { return m.p.releaseSource(plan) }

// config of a rig's engines, before id and role are set.
func small() Config {
	return Config{Listen: "127.0.0.1:0", Blocks: 700, Slots: 40, Poison: true, Grace: 10 * time.Millisecond, ChunkTokens: 64, Lease: time.Minute} // nobody renews here
}

// each runs a test over the protocol's machines alone and over real daemons.
func each(t *testing.T, c func() Config, test func(*testing.T, *rig)) {
	t.Run("machines", func(t *testing.T) { test(t, newRig(t, c())) })
	t.Run("transferd", func(t *testing.T) { test(t, newRealRig(t, c())) })
}

func newRig(t testing.TB, c Config) *rig {
	t.Helper()
	r := &rig{t: t}
	r.fp, r.fd = newFakeDaemon(t, "node-p"), newFakeDaemon(t, "node-d")
	r.move = fakeMover{r.fp, r.fd}
	start := func(c Config, f *fakeDaemon) *Engine {
		e, err := newEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		f.memory = e.segment.Bytes()
		if err := e.listen(); err != nil {
			t.Fatal(err)
		}
		e.start(f)
		return e
	}
	c.ID, c.Role = "engine-p", engine.RolePrefill
	r.p = start(c, r.fp)
	c.ID, c.Role = "engine-d", engine.RoleDecode
	r.d = start(c, r.fd)
	r.serve()
	return r
}

// serve runs both engines until the test ends.
func (r *rig) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	connections := reference.NewConnections(nil, 0)
	var running sync.WaitGroup
	for _, e := range []*Engine{r.p, r.d} {
		running.Go(func() {
			if err := errors.Join(e.Serve(ctx), e.Close()); err != nil {
				r.t.Error(err)
			}
		})
	}
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := connections.Close(); err != nil {
			r.t.Error(err)
		}
	})
	var err error
	if r.pc, err = connections.Engine(r.p.Address()); err != nil {
		r.t.Fatal(err)
	}
	if r.dc, err = connections.Engine(r.d.Address()); err != nil {
		r.t.Fatal(err)
	}
}

// plan makes a fresh handoff's first plan.
func (r *rig) plan() handoff.Plan {
	n := r.nonce.Add(1)
	seat := func(e *Engine) handoff.Seat {
		return handoff.Seat{Engine: e.c.ID, Node: e.daemon.Node(), Incarnation: e.daemon.Incarnation()}
	}
	return handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprintf("h-%d", n)), Epoch: 1, Nonce: handoff.Nonce(n)},
		P: seat(r.p), D: seat(r.d), BodyDigest: handoff.Digest{1}}
}

// ask is one request of a test.
type ask struct {
	prompt   []byte
	sampling engine.Sampling
	salt     string
}

func (a ask) reservation(plan handoff.Plan) engine.Reservation {
	return engine.Reservation{Plan: plan, PromptTokens: reference.PromptTokens(a.prompt), Sampling: a.sampling, TenantSalt: a.salt}
}

func (a ask) prefill(plan handoff.Plan) engine.Prefill {
	return engine.Prefill{Plan: plan, Prompt: a.prompt, Sampling: a.sampling, TenantSalt: a.salt}
}

// result is what a reader got.
type result struct {
	text   string
	tokens uint32
	finish string
	counts engine.Counts
	sealed engine.Sealed
}

func (r *result) take(e engine.DecodeEvent) error {
	r.text += string(e.Text)
	r.tokens += e.Tokens
	if e.Finish != "" {
		r.finish, r.counts = e.Finish, e.Counts
	}
	return nil
}

// ready takes a handoff up to its validation.
func (r *rig) ready(a ask, plan handoff.Plan) (handoff.Token, engine.Sealed, error) {
	ctx := r.t.Context()
	reserved, err := r.dc.Reserve(ctx, a.reservation(plan))
	if err != nil {
		return handoff.Token{}, engine.Sealed{}, fmt.Errorf("reserve: %w", err)
	}
	pulled := make(chan error, 1)
	started := false
	sealed, err := r.pc.Prefill(ctx, a.prefill(plan), func(o engine.Opened) {
		started = true
		go func() { pulled <- r.move.pull(plan, reserved.Token, o) }()
	}, nil)
	if err != nil {
		return reserved.Token, sealed, fmt.Errorf("prefill: %w", err)
	}
	if !started {
		return reserved.Token, sealed, errors.New("sealed before it was opened")
	}
	if err := <-pulled; err != nil {
		return reserved.Token, sealed, fmt.Errorf("pull: %w", err)
	}
	return reserved.Token, sealed, nil
}

// handoff runs a whole one and gives the answer.
func (r *rig) handoff(a ask) (result, error) {
	plan := r.plan()
	token, sealed, err := r.ready(a, plan)
	if err != nil {
		return result{}, err
	}
	if err := r.move.commit(plan, token); err != nil {
		return result{}, fmt.Errorf("commit: %w", err)
	}
	if err := r.move.releaseSource(plan); err != nil {
		return result{}, fmt.Errorf("release source: %w", err)
	}
	got := result{sealed: sealed}
	err = r.dc.Attach(r.t.Context(), plan, token, 0, got.take)
	return got, err
}

// aggregated is the same request without a handoff.
func (r *rig) aggregated(a ask) result {
	r.t.Helper()
	var got result
	err := r.p.Generate(r.t.Context(), Request{Attempt: r.plan().Attempt, Prompt: a.prompt, MaxTokens: int(a.sampling.MaxTokens), Stop: a.sampling.Stop,
		Sampling: compute.Sampling{Temperature: a.sampling.Temperature, TopP: a.sampling.TopP, Seed: a.sampling.Seed}},
		func(e answer.Event) error {
			return got.take(engine.DecodeEvent{Text: e.Text, Tokens: e.Tokens, Finish: e.Finish})
		})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// eventually waits for what other goroutines will bring about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// clean waits until nothing is held any more (S9).
func (r *rig) clean() {
	r.t.Helper()
	for _, e := range []*Engine{r.p, r.d} {
		eventually(r.t, string(e.c.ID)+" is at its baseline", func() bool {
			d, c := e.Description(), e.arena.Count()
			return d.BlocksFree == d.Blocks && d.TargetsHeld == 0 && d.SourcesHeld == 0 && c.Held == 0 && c.FreeSlots == c.Slots && d.Running == 0
		})
	}
}
