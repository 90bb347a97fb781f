package orchestrator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/surehand/surehand/activities/ledger"
	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/steps"
	daemon "github.com/surehand/surehand/transferd/client"
)

// Bounds of a survey.
const (
	surveyWithin   = 5 * time.Second
	surveyPage     = 1000
	surveyRunning  = 100000
	secondLookWait = 1500 * time.Millisecond // histories are listed a moment after they begin
)

// Kinds of what is held.
const (
	heldTarget  = "target"
	heldSource  = "source"
	heldPromise = "promise"
)

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
}

func (h holding) key() string { return string(h.engine) + h.kind + h.plan.Attempt.String() }

func (h holding) wire() *operatev1.Held {
	return &operatev1.Held{Engine: string(h.engine), Handoff: h.public, Epoch: uint32(h.plan.Attempt.Epoch), Kind: h.kind, State: h.state,
		Blocks: h.blocks, Posted: h.posted, Owner: h.owner}
}

// survey asks every daemon, or that of one engine, what it holds, and histories
// for whom. Who does not answer is named: more may be held there.
func (o *Orchestrator) survey(ctx context.Context, only string) (held []holding, unknown []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, surveyWithin)
	defer cancel()
	engines, err := o.cfg.Ledger.Engines(ctx)
	if err != nil {
		return nil, nil, err
	}
	running, err := o.runningNow(ctx)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, e := range engines {
		if only != "" && string(e.ID) != only {
			continue
		}
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
	for i := range held {
		held[i].owner = running[held[i].public]
	}
	return held, unknown, nil
}

// heldAt is what one engine's daemon has not freed, and promises that stand for
// nothing there.
func (o *Orchestrator) heldAt(ctx context.Context, e ledger.Registered) (out []holding, err error) {
	m, err := o.movers.Mover(e.Control)
	if err != nil {
		return nil, err
	}
	d, err := m.Describe(ctx, true)
	if err != nil {
		return nil, err
	}
	add := func(h holding, p handoff.Plan, err error) {
		if err != nil {
			return // of a newer daemon; it is counted, see below
		}
		h.engine, h.control, h.plan = e.ID, e.Control, p
		h.public, _, _ = strings.Cut(string(p.Attempt.Handoff), ".")
		out = append(out, h)
	}
	targets := uint32(0)
	for _, t := range d.GetTargets() {
		if !t.GetFreed() && t.GetBlocks() > 0 {
			targets++
			p, err := rpc.FromPlan(t.GetPlan())
			add(holding{kind: heldTarget, state: t.GetState().String(), blocks: t.GetBlocks(), posted: t.GetPosted()}, p, err)
		}
	}
	for _, s := range d.GetSources() {
		if !s.GetFreed() {
			p, err := rpc.FromPlan(s.GetPlan())
			add(holding{kind: heldSource, state: s.GetState().String(), posted: s.GetPosted()}, p, err)
		}
	}
	if e.Promises > targets {
		out = append(out, holding{engine: e.ID, control: e.Control, kind: heldPromise, state: fmt.Sprintf("%d promises, %d targets", e.Promises, targets), blocks: e.Used})
	}
	return out, nil
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
	t := time.NewTicker(surveyEvery)
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
		for _, h := range held {
			blocks[h.engine] += 0
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
