package orchestrator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// brokenAfter is how long a view outlives the ledger that no longer answers:
// with the refresh it keeps a refusal within the second of L8, and a single
// answer that came late refuses nobody.
const brokenAfter = 500 * time.Millisecond

// fleet is this process's view of the engines, refreshed from the ledger. It is
// a view: what it says is a proposal, the engines decide.
type fleet struct {
	o      *Orchestrator
	choose *chooser

	mu      sync.Mutex
	engines []ledger.Registered
	err     error     // of the last refresh
	at      time.Time // of the last good one
	first   chan struct{}
	nodes   map[string]handoff.NodeID   // by control address; kept when an engine is gone, whose attempts still have to be closed
	cordons map[handoff.EngineID]string // by operators, and why
	seen    map[handoff.EngineID]seen   // engines that registered in the last lapsedKept
}

// seen is an engine and when it was registered last.
type seen struct {
	ledger.Registered
	at time.Time
}

// lapsedKept is how long what an engine holds is asked after, once its
// registration lapsed: one that is stopped keeps its memory.
const lapsedKept = 10 * time.Minute

// pins are engines that the caller chose.
type pins struct{ prefill, decode string }

func newFleet(o *Orchestrator) *fleet {
	return &fleet{o: o, choose: newChooser(func(name, to string) { o.log.Warn("breaker", "of", name, "to", to) }), first: make(chan struct{}), nodes: map[string]handoff.NodeID{}, seen: map[handoff.EngineID]seen{}}
}

// run refreshes the view and rebuilds the account of any engine that the ledger
// does not know, from its daemon's own list (rule 16: TD wins).
func (f *fleet) run(ctx context.Context) {
	t := time.NewTicker(f.o.cfg.Refresh)
	defer t.Stop()
	for {
		f.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (f *fleet) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	engines, err := f.o.cfg.Ledger.Engines(ctx)
	f.hearCordons(ctx, engines)
	f.mu.Lock()
	f.err = err
	if err == nil {
		f.engines, f.at = engines, time.Now()
		f.remember(engines)
		select {
		case <-f.first:
		default:
			close(f.first)
		}
	}
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, e := range engines {
		if e.Role.Decodes() && !e.Built {
			wg.Go(func() { f.rebuild(ctx, e.Engine) })
		}
	}
	wg.Wait()
}

// hearCordons marks the engines that operators took out. While that cannot be
// looked at, the last word stands.
func (f *fleet) hearCordons(ctx context.Context, engines []ledger.Registered) {
	if f.o.cfg.Operations == nil {
		return
	}
	cordons, err := f.o.cfg.Operations.Cordons(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.cordons = cordons
	}
	for i := range engines {
		if _, out := f.cordons[engines[i].ID]; out {
			engines[i].Cordoned = true
		}
	}
}

func (f *fleet) cordoned() map[handoff.EngineID]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cordons
}

// nodesMost bounds the names of daemons that are remembered.
const nodesMost = 1 << 16

// remember notes whose daemon is at which address. Callers hold the lock.
func (f *fleet) remember(engines []ledger.Registered) {
	if len(f.nodes) > nodesMost {
		clear(f.nodes)
	}
	now := time.Now()
	for _, e := range engines {
		f.nodes[e.Control] = e.Node
		f.seen[e.ID] = seen{e, now}
	}
	maps.DeleteFunc(f.seen, func(_ handoff.EngineID, s seen) bool { return now.Sub(s.at) > lapsedKept })
}

// known are the engines that registered not long ago.
func (f *fleet) known() []handoff.EngineID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.seen))
}

// lapsed are engines that were registered not long ago, and are not among those.
func (f *fleet) lapsed(registered []ledger.Registered) (out []ledger.Registered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.seen {
		if !slices.ContainsFunc(registered, func(e ledger.Registered) bool { return e.ID == id }) {
			s.Promises = 0 // an account of then
			out = append(out, s.Registered)
		}
	}
	return out
}

// nodeAt names the daemon at a control address.
func (f *fleet) nodeAt(control string) (handoff.NodeID, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[control]
	return n, ok
}

func (f *fleet) rebuild(ctx context.Context, e ledger.Engine) {
	m, err := f.o.movers.Mover(e.Control)
	if err != nil {
		return // its address is not one we may dial; it stays unbuilt and gets nothing
	}
	d, err := m.Describe(ctx, true)
	if err != nil || !d.GetReady() {
		return // asked again at the next refresh; nothing is promised meanwhile
	}
	held := map[handoff.Attempt]uint32{}
	for _, t := range d.GetTargets() {
		a, err := rpc.FromAttempt(t.GetPlan().GetAttempt())
		if err != nil || t.GetFreed() || t.GetBlocks() == 0 {
			continue
		}
		held[a] = t.GetBlocks()
	}
	err = f.o.cfg.Ledger.Rebuild(ctx, ledger.RebuildRequest{Engine: e.ID, Incarnation: handoff.Incarnation(d.GetIncarnation()),
		Total: e.Blocks, Held: held, Lease: f.o.cfg.Lease})
	if err != nil {
		f.o.log.Warn("an engine's account was not rebuilt", "engine", e.ID, "error", err.Error())
		return
	}
	f.o.log.Info("rebuilt an engine's account from its daemon", "engine", e.ID, "held", len(held))
}

