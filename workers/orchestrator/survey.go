package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/surehand/surehand/activities/ledger"
	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/steps"
	daemon "github.com/surehand/surehand/transferd/client"
)

// Bounds of a survey.
const (
	surveyWithin   = 5 * time.Second
	engineWithin   = time.Second // an engine that is stopped has not everybody wait
	surveyPage     = 1000
	surveyRunning  = 100000
	secondLookWait = 1500 * time.Millisecond // histories are listed a moment after they begin
)

// Kinds of what is held.
const (
	heldTarget  = "target"
	heldSource  = "source"
	heldPromise = "promise" // that no target stands for
	heldEngine  = "engine"  // attempts that the daemon beside it does not hold for it
)

// beginning owns what a handoff that runs may have asked for, and no daemon holds
// for it yet: counts name nobody.
const beginning = "a handoff that begins"

// holding is something that is held for one handoff at one engine.
type holding struct {
	engine  handoff.EngineID
	control string
	plan    handoff.Plan
	public  string // id of its handoff
	kind    string
	state   string
	blocks  uint32
	posted  uint32
	owner   string // workflow that runs it; empty: none does
	count   uint32 // of those kinds that are only counted: how many
}

func (h holding) key() string { return string(h.engine) + h.kind + h.plan.Attempt.String() }

func (h holding) wire() *operatev1.Held {
	return &operatev1.Held{Engine: string(h.engine), Handoff: h.public, Epoch: uint32(h.plan.Attempt.Epoch), Kind: h.kind, State: h.state,
		Blocks: h.blocks, Posted: h.posted, Owner: h.owner}
}

// survey asks every daemon and engine, or those of one engine, what they hold, and
// histories for whom; also where a registration lapsed not long ago. Who does not answer is named: more may be held there.
func (o *Orchestrator) survey(ctx context.Context, only string) (held []holding, unknown []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, surveyWithin)
	defer cancel()
	engines, err := o.cfg.Ledger.Engines(ctx)
	if err != nil {
		return nil, nil, err
	}
	engines = append(engines, o.fleet.lapsed(engines)...)
	if only != "" {
		engines = slices.DeleteFunc(engines, func(e ledger.Registered) bool { return string(e.ID) != only })
		if len(engines) == 0 {
			return nil, nil, handoff.Errorf(handoff.CodeInvalid, "no engine %q is registered", only)
		}
	}
	running, err := o.runningNow(ctx)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, e := range engines {
		all.Go(func() {
			got, err := o.heldAt(ctx, e)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unknown = append(unknown, fmt.Sprintf("%s: %s", e.ID, err))
			}
			held = append(held, got...)
		})
	}
	all.Wait()
	own(held, running)
	return held, unknown, nil
}

// own names who runs what is held. What is only counted may be of any handoff that
// runs and holds nothing at that engine; more than those is nobody's.
func own(held []holding, running map[string]string) {
	has := map[string]bool{} // engine and handoff
	at := map[handoff.EngineID]uint32{}
	for i, h := range held {
		if held[i].owner = running[h.public]; held[i].owner != "" && !has[string(h.engine)+h.public] {
			has[string(h.engine)+h.public] = true
			at[h.engine]++
		}
	}
	for i, h := range held {
		if h.count > 0 && h.count <= uint32(len(running))-at[h.engine] {
			held[i].owner = beginning
		}
	}
}

// heldAt is what one engine's daemon has not freed, and what stands for nothing
// there: promises, and attempts that the engine alone holds.
func (o *Orchestrator) heldAt(ctx context.Context, e ledger.Registered) (out []holding, err error) {
	m, err := o.movers.Mover(e.Control)
	if err != nil {
		return nil, err
	}
	d, err := m.Describe(ctx, true)
	if err != nil {
		return nil, err
	}
	targets, sources := unfreed(d)
	alone, failed := o.engineAlone(ctx, e, targets, sources)
	add := func(h holding, p handoff.Plan, err error) {
		if err != nil {
			return // of a newer daemon
		}
		h.engine, h.control, h.plan = e.ID, e.Control, p
		h.public, _, _ = strings.Cut(string(p.Attempt.Handoff), ".")
		out = append(out, h)
	}
	for _, t := range targets {
		p, err := rpc.FromPlan(t.GetPlan())
		add(holding{kind: heldTarget, state: t.GetState().String(), blocks: t.GetBlocks(), posted: t.GetPosted()}, p, err)
	}
	for _, s := range sources {
		p, err := rpc.FromPlan(s.GetPlan())
		add(holding{kind: heldSource, state: s.GetState().String(), blocks: s.GetBlocks(), posted: s.GetPosted()}, p, err)
	}
	if n := uint32(len(targets)); e.Promises > n {
		out = append(out, holding{engine: e.ID, control: e.Control, kind: heldPromise, state: fmt.Sprintf("%d promises, %d targets", e.Promises, n), blocks: e.Used, count: e.Promises - n})
	}
	if alone.count > 0 {
		out = append(out, alone)
	}
	return out, failed
}

// unfreed is what a daemon holds memory for. A target without blocks is a tombstone.
func unfreed(d *transferv1.Description) (targets []*transferv1.TargetDescription, sources []*transferv1.SourceDescription) {
	for _, t := range d.GetTargets() {
		if !t.GetFreed() && t.GetBlocks() > 0 {
			targets = append(targets, t)
		}
	}
	for _, s := range d.GetSources() {
		if !s.GetFreed() {
			sources = append(sources, s)
		}
	}
	return targets, sources
}

