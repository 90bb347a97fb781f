package orchestrator

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// fleetOf is some gateways over one world and one Temporal.
type fleetOf struct {
	t        *testing.T
	w        *world.World
	temporal *durable
	mu       sync.Mutex
	gates    map[string]*Orchestrator
	dead     map[string]bool
}

func gateways(t *testing.T, names ...string) *fleetOf {
	w, err := world.New("p", "d", "d2")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleetOf{t: t, w: w, temporal: newDurable(), gates: map[string]*Orchestrator{}, dead: map[string]bool{}}
	for _, n := range names {
		f.add(n, nil)
	}
	t.Cleanup(func() {
		for _, o := range f.gates {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
		f.temporal.stop()
	})
	return f
}

func (f *fleetOf) add(name string, change func(*Config)) *Orchestrator {
	cfg := Config{Process: name, Ledger: f.w.Ledger, Engines: f.w, Remote: peers{f, name}, StartTimeout: 300 * time.Millisecond,
		Deadline: 10 * time.Second, Refresh: 20 * time.Millisecond, CountTokens: func(p []byte) uint32 { return uint32(len(p)) },
		Temporal: TemporalConfig{HostPort: "in memory"}}
	if change != nil {
		change(&cfg)
	}
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		f.t.Fatal(err)
	}
	o, err := assemble(cfg, f.temporal, f.w)
	if err != nil {
		f.t.Fatal(err)
	}
	o.run()
	f.mu.Lock()
	f.gates[name] = o
	f.mu.Unlock()
	if f.temporal.drive == nil { // eager: the gateway that starts a run works on it
		f.temporal.drive = func(r *durableRun) { handle(f.temporal, f.gate(r.in.ReaderAddress))(r) }
	}
	return o
}

func (f *fleetOf) gate(name string) *Orchestrator {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gates[name]
}

// peers is how one gateway asks the others.
type peers struct {
	f    *fleetOf
	self string
}

func (p peers) at(address string) (*Orchestrator, error) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if o := p.f.gates[address]; o != nil && !p.f.dead[address] {
		return o, nil
	}
	return nil, handoff.Errorf(handoff.CodeUnavailable, "no answer from %s", address)
}

func (p peers) GiveUp(ctx context.Context, at steps.ReaderAt, a handoff.Attempt) (bool, error) {
	o, err := p.at(at.Address)
	if err != nil {
		return false, err
	}
	return o.GiveUp(ctx, at.Reader, a)
}

func (p peers) Planned(ctx context.Context, at steps.ReaderAt, plan handoff.Plan, r steps.Route, t handoff.Token) error {
	o, err := p.at(at.Address)
	if err != nil {
		return err
	}
	return o.Planned(ctx, plan, r, t)
}

func (p peers) Ended(ctx context.Context, at steps.ReaderAt, a handoff.Attempt, c handoff.Code, detail string) error {
	o, err := p.at(at.Address)
	if err != nil {
		return err
	}
	return o.Ended(ctx, a, c, detail)
}

func (p peers) Follow(ctx context.Context, address, tenant, id string, each func(Event) error) error {
	o, err := p.at(address)
	if err != nil {
		return err
	}
	f, err := o.Follow(ctx, tenant, id)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := p.at(address); err != nil {
			return err
		}
		e, err := f.Next(ctx)
		if err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// kill ends a gateway without a word to anybody.
func (f *fleetOf) kill(name string) {
	f.t.Helper()
	f.mu.Lock()
	f.dead[name] = true
	o := f.gates[name]
	delete(f.gates, name)
	f.mu.Unlock()
	if err := o.Close(); err != nil {
		f.t.Error(err)
	}
}

// ask is a request of the key.
func ask(key string) Request {
	return Request{Tenant: "t", Key: key, Model: world.Model, Prompt: []byte("the prompt of a client"), Sampling: Sampling{MaxTokens: 5},
		Prefill: "p", Decode: "d", Body: handoff.Digest{1}}
}

func (f *fleetOf) submit(gate string, r Request) Follower {
	f.t.Helper()
	fo, err := f.gates[gate].Submit(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return fo
}

// read gathers a stream to its end.
func read(t *testing.T, f Follower) (text string, last Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	defer f.Close()
	var b strings.Builder
	next := uint32(0)
	for {
		e, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return b.String(), last
		}
		if err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		if e.Err == nil && e.Position != next && e.Tokens > 0 {
			t.Errorf("position %d came at %d", e.Position, next)
		}
		next += e.Tokens
		b.WriteString(e.Text)
		last = e
	}
}

func (f *fleetOf) clean() {
	f.t.Helper()
	if !soon(func() bool { return len(f.w.Left()) == 0 }) {
		f.t.Errorf("left behind: %v", f.w.Left())
	}
	for n, o := range f.gates {
		if !soon(func() bool { o.bodies.mu.Lock(); defer o.bodies.mu.Unlock(); return len(o.bodies.live) == 0 }) {
			f.t.Errorf("%s keeps bodies", n)
		}
		if !soon(func() bool {
			o.fleet.choose.mu.Lock()
			defer o.fleet.choose.mu.Unlock()
			return len(o.fleet.choose.permits) == 0
		}) {
			f.t.Errorf("%s keeps permits", n)
		}
		if n := o.hub.open.Load(); n != 0 {
			f.t.Errorf("%d streams are open", n)
		}
	}
}

func claimOf(h handoff.HandoffID) ledger.ClaimRequest {
	return ledger.ClaimRequest{Tenant: "t", Key: keyHash(ask("k")), Body: handoff.Digest{1}, Handoff: h, Owner: "gone", Window: time.Hour}
}

// expired is a context that has ended.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