// view is the last good view, and why there is none.
func (f *fleet) view(ctx context.Context) ([]ledger.Registered, error) {
	select {
	case <-f.first:
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	age := time.Since(f.at)
	switch {
	case f.err != nil && (f.engines == nil || age > brokenAfter):
		return nil, f.err
	case f.engines == nil || age > 4*f.o.cfg.Refresh+2*time.Second:
		return nil, handoff.Errorf(handoff.CodeUnavailable, "no engine has registered")
	}
	return f.engines, nil
}

// place fills the input's seats, route and what follows from them; predicted is
// how long P will take, zero where it does not tell its rate.
func (f *fleet) place(ctx context.Context, in *steps.Input, pin pins, exclude []handoff.EngineID) (predicted time.Duration, err error) {
	engines, err := f.view(ctx)
	if err != nil {
		return 0, err
	}
	if pin, err = byAddress(engines, pin); err != nil {
		return 0, err
	}
	if in.Resume != "" {
		if engines = resuming(engines); len(engines) == 0 {
			return 0, handoff.Errorf(handoff.CodeInvalid, "resume: no engine here rebuilds an answer's state from its tokens")
		}
	}
	choice, why, err := f.choose.choose(engines, *in, pin, exclude)
	if err != nil {
		return 0, err
	}
	p, d := choice.P, choice.D
	in.Plan.P, in.Plan.D = seat(p), seat(d)
	in.Route = steps.Route{P: endpoint(p), D: endpoint(d), Blocks: choice.Blocks, Total: d.Blocks, Why: why}
	in.Revision = p.Revision
	if rate := p.PrefillTokensPerSecond; rate > 0 {
		predicted = time.Duration(float64(in.PromptTokens) / rate * float64(time.Second))
	}
	in.Long = predicted > workflows.LongAbove
	return predicted, nil
}

// resuming are the engines on which an answer can go on.
func resuming(engines []ledger.Registered) (out []ledger.Registered) {
	for _, e := range engines {
		if e.Resumes {
			out = append(out, e)
		}
	}
	return out
}

// byAddress names the engines of pins that came as host:port, as an endpoint
// picker writes them.
func byAddress(engines []ledger.Registered, pin pins) (pins, error) {
	for role, p := range map[string]*string{"prefill": &pin.prefill, "decode": &pin.decode} {
		if !strings.Contains(*p, ":") {
			continue
		}
		i := slices.IndexFunc(engines, func(e ledger.Registered) bool { return e.Address == *p })
		if i < 0 {
			return pin, handoff.Errorf(handoff.CodeInvalid, "%s engine at %q is not registered", role, *p)
		}
		*p = string(engines[i].ID)
	}
	return pin, nil
}

// Step hears the end of a step, for the breakers.
func (f *fleet) Step(a handoff.Attempt, s handoff.Step, err error) { f.choose.step(a, s, err) }

// Begin counts an attempt that is now planned.
func (f *fleet) Begin(p handoff.Plan, tokens uint32) error { return f.choose.begin(p, tokens) }

// Scattered hears what a transfer into D's layout took, for the next placement.
func (f *fleet) Scattered(p handoff.Plan, tokens uint32, took time.Duration) {
	f.mu.Lock()
	engines := f.engines
	f.mu.Unlock()
	at := func(id handoff.EngineID) int {
		return slices.IndexFunc(engines, func(e ledger.Registered) bool { return e.ID == id })
	}
	if i, j := at(p.P.Engine), at(p.D.Engine); i >= 0 && j >= 0 {
		f.choose.layouts.Scattered(engines[i], engines[j], tokens, took)
	}
}

// Place is the activities' Placer: the next plan's seats.
func (f *fleet) Place(ctx context.Context, in steps.Input, exclude []handoff.EngineID) (p, d handoff.Seat, route steps.Route, err error) {
	f.refresh(ctx) // what failed may have been a view of an earlier life
	var pin pins
	if in.Pin != nil { // an operator's word goes before what the handoff would avoid
		pin = pins{string(in.Pin.Prefill), string(in.Pin.Decode)}
	}
	if _, err := f.place(ctx, &in, pin, exclude); err != nil {
		return p, d, route, err
	}
	return in.Plan.P, in.Plan.D, in.Route, nil
}

func seat(e ledger.Registered) handoff.Seat {
	return handoff.Seat{Engine: e.ID, Node: e.Node, Incarnation: e.NodeIncarnation}
}

func endpoint(e ledger.Registered) steps.Endpoint {
	return steps.Endpoint{Engine: e.Address, Control: e.Control, Peer: e.Peer}
}

// Models lists what P and D together can serve.
func (o *Orchestrator) Models(ctx context.Context) ([]Model, error) {
	engines, err := o.fleet.view(ctx)
	if err != nil {
		return nil, err
	}
	var out []Model
	seen := map[string]bool{}
	for _, p := range engines {
		for _, d := range engines {
			// An unbuilt D would be refused: its account is not known to the ledger yet.
			if p.Role.Prefills() && d.Role.Decodes() && d.Built && p.Model == d.Model && !seen[p.Model] {
				seen[p.Model] = true
				out = append(out, Model{Name: p.Model, Revision: p.Revision, MaxTokens: min(p.MaxTokens, d.MaxTokens), Tokenizes: p.Tokenizes})
			}
		}
	}
	return out, nil
}

// Ready is nil when a request could be served now.
func (o *Orchestrator) Ready(ctx context.Context) error {
	if _, err := o.temporal.CheckHealth(ctx, nil); err != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	models, err := o.Models(ctx)
	if err != nil {
		return err
	}
	if len(models) == 0 {
		return handoff.Errorf(handoff.CodeUnavailable, "no P and ready D serve the same model")
	}
	return nil
}
