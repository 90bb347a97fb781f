package fleet

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/surehand/surehand/activities/ledger"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// askWithin bounds one question to one process.
const askWithin = 2 * time.Second

// Held lists all that is held anywhere, counted by those who hold it: engines,
// daemons, the ledger and the histories. Nothing is the empty list. Who does
// not answer holds an unknown amount.
func (f *Fleet) Held(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var held []string
	note := func(format string, args ...any) { held = append(held, fmt.Sprintf(format, args...)) }
	f.heldByEngines(ctx, note)
	f.heldByDaemons(ctx, note)
	f.heldByLedger(ctx, note)
	f.heldByHistories(ctx, note)
	slices.Sort(held)
	return held
}

// HeldMemory is Held of engines and daemons alone: who could run out of it.
func (f *Fleet) HeldMemory(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var held []string
	note := func(format string, args ...any) { held = append(held, fmt.Sprintf(format, args...)) }
	f.heldByEngines(ctx, note)
	f.heldByDaemons(ctx, note)
	return held
}

type noter func(format string, args ...any)

func (f *Fleet) heldByEngines(ctx context.Context, note noter) {
	for _, s := range f.seats {
		e, err := f.engines.Engine(s.engine)
		if err != nil {
			note("%s: %s", s.id, err)
			continue
		}
		d, err := e.Describe(ctx)
		if err != nil {
			note("%s: %s", s.id, err)
			continue
		}
		if d.TargetsHeld+d.SourcesHeld > 0 || d.BlocksFree != d.Blocks || d.Running+d.Waiting > 0 {
			note("%s: %d targets, %d sources, %d of %d blocks not free, %d running, %d waiting", s.id, d.TargetsHeld, d.SourcesHeld,
				d.Blocks-d.BlocksFree, d.Blocks, d.Running, d.Waiting)
		}
	}
}

func (f *Fleet) heldByDaemons(ctx context.Context, note noter) {
	for _, s := range f.seats {
		d, err := f.controls[s.node].Describe(ctx, true)
		if err != nil {
			note("%s: %s", s.node, err)
			continue
		}
		if !d.GetReady() {
			note("%s: no engine is attached", s.node)
		}
		if n := d.GetTargetsLive() + d.GetTargetsQuarantined() + d.GetSourcesLive() + d.GetSourcesQuarantined() + d.GetPinnedBlocks(); n > 0 {
			note("%s: %d targets live and %d quarantined, %d sources live and %d quarantined, %d blocks pinned%s", s.node,
				d.GetTargetsLive(), d.GetTargetsQuarantined(), d.GetSourcesLive(), d.GetSourcesQuarantined(), d.GetPinnedBlocks(), named(d))
		}
	}
}

// named lists the attempts of a daemon whose memory is not freed.
func named(d *transferv1.Description) string {
	var out strings.Builder
	for _, t := range d.GetTargets() {
		if !t.GetFreed() {
			fmt.Fprintf(&out, "; target %s is %s", t.GetPlan().GetAttempt().GetHandoff(), t.GetState())
		}
	}
	for _, t := range d.GetSources() {
		if !t.GetFreed() {
			fmt.Fprintf(&out, "; source %s is %s", t.GetPlan().GetAttempt().GetHandoff(), t.GetState())
		}
	}
	return out.String()
}

func (f *Fleet) heldByLedger(ctx context.Context, note noter) {
	engines, err := f.ledger.Engines(ctx)
	if err != nil {
		note("ledger: %s", err)
		return
	}
	if len(engines) != len(f.seats) {
		note("ledger: %d of %d engines are registered", len(engines), len(f.seats))
	}
	for _, e := range engines {
		if e.Used > 0 || e.Promises > 0 {
			note("ledger: %d promises of %d blocks on %s", e.Promises, e.Used, e.ID)
		}
	}
}

func (f *Fleet) heldByHistories(ctx context.Context, note noter) {
	list, err := f.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 100, Query: "ExecutionStatus = 'Running'"})
	if err != nil {
		note("temporal: %s", err)
		return
	}
	for _, e := range list.GetExecutions() {
		note("temporal: %s runs", e.GetExecution().GetWorkflowId())
	}
}

// OpenWorkflows counts the handoffs that run.
func (f *Fleet) OpenWorkflows(ctx context.Context) (int64, error) {
	n, err := f.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Running'"})
	return n.GetCount(), err
}

// AtRest waits until nothing is held any more; after the deadline it says what
// still is.
func (f *Fleet) AtRest(ctx context.Context, within time.Duration) error {
	return nothing(ctx, within, f.Held)
}

// MemoryFree waits until no engine and no daemon holds anything.
func (f *Fleet) MemoryFree(ctx context.Context, within time.Duration) error {
	return nothing(ctx, within, f.HeldMemory)
}

func nothing(ctx context.Context, within time.Duration, look func(context.Context) []string) error {
	deadline := time.Now().Add(within)
	for {
		held := look(ctx)
		if len(held) == 0 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("still held after %s:\n  %s", within, strings.Join(held, "\n  "))
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * pollEvery):
		}
	}
}

// Promise has the ledger promise blocks of an engine to an attempt that nobody
// makes: a leak. It is forgotten by what it gives, else with its lease.
func (f *Fleet) Promise(ctx context.Context, id string, blocks uint32, lease time.Duration) (forget func(context.Context) error, err error) {
	engines, err := f.ledger.Engines(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range engines {
		if string(e.ID) != id {
			continue
		}
		a := handoff.Attempt{Handoff: handoff.HandoffID(strings.ToLower("nobody." + rand.Text())), Epoch: 1, Nonce: handoff.Nonce(1)}
		err := f.ledger.Reserve(ctx, ledger.ReserveRequest{Engine: e.ID, Incarnation: e.NodeIncarnation, Attempt: a, Blocks: blocks, Lease: lease})
		return func(ctx context.Context) error { return f.ledger.Release(ctx, e.ID, a) }, err
	}
	return nil, fmt.Errorf("no engine is called %s", id)
}

// Accounts are the ledger's, of each engine.
func (f *Fleet) Accounts(ctx context.Context) (out []handoff.LedgerFact, err error) {
	engines, err := f.ledger.Engines(ctx)
	for _, e := range engines {
		out = append(out, handoff.LedgerFact{Total: e.Blocks, Used: e.Used, Free: e.Blocks - min(e.Used, e.Blocks)})
	}
	return out, err
}