// engineAlone is what an engine holds memory for beyond what its daemon knows of.
// An engine that does not answer holds an unknown amount.
func (o *Orchestrator) engineAlone(ctx context.Context, e ledger.Registered, targets []*transferv1.TargetDescription, sources []*transferv1.SourceDescription) (holding, error) {
	at, err := o.cfg.Engines.Engine(e.Address)
	if err != nil {
		return holding{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, engineWithin)
	defer cancel()
	said, err := at.Describe(ctx)
	if err != nil {
		return holding{}, err
	}
	attempts, blocks := uint32(len(targets)+len(sources)), uint32(0)
	for _, t := range targets {
		blocks += t.GetBlocks()
	}
	for _, s := range sources {
		blocks += s.GetBlocks()
	}
	has, used := said.TargetsHeld+said.SourcesHeld, said.Blocks-min(said.Blocks, said.BlocksFree)
	if has <= attempts {
		return holding{}, nil
	}
	return holding{engine: e.ID, control: e.Control, kind: heldEngine, state: fmt.Sprintf("%d attempts, %d at its daemon", has, attempts),
		blocks: max(used, blocks) - blocks, count: has - attempts}, nil
}

// runningNow is every handoff that runs: its public id and its workflow.
func (o *Orchestrator) runningNow(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	var page []byte
	for len(out) < surveyRunning {
		got, err := o.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: o.cfg.Temporal.Namespace, PageSize: surveyPage,
			NextPageToken: page, Query: fmt.Sprintf("WorkflowType = %q AND ExecutionStatus = \"Running\"", steps.Workflow)})
		if err != nil {
			return nil, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
		}
		for _, e := range got.GetExecutions() {
			id := e.GetExecution().GetWorkflowId()
			_, public, _ := strings.Cut(id, "/")
			out[public] = id
		}
		if page = got.GetNextPageToken(); len(page) == 0 {
			return out, nil
		}
	}
	return nil, handoff.Errorf(handoff.CodeTooLarge, "more than %d handoffs run", surveyRunning)
}

// Owes is what one engine still holds, and for whom.
func (o *Orchestrator) Owes(ctx context.Context, engine string) (*operatev1.OwesAnswer, error) {
	held, unknown, err := o.survey(ctx, engine)
	if err != nil {
		return nil, err
	}
	a := &operatev1.OwesAnswer{Engine: engine, Unknown: strings.Join(unknown, "; ")}
	for _, h := range held {
		a.Held = append(a.Held, h.wire())
	}
	return a, nil
}

// Leaks is what is held for nobody: reserved less released. It looks twice, so
// that what has just begun, or is just being freed, is none.
func (o *Orchestrator) Leaks(ctx context.Context, all bool) (*operatev1.LeaksAnswer, error) {
	held, unknown, err := o.survey(ctx, "")
	if err != nil {
		return nil, err
	}
	if !all {
		if held = ownerless(held, nil); len(held) > 0 {
			select {
			case <-time.After(secondLookWait):
			case <-ctx.Done():
				return nil, handoff.Errorf(handoff.CodeCancelled, "the asker left")
			}
			again, more, err := o.survey(ctx, "")
			if err != nil {
				return nil, err
			}
			held, unknown = ownerless(again, held), more
		}
	}
	a := &operatev1.LeaksAnswer{Unknown: unknown}
	for _, h := range held {
		a.Held = append(a.Held, h.wire())
	}
	return a, nil
}

// ownerless are those that no workflow runs, and that were so before, if told.
func ownerless(held, before []holding) (out []holding) {
	was := map[string]bool{}
	for _, h := range before {
		was[h.key()] = true
	}
	for _, h := range held {
		if h.owner == "" && (before == nil || was[h.key()]) {
			out = append(out, h)
		}
	}
	return out
}

// release ends one holding.
func (o *Orchestrator) release(ctx context.Context, h holding) error {
	m, err := o.movers.Mover(h.control)
	if err != nil {
		return err
	}
	op := h.plan.Attempt.Operation("operator/release")
	switch h.kind {
	case heldTarget:
		if _, err = m.Release(ctx, h.plan, op, daemon.Sides{Target: true}); err == nil {
			err = o.cfg.Ledger.Release(ctx, h.engine, h.plan.Attempt)
		}
	case heldSource:
		_, err = m.Release(ctx, h.plan, op, daemon.Sides{Source: true})
	}
	return err
}

// watchLeaks counts, now and then, what is held for nobody at two looks in a row.
func (o *Orchestrator) watchLeaks(ctx context.Context) {
	t := time.NewTicker(o.cfg.LeaksEvery)
	defer t.Stop()
	var before []holding
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		held, _, err := o.survey(ctx, "")
		if err != nil {
			continue // the last count stands; the health of both stores has metrics of its own
		}
		suspects := ownerless(held, nil)
		blocks := map[handoff.EngineID]float64{}
		for _, e := range o.fleet.known() {
			blocks[e] = 0
		}
		if before != nil {
			for _, h := range ownerless(held, before) {
				blocks[h.engine] += float64(h.blocks)
			}
		}
		o.metrics.unreleased.Reset()
		for e, n := range blocks {
			o.metrics.unreleased.WithLabelValues(string(e)).Set(n)
		}
		if before = suspects; before == nil {
			before = []holding{}
		}
	}
}
